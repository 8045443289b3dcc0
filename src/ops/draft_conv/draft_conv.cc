// What draft_conv demands of its arguments.
#include "ops/draft_conv/draft_conv.h"

#include "base/check.h"
#include "ops/checks.h"

namespace roost {

void check(const DraftConv& op) {
  ROOST_CHECK(op.x.exists() && op.x.shape.rank() == 2);
  ROOST_CHECK(op.base.exists() && op.base.shape.rank() == 3);
  const int64_t n_rows = op.x.dim(0), width = op.x.dim(1), n_taps = op.base.dim(1);
  ROOST_CHECK(n_taps >= 1 && op.group >= 1 && width % op.group == 0);
  ROOST_CHECK(op.side == 0 || op.side == 1);
  ROOST_CHECK(has_activation(op.x, {n_rows, width}));
  ROOST_CHECK(has_activation(op.out, {n_rows, width}) && op.out.data != op.x.data);
  ROOST_CHECK(has(op.base, DType::kF32, {2, n_taps, width}));
  ROOST_CHECK(has(op.dynamic, DType::kF32, {n_rows, 2 * n_taps * (width / op.group)}));
  for (const DraftSpan& span : op.spans) {
    ROOST_CHECK(span.first_row >= 0 && span.n_rows >= 1 && span.n_rows <= DraftSpan::kRowsMax);
    ROOST_CHECK(int64_t{span.first_row} + span.n_rows <= n_rows);
  }
}

}  // namespace roost
