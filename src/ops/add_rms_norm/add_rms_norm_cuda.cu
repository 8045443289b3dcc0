// The CUDA kernels of add_rms_norm: one adds to the residual stream, one block a row of a norm.
#include "ops/launch.cuh"

namespace roost {
namespace {

using namespace cuda;

constexpr int kThreads = 256;

struct Addend {
  const uint16_t* add;  // or null
  const uint16_t* y;    // of experts, or null
  const int32_t* ids;
  const float* weights;
  const float* shared_gate;  // or null
  int64_t n_chosen, n_slots;
  int n_experts;
};

// Element i of row t's expert sum, in the expert tree, not yet rounded.
__device__ float expert_sum(const Addend& a, int64_t t, int64_t i, int64_t width) {
  float quarter[4] = {0, 0, 0, 0};
  for (int64_t s = 0; s < a.n_chosen; ++s) {
    const int q = int(4 * int64_t(a.ids[t * a.n_chosen + s]) / a.n_experts);
    const float weight = a.weights[t * a.n_chosen + s];
    const float y = f32_of(a.y[(t * a.n_slots + s) * width + i]);
#pragma unroll
    for (int p = 0; p < 4; ++p) quarter[p] = p == q ? fmaf(weight, y, quarter[p]) : quarter[p];
  }
  const float routed = (quarter[0] + quarter[1]) + (quarter[2] + quarter[3]);
  if (a.shared_gate == nullptr) return routed;
  return fmaf(a.shared_gate[t], f32_of(a.y[(t * a.n_slots + a.n_chosen) * width + i]), routed);
}

__global__ void sm80_add(uint16_t* x, Addend addend, uint16_t* tap, int64_t n_rows, int64_t width) {
  const int64_t n = n_rows * width, step = int64_t(gridDim.x) * kThreads;
  for (int64_t at = blockIdx.x * int64_t(kThreads) + threadIdx.x; at < n; at += step) {
    float value = f32_of(x[at]);
    if (addend.add != nullptr) value += f32_of(addend.add[at]);
    if (addend.y != nullptr)
      value += rounded_to_bf16(expert_sum(addend, at / width, at % width, width));
    const uint16_t stored = bf16_of(value);
    if (addend.add != nullptr || addend.y != nullptr) x[at] = stored;
    if (tap != nullptr) tap[at] = stored;
  }
}

// Σ of one value a thread, the same in every thread and in the same order.
__device__ float block_sum(float value) {
  __shared__ float partial[kThreads / 32];
  value = warp_sum(value);
  __syncthreads();  // the sum of the row before has been read
  if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = value;
  __syncthreads();
  float total = 0;
  for (const float p : partial) total += p;
  return total;
}

__global__ void sm80_rms_norm(const uint16_t* x, const float* weight, const int32_t* rows,
                              uint16_t* out, int64_t n_out, int64_t width, float eps) {
  for (int64_t j = blockIdx.x; j < n_out; j += gridDim.x) {
    const uint16_t* row = x + (rows != nullptr ? rows[j] : j) * width;
    float squares = 0;
    for (int64_t i = threadIdx.x; i < width; i += kThreads)
      squares = fmaf(f32_of(row[i]), f32_of(row[i]), squares);
    const float scale = inverse_sqrt_f32(block_sum(squares) / float(width) + eps);
    for (int64_t i = threadIdx.x; i < width; i += kThreads)
      out[j * width + i] = bf16_of(f32_of(row[i]) * scale * weight[i]);
  }
}

}  // namespace

void add_rms_norm_cuda(const AddRmsNorm& op, CudaContext& context) {
  const int64_t n_rows = op.x.dim(0), width = op.x.dim(1);
  const ExpertSum& sum = op.experts;
  if (op.add.exists() || sum.y.exists() || op.tap.exists()) {
    Addend addend{.add = bf16_data(op.add), .y = bf16_data(sum.y)};
    if (sum.y.exists()) {
      addend.ids = i32_data(sum.ids);
      addend.weights = f32_data(sum.weights);
      addend.shared_gate = f32_data(sum.shared_gate);
      addend.n_chosen = sum.ids.dim(1);
      addend.n_slots = sum.y.dim(1);
      addend.n_experts = sum.n_experts;
    }
    launch_kernel(context, sm80_add, grid_for_threads(context, n_rows * width, kThreads), kThreads,
                  0, bf16_data(op.x), addend, bf16_data(op.tap), n_rows, width);
  }
  if (!op.out.exists()) return;
  const int64_t n_out = op.out.dim(0);
  launch_kernel(context, sm80_rms_norm, grid_of(context, n_out), kThreads, 0, bf16_data(op.x),
                f32_data(op.weight), i32_data(op.rows), bf16_data(op.out), n_out, width, op.eps);
}

}  // namespace roost
