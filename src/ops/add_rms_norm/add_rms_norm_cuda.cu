// The CUDA kernels of add_rms_norm, a block a row: one adds to the residual stream and normalizes
// what it has added, one normalizes chosen rows.
#include "ops/launch.cuh"

namespace roost {
namespace {

using namespace cuda;

constexpr int kThreads = 512;
constexpr int kRun = 8;    // neighbouring elements of a thread, 16 bytes
constexpr int kKept = 2;   // runs that a thread keeps from the sum to the norm
constexpr int kSlots = 8;  // experts whose runs a thread has on their way together

struct alignas(16) Run {
  uint16_t v[kRun];
};

// Elements [first, first + 8) of a row of n; zeros behind its end.
__device__ __forceinline__ Run load_run(const uint16_t* row, int64_t first, int64_t n) {
  Run run;
  const uint16_t* from = row + first;
  if (first + kRun <= n && (reinterpret_cast<uintptr_t>(from) & 15) == 0) {
    *reinterpret_cast<uint4*>(&run) = *reinterpret_cast<const uint4*>(from);
  } else {
#pragma unroll
    for (int i = 0; i < kRun; ++i) run.v[i] = first + i < n ? from[i] : uint16_t(0);
  }
  return run;
}

__device__ __forceinline__ void store_run(const Run& run, uint16_t* row, int64_t first, int64_t n) {
  uint16_t* to = row + first;
  if (first + kRun <= n && (reinterpret_cast<uintptr_t>(to) & 15) == 0) {
    *reinterpret_cast<uint4*>(to) = *reinterpret_cast<const uint4*>(&run);
  } else {
#pragma unroll
    for (int i = 0; i < kRun; ++i)
      if (first + i < n) to[i] = run.v[i];
  }
}

struct Addend {
  const uint16_t* add;  // or null
  const uint16_t* y;    // of experts, or null
  const int32_t* ids;
  const float* weights;
  const float* shared_gate;  // or null
  int64_t n_chosen, n_slots;
  int n_experts;
};

// A run of row t's expert sum, in the expert tree, not yet rounded.
__device__ __forceinline__ void expert_sums(const Addend& a, int64_t t, int64_t first,
                                            int64_t width, float (&sums)[kRun]) {
  const uint16_t* y = a.y + t * a.n_slots * width;
  Run shared;
  if (a.shared_gate != nullptr) shared = load_run(y + a.n_chosen * width, first, width);
  float quarter[4][kRun] = {};
  const int n = int(a.n_chosen);
  for (int begin = 0; begin < n; begin += kSlots) {
    Run values[kSlots];
    float weights[kSlots];
    int quarters[kSlots];
#pragma unroll
    for (int s = 0; s < kSlots; ++s) {
      const int slot = min(begin + s, n - 1);
      values[s] = load_run(y + slot * width, first, width);
      weights[s] = a.weights[t * a.n_chosen + slot];
      quarters[s] = 4 * a.ids[t * a.n_chosen + slot] / a.n_experts;
    }
#pragma unroll
    for (int s = 0; s < kSlots; ++s) {
      if (begin + s >= n) break;
#pragma unroll
      for (int q = 0; q < 4; ++q) {
        if (quarters[s] != q) continue;
#pragma unroll
        for (int i = 0; i < kRun; ++i)
          quarter[q][i] = fmaf(weights[s], f32_of(values[s].v[i]), quarter[q][i]);
      }
    }
  }
  const float gate = a.shared_gate != nullptr ? a.shared_gate[t] : 0.0f;
#pragma unroll
  for (int i = 0; i < kRun; ++i) {
    sums[i] = (quarter[0][i] + quarter[1][i]) + (quarter[2][i] + quarter[3][i]);
    if (a.shared_gate != nullptr) sums[i] = fmaf(gate, f32_of(shared.v[i]), sums[i]);
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

__device__ __forceinline__ void add_squares(const Run& run, float& squares) {
#pragma unroll
  for (int i = 0; i < kRun; ++i) squares = fmaf(f32_of(run.v[i]), f32_of(run.v[i]), squares);
}

// The factors of a thread's first runs. No kernel writes them, so they are asked for before others
// have ended.
struct Factors {
  float4 v[kKept][kRun / 4];

  __device__ Factors(const float* weight, int64_t width) {
    const bool is_whole = width % kRun == 0 && (reinterpret_cast<uintptr_t>(weight) & 15) == 0;
#pragma unroll
    for (int k = 0; k < kKept; ++k) {
      const int64_t first = (threadIdx.x + k * int64_t(kThreads)) * kRun;
      if (weight == nullptr || first >= width) continue;
      if (is_whole) {
        v[k][0] = *reinterpret_cast<const float4*>(weight + first);
        v[k][1] = *reinterpret_cast<const float4*>(weight + first + 4);
        continue;
      }
      auto* each = reinterpret_cast<float*>(v[k]);
#pragma unroll
      for (int i = 0; i < kRun; ++i) each[i] = first + i < width ? weight[first + i] : 0.0f;
    }
  }
  __device__ __forceinline__ float at(int k, int i) const {
    const float4& four = v[k][i / 4];
    return i % 4 == 0 ? four.x : i % 4 == 1 ? four.y : i % 4 == 2 ? four.z : four.w;
  }
};

// out = x·scale·weight of a row whose squares the threads have summed; kept: a thread's first runs.
__device__ __forceinline__ void normalize(const uint16_t* row, const Run (&kept)[kKept],
                                          const Factors& factors, const float* weight,
                                          float squares, int64_t width, float eps, uint16_t* out) {
  const float scale = inverse_sqrt_f32(block_sum(squares) / float(width) + eps);
  const auto store = [&](Run run, int64_t first, const auto& factor) {
#pragma unroll
    for (int i = 0; i < kRun; ++i) run.v[i] = bf16_of(f32_of(run.v[i]) * scale * factor(i));
    store_run(run, out, first, width);
  };
  int64_t first = threadIdx.x * kRun;
#pragma unroll
  for (int k = 0; k < kKept; ++k, first += kThreads * kRun)
    if (first < width) store(kept[k], first, [&](int i) { return factors.at(k, i); });
  for (; first < width; first += kThreads * kRun)
    store(load_run(row, first, width), first,
          [&](int i) { return first + i < width ? weight[first + i] : 0.0f; });
}

struct AddCall {
  uint16_t* x;
  Addend addend;
  uint16_t* tap;  // or null; of row 0, rows tap_stride apart
  const float* weight;
  uint16_t* out;  // or null: no norm
  int64_t n_rows, width, tap_stride;
  float eps;
};

// A run of the row with what is added to it, stored where that changes it.
template <bool kHasExperts>
__device__ __forceinline__ Run add_to_run(const AddCall& c, int64_t t, int64_t first) {
  uint16_t* row = c.x + t * c.width;
  Run run = load_run(row, first, c.width);
  float sums[kRun];
  if constexpr (kHasExperts) expert_sums(c.addend, t, first, c.width, sums);
  if (c.addend.add != nullptr) {
    const Run add = load_run(c.addend.add + t * c.width, first, c.width);
#pragma unroll
    for (int i = 0; i < kRun; ++i) run.v[i] = bf16_of(f32_of(run.v[i]) + f32_of(add.v[i]));
  }
  if constexpr (kHasExperts) {
#pragma unroll
    for (int i = 0; i < kRun; ++i) run.v[i] = bf16_of(f32_of(run.v[i]) + rounded_to_bf16(sums[i]));
  }
  if (kHasExperts || c.addend.add != nullptr) store_run(run, row, first, c.width);
  if (c.tap != nullptr) store_run(run, c.tap + t * c.tap_stride, first, c.width);
  return run;
}

// A thread reads again only what it wrote itself. Without experts the kernel is short, which
// counts: a step of few rows runs it from a cold instruction cache.
template <bool kHasExperts>
__global__ void __launch_bounds__(kThreads) sm80_add_rms_norm(AddCall c) {
  const Factors factors(c.out != nullptr ? c.weight : nullptr, c.width);
  wait_for_inputs();
  for (int64_t t = blockIdx.x; t < c.n_rows; t += gridDim.x) {
    float squares = 0;
    Run kept[kKept] = {};
    int64_t first = threadIdx.x * kRun;
#pragma unroll
    for (int k = 0; k < kKept; ++k, first += kThreads * kRun) {
      if (first >= c.width) continue;
      kept[k] = add_to_run<kHasExperts>(c, t, first);
      add_squares(kept[k], squares);
    }
    for (; first < c.width; first += kThreads * kRun)
      add_squares(add_to_run<kHasExperts>(c, t, first), squares);
    if (c.out != nullptr)
      normalize(c.x + t * c.width, kept, factors, c.weight, squares, c.width, c.eps,
                c.out + t * c.width);
  }
}

__global__ void __launch_bounds__(kThreads)
    sm80_rms_norm(const uint16_t* x, const float* weight, const int32_t* rows, uint16_t* out,
                  int64_t n_out, int64_t width, float eps) {
  const Factors factors(weight, width);
  wait_for_inputs();
  for (int64_t j = blockIdx.x; j < n_out; j += gridDim.x) {
    const uint16_t* row = x + rows[j] * width;
    float squares = 0;
    Run kept[kKept] = {};
    int64_t first = threadIdx.x * kRun;
#pragma unroll
    for (int k = 0; k < kKept; ++k, first += kThreads * kRun) {
      if (first >= width) continue;
      kept[k] = load_run(row, first, width);
      add_squares(kept[k], squares);
    }
    for (; first < width; first += kThreads * kRun)
      add_squares(load_run(row, first, width), squares);
    normalize(row, kept, factors, weight, squares, width, eps, out + j * width);
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
  }
  if (op.tap.exists()) {
    call.tap = bf16_data(op.tap) + op.tap_first;
    call.tap_stride = op.tap.dim(1);
  }
  call.weight = f32_data(op.weight);
  if (!has_rows) call.out = bf16_data(op.out);
  call.n_rows = op.x.dim(0);
  call.width = op.x.dim(1);
  call.eps = op.eps;
  if (op.add.exists() || sum.y.exists() || op.tap.exists() || call.out != nullptr)
    launch_kernel(context, sum.y.exists() ? sm80_add_rms_norm<true> : sm80_add_rms_norm<false>,
                  grid_of(context, call.n_rows), kThreads, 0, call);
  if (!op.out.exists() || !has_rows) return;
  const int64_t n_out = op.out.dim(0);
  launch_kernel(context, sm80_rms_norm, grid_of(context, n_out), kThreads, 0, call.x, call.weight,
                i32_data(op.rows), bf16_data(op.out), n_out, call.width, op.eps);
}

}  // namespace roost
