// The CUDA kernels of add_rms_norm, a block a row: one adds to the residual stream and normalizes
// what it has added, one normalizes chosen rows.
#include "ops/launch.cuh"

namespace roost {
namespace {

using namespace cuda;

constexpr int kThreads = 512;
constexpr int kBatch = 4;       // elements whose loads a thread has on their way together
constexpr int kSlots = 8;       // and experts of each
constexpr int kChosenMax = 64;  // experts of a row

struct Addend {
  const uint16_t* add;  // or null
  const uint16_t* y;    // of experts, or null
  const int32_t* ids;
  const float* weights;
  const float* shared_gate;  // or null
  int64_t n_chosen, n_slots;
  int n_experts;
};

// A row's experts in shared memory: weights, and their quarters of the expert tree.
struct RowExperts {
  float weights[kChosenMax];
  int quarter[kChosenMax];
};

// All threads of the block; a barrier follows.
__device__ void load_experts(const Addend& a, int64_t t, RowExperts& row) {
  for (int s = threadIdx.x; s < int(a.n_chosen); s += kThreads) {
    row.weights[s] = a.weights[t * a.n_chosen + s];
    row.quarter[s] = 4 * a.ids[t * a.n_chosen + s] / a.n_experts;
  }
}

// Elements first, first + kThreads, … of row t's expert sum, in the expert tree, not yet rounded.
// Those behind the row's end are the last one again.
__device__ __forceinline__ void expert_sums(const Addend& a, const RowExperts& row, int64_t t,
                                            int64_t first, int64_t width, float (&sums)[kBatch]) {
  const uint16_t* y = a.y + t * a.n_slots * width;
  int64_t at[kBatch];
#pragma unroll
  for (int k = 0; k < kBatch; ++k) at[k] = min(first + k * kThreads, width - 1);
  uint16_t shared[kBatch];
  if (a.shared_gate != nullptr) {
#pragma unroll
    for (int k = 0; k < kBatch; ++k) shared[k] = y[a.n_chosen * width + at[k]];
  }
  float quarter[4][kBatch] = {};
  const int n = int(a.n_chosen);
  for (int begin = 0; begin < n; begin += kSlots) {
    uint16_t values[kSlots][kBatch];
#pragma unroll
    for (int s = 0; s < kSlots; ++s) {
#pragma unroll
      for (int k = 0; k < kBatch; ++k) values[s][k] = y[min(begin + s, n - 1) * width + at[k]];
    }
#pragma unroll
    for (int s = 0; s < kSlots; ++s) {
      if (begin + s >= n) break;
#pragma unroll
      for (int q = 0; q < 4; ++q) {
        if (row.quarter[begin + s] != q) continue;
#pragma unroll
        for (int k = 0; k < kBatch; ++k)
          quarter[q][k] = fmaf(row.weights[begin + s], f32_of(values[s][k]), quarter[q][k]);
      }
    }
  }
#pragma unroll
  for (int k = 0; k < kBatch; ++k) {
    sums[k] = (quarter[0][k] + quarter[1][k]) + (quarter[2][k] + quarter[3][k]);
    if (a.shared_gate != nullptr) sums[k] = fmaf(a.shared_gate[t], f32_of(shared[k]), sums[k]);
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

// out = x·scale·weight of a row whose squares the threads have summed.
__device__ __forceinline__ void normalize(const uint16_t* row, const float* weight, float squares,
                                          int64_t width, float eps, uint16_t* out) {
  const float scale = inverse_sqrt_f32(block_sum(squares) / float(width) + eps);
  for (int64_t first = threadIdx.x; first < width; first += kBatch * kThreads) {
    float value[kBatch], factor[kBatch];
#pragma unroll
    for (int k = 0; k < kBatch; ++k) {
      const int64_t i = min(first + k * kThreads, width - 1);
      value[k] = f32_of(row[i]);
      factor[k] = weight[i];
    }
#pragma unroll
    for (int k = 0; k < kBatch; ++k)
      if (first + k * kThreads < width)
        out[first + k * kThreads] = bf16_of(value[k] * scale * factor[k]);
  }
}

struct AddCall {
  uint16_t* x;
  Addend addend;
  uint16_t* tap;  // or null
  const float* weight;
  uint16_t* out;  // or null: no norm
  int64_t n_rows, width;
  float eps;
};

// A thread reads again only what it wrote itself.
__global__ void __launch_bounds__(kThreads) sm80_add_rms_norm(AddCall c) {
  wait_for_inputs();
  __shared__ RowExperts experts;
  const bool is_changed = c.addend.add != nullptr || c.addend.y != nullptr;
  for (int64_t t = blockIdx.x; t < c.n_rows; t += gridDim.x) {
    if (c.addend.y != nullptr) {
      __syncthreads();  // the row before has been summed
      load_experts(c.addend, t, experts);
      __syncthreads();
    }
    uint16_t* row = c.x + t * c.width;
    float squares = 0;
    for (int64_t first = threadIdx.x; first < c.width; first += kBatch * kThreads) {
      float value[kBatch], add[kBatch], sums[kBatch];
#pragma unroll
      for (int k = 0; k < kBatch; ++k) {
        const int64_t i = min(first + k * kThreads, c.width - 1);
        value[k] = f32_of(row[i]);
        add[k] = c.addend.add != nullptr ? f32_of(c.addend.add[t * c.width + i]) : 0.0f;
      }
      if (c.addend.y != nullptr) expert_sums(c.addend, experts, t, first, c.width, sums);
#pragma unroll
      for (int k = 0; k < kBatch; ++k) {
        const int64_t i = first + k * kThreads;
        if (i >= c.width) break;
        if (c.addend.add != nullptr) value[k] += add[k];
        if (c.addend.y != nullptr) value[k] += rounded_to_bf16(sums[k]);
        const uint16_t stored = bf16_of(value[k]);
        if (is_changed) row[i] = stored;
        if (c.tap != nullptr) c.tap[t * c.width + i] = stored;
        squares = fmaf(f32_of(stored), f32_of(stored), squares);
      }
    }
    if (c.out != nullptr) normalize(row, c.weight, squares, c.width, c.eps, c.out + t * c.width);
  }
}

__global__ void __launch_bounds__(kThreads)
    sm80_rms_norm(const uint16_t* x, const float* weight, const int32_t* rows, uint16_t* out,
                  int64_t n_out, int64_t width, float eps) {
  wait_for_inputs();
  for (int64_t j = blockIdx.x; j < n_out; j += gridDim.x) {
    const uint16_t* row = x + rows[j] * width;
    float squares = 0;
    for (int64_t i = threadIdx.x; i < width; i += kThreads)
      squares = fmaf(f32_of(row[i]), f32_of(row[i]), squares);
    normalize(row, weight, squares, width, eps, out + j * width);
  }
}

}  // namespace

void add_rms_norm_cuda(const AddRmsNorm& op, CudaContext& context) {
  const ExpertSum& sum = op.experts;
  const bool has_rows = op.rows.exists();
  AddCall call{.x = bf16_data(op.x), .addend = {.add = bf16_data(op.add), .y = bf16_data(sum.y)}};
  if (sum.y.exists()) {
    call.addend.ids = i32_data(sum.ids);
    call.addend.weights = f32_data(sum.weights);
    call.addend.shared_gate = f32_data(sum.shared_gate);
    call.addend.n_chosen = sum.ids.dim(1);
    call.addend.n_slots = sum.y.dim(1);
    call.addend.n_experts = sum.n_experts;
    ROOST_CHECK(call.addend.n_chosen <= kChosenMax);
  }
  call.tap = bf16_data(op.tap);
  call.weight = f32_data(op.weight);
  if (!has_rows) call.out = bf16_data(op.out);
  call.n_rows = op.x.dim(0);
  call.width = op.x.dim(1);
  call.eps = op.eps;
  if (op.add.exists() || sum.y.exists() || op.tap.exists() || call.out != nullptr)
    launch_kernel(context, sm80_add_rms_norm, grid_of(context, call.n_rows), kThreads, 0, call);
  if (!op.out.exists() || !has_rows) return;
  const int64_t n_out = op.out.dim(0);
  launch_kernel(context, sm80_rms_norm, grid_of(context, n_out), kThreads, 0, call.x, call.weight,
                i32_data(op.rows), bf16_data(op.out), n_out, call.width, op.eps);
}

}  // namespace roost
