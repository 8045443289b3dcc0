// What embed demands of its arguments.
#include "ops/embed/embed.h"

#include "base/check.h"
#include "ops/checks.h"

namespace roost {

void check(const Embed& op) {
  ROOST_CHECK(op.table != nullptr && is_sound(*op.table));
  ROOST_CHECK(op.tokens.exists() && op.tokens.shape.rank() == 1 && op.tokens.dim(0) >= 1);
  const int64_t n_rows = op.tokens.dim(0);
  ROOST_CHECK(has(op.tokens, DType::kI32, {n_rows}));
  ROOST_CHECK(has_activation(op.out, {n_rows, op.table->n_in}));
  for (int64_t t = 0; t < n_rows; ++t) {
    const int32_t token = op.tokens.as<int32_t>()[t];
    ROOST_CHECK(token >= 0 && token < op.table->n_out);
  }
}

}  // namespace roost
