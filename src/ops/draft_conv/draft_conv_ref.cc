// The float64 reference of draft_conv.
#include "ops/draft_conv/draft_conv.h"

namespace roost {

void draft_conv_reference(const DraftConv& op, const ReferenceRules&) {
  const int64_t width = op.x.dim(1), n_taps = op.base.dim(1), n_groups = width / op.group;
  for (const DraftSpan& span : op.spans) {
    for (int64_t row = 0; row < span.n_rows; ++row) {
      const int64_t t = span.first_row + row;
      for (int64_t c = 0; c < width; ++c) {
        double sum = 0;
        for (int64_t tap = 0; tap < n_taps && tap <= row; ++tap) {
          const int64_t at = op.side * n_taps + tap;
          const double coefficient =
              op.base.get(at * width + c) +
              op.dynamic.get((t * 2 * n_taps + at) * n_groups + c / op.group);
          sum += coefficient * op.x.get((t - tap) * width + c);
        }
        op.out.set(t * width + c, sum);
      }
    }
  }
}

}  // namespace roost
