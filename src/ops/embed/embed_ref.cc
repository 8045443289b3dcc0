// The float64 reference of embed.
#include "ops/embed/embed.h"

namespace roost {

void embed_reference(const Embed& op, const ReferenceRules&) {
  const int64_t width = op.table->n_in;
  for (int64_t t = 0; t < op.tokens.dim(0); ++t) {
    const auto token = static_cast<int64_t>(op.tokens.get(t));
    for (int64_t i = 0; i < width; ++i) op.out.set(t * width + i, op.table->decode(token, i));
  }
}

}  // namespace roost
