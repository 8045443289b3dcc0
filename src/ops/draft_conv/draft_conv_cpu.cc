// draft_conv on the CPU: an item is one row; its channels go group by group, taps innermost.
#include "ops/draft_conv/draft_conv.h"

#include <algorithm>

#include "base/check.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/draft_conv/draft_conv_cpu.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "device/cpu/simd.h"
#include "ops/simd_math.h"

HWY_BEFORE_NAMESPACE();
namespace roost {
namespace HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

// Row `row` of a block, and the rows before it that the taps reach.
void convolve_row(const DraftConv& op, const DraftSpan& span, int64_t row) {
  const auto width = static_cast<size_t>(op.x.dim(1)), group = static_cast<size_t>(op.group);
  const size_t n_groups = width / group;
  const int64_t n_taps = op.base.dim(1), t = span.first_row + row;
  const int64_t reach = std::min(n_taps, row + 1);  // rows before the block are zeros
  const uint16_t* x = op.x.as<uint16_t>() + t * op.x.dim(1);
  uint16_t* out = op.out.as<uint16_t>() + t * op.x.dim(1);
  const float* base = op.base.as<float>() + op.side * n_taps * op.x.dim(1);
  const float* dynamic =
      op.dynamic.as<float>() + (t * 2 + op.side) * n_taps * static_cast<int64_t>(n_groups);
  for (size_t g = 0; g < n_groups; ++g) {
    for_lanes(hn::ScalableTag<float>(), group, [&](auto d, size_t i) HWY_ATTR {
      const size_t c = g * group + i;
      auto sum = hn::Zero(d);
      for (size_t tap = 0; tap < static_cast<size_t>(reach); ++tap) {
        const auto fixed = hn::LoadU(d, base + tap * width + c);
        const auto coefficient = hn::Add(fixed, hn::Set(d, dynamic[tap * n_groups + g]));
        sum = hn::MulAdd(coefficient, load_bf16(d, x + c - tap * width), sum);
      }
      store_bf16(d, sum, out + c);
    });
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace roost
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace roost {

HWY_EXPORT(convolve_row);

void draft_conv_cpu(const DraftConv& op, CpuContext& context) {
  check(op);
  ROOST_CHECK(op.x.dtype == DType::kBF16 && op.out.dtype == DType::kBF16);
  const auto convolve = HWY_DYNAMIC_DISPATCH(convolve_row);
  int64_t n_rows = 0;
  for (const DraftSpan& span : op.spans) n_rows += span.n_rows;
  context.pool.parallel_for(n_rows, [&](int64_t i) {
    const DraftSpan* span = op.spans.data();
    int64_t row = i;
    for (; row >= span->n_rows; ++span) row -= span->n_rows;
    convolve(op, *span, row);
  });
}

}  // namespace roost
#endif
