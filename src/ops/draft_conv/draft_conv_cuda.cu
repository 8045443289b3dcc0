// The CUDA kernel of draft_conv: a thread an output.
#include <vector>

#include "ops/launch.cuh"

namespace roost {
namespace {

using namespace cuda;

constexpr int kThreads = 128;

// Row `row` of the call, and how many rows of its block lie in front of it.
struct ConvRow {
  int32_t row, n_before;
};

struct ConvCall {
  const uint16_t* x;
  const float *dynamic, *base;  // of the side
  uint16_t* out;
  const ConvRow* rows;
  int64_t n_rows, width, n_taps, group, n_groups;
};

__global__ void __launch_bounds__(kThreads) sm80_bf16_draft_conv(ConvCall c) {
  wait_for_inputs();
  const int64_t step = int64_t(gridDim.x) * kThreads;
  for (int64_t item = blockIdx.x * int64_t(kThreads) + threadIdx.x; item < c.n_rows * c.width;
       item += step) {
    const ConvRow place = c.rows[item / c.width];
    const int64_t channel = item % c.width, t = place.row;
    // Both sides' coefficients of a row lie behind each other.
    const float* dynamic = c.dynamic + t * 2 * c.n_taps * c.n_groups + channel / c.group;
    float sum = 0;
    for (int64_t tap = 0; tap < min(c.n_taps, int64_t(place.n_before) + 1); ++tap)
      sum = fmaf(c.base[tap * c.width + channel] + dynamic[tap * c.n_groups],
                 f32_of(c.x[(t - tap) * c.width + channel]), sum);
    c.out[t * c.width + channel] = bf16_of(sum);
  }
}

}  // namespace

void draft_conv_cuda(const DraftConv& op, CudaContext& context) {
  if (op.spans.empty()) return;
  std::vector<ConvRow> rows;
  for (const DraftSpan& span : op.spans) {
    for (int32_t r = 0; r < span.n_rows; ++r) rows.push_back({span.first_row + r, r});
  }
  ConvCall call{.x = bf16_data(op.x)};
  call.n_taps = op.base.dim(1);
  call.width = op.x.dim(1);
  call.group = op.group;
  call.n_groups = call.width / op.group;
  call.dynamic = f32_data(op.dynamic) + op.side * call.n_taps * call.n_groups;
  call.base = f32_data(op.base) + op.side * call.n_taps * call.width;
  call.out = bf16_data(op.out);
  call.rows = context.push(std::span<const ConvRow>(rows));
  call.n_rows = static_cast<int64_t>(rows.size());
  launch_kernel(context, sm80_bf16_draft_conv,
                grid_for_threads(context, call.n_rows * call.width, kThreads), kThreads, 0, call);
}

}  // namespace roost
