// The CUDA kernel of route: a warp a row.
#include "ops/launch.cuh"
#include "ops/sample/draws.cuh"

namespace roost {
namespace {

using namespace cuda;

constexpr int kThreads = 128;
constexpr int kWarps = kThreads / 32;

// A lane's experts e = lane, lane + 32, … as keys that fall in the order of choice: larger logits
// first, ties to the lower id. In registers where they are few, else made where they are needed.
constexpr int kKeptExperts = 256;
template <bool kKept>
struct Keys {
  const float* row;
  int n_experts;
  uint64_t kept[kKept ? kKeptExperts / 32 : 1];

  __device__ Keys(const float* logits, int n) : row(logits), n_experts(n) {
    if constexpr (kKept) {
#pragma unroll
      for (int k = 0; k < kKeptExperts / 32; ++k) kept[k] = made(32 * k + threadIdx.x % 32);
    }
  }
  // Calls look(expert, key) for all lanes together; behind the last expert the key is 0.
  template <class Look>
  __device__ __forceinline__ void for_each(const Look& look) const {
    if constexpr (kKept) {
#pragma unroll
      for (int k = 0; k < kKeptExperts / 32; ++k) look(32 * k + int(threadIdx.x) % 32, kept[k]);
    } else {
      for (int first = 0; first < n_experts; first += 32) {
        const int e = first + threadIdx.x % 32;
        look(e, made(e));
      }
    }
  }
  __device__ __forceinline__ uint64_t made(int e) const {
    return e < n_experts ? key_of(row[e], e) : 0;
  }
};

__device__ __forceinline__ float logit_of(uint64_t key) {
  const auto rank = uint32_t(key >> 32);
  return __uint_as_float(rank & 0x80000000u ? rank ^ 0x80000000u : ~rank);
}

// The first in the order of choice of those behind `last`.
template <bool kKept>
__device__ __forceinline__ uint64_t next_choice(const Keys<kKept>& keys, uint64_t last) {
  uint64_t best = 0;
  keys.for_each([&](int, uint64_t key) { best = key < last && key > best ? key : best; });
  const unsigned high = __reduce_max_sync(~0u, unsigned(best >> 32));
  const unsigned low = __reduce_max_sync(~0u, best >> 32 == high ? unsigned(best) : 0u);
  return uint64_t(high) << 32 | low;
}

struct RouteCall {
  const float *logits, *shared_logit;
  int32_t* ids;
  float *weights, *shared_gate;
  int64_t n_rows;
  int n_experts, n_chosen;
  bool normalize;
};

// Writes ids and, from Σ in ascending id, weights. `last`: the last in the order of choice.
template <bool kKept>
__device__ void write_chosen(const RouteCall& c, const Keys<kKept>& keys, int64_t t, float largest,
                             uint64_t last) {
  float sum = 0;
  keys.for_each([&](int, uint64_t key) {
    const bool counts = key != 0 && (!c.normalize || key >= last);
    const float term = counts ? exp_f32(logit_of(key) - largest) : 0.0f;
    // In ascending order; what does not count would add nothing.
#pragma unroll 1
    for (unsigned left = __ballot_sync(~0u, counts); left != 0; left &= left - 1)
      sum += __shfl_sync(~0u, term, __ffs(int(left)) - 1);
  });
  int n_before = 0;
  keys.for_each([&](int e, uint64_t key) {
    const bool is_chosen = key >= last;
    const unsigned mask = __ballot_sync(~0u, is_chosen);
    if (is_chosen) {
      const int64_t to = t * c.n_chosen + n_before + __popc(mask & ((1u << threadIdx.x % 32) - 1));
      c.ids[to] = e;
      c.weights[to] = exp_f32(logit_of(key) - largest) / sum;
    }
    n_before += __popc(mask);
  });
}

template <bool kKept>
__global__ void __launch_bounds__(kThreads) sm80_route(RouteCall c) {
  wait_for_inputs();
  const int lane = threadIdx.x % 32;
  for (int64_t t = blockIdx.x * int64_t(kWarps) + threadIdx.x / 32; t < c.n_rows;
       t += int64_t(gridDim.x) * kWarps) {
    const Keys<kKept> keys(c.logits + t * c.n_experts, c.n_experts);
    if (c.shared_gate != nullptr && lane == 0) c.shared_gate[t] = sigmoid_f32(c.shared_logit[t]);
    bool is_finite = true;
    keys.for_each(
        [&](int, uint64_t key) { is_finite = is_finite && (key == 0 || isfinite(logit_of(key))); });
    if (!__all_sync(~0u, is_finite)) {
      for (int s = lane; s < c.n_chosen; s += 32) {
        c.ids[t * c.n_chosen + s] = s;
        c.weights[t * c.n_chosen + s] = NAN;
      }
      continue;
    }
    uint64_t last = ~uint64_t{0};
    float largest = 0;
#pragma unroll 1
    for (int s = 0; s < c.n_chosen; ++s) {
      last = next_choice(keys, last);
      if (s == 0) largest = logit_of(last);
    }
    write_chosen(c, keys, t, largest, last);
  }
}

}  // namespace

void route_cuda(const Route& op, CudaContext& context) {
  RouteCall call{.logits = f32_data(op.logits), .shared_logit = f32_data(op.shared_logit)};
  call.ids = i32_data(op.ids);
  call.weights = f32_data(op.weights);
  call.shared_gate = f32_data(op.shared_gate);
  call.n_rows = op.logits.dim(0);
  call.n_experts = static_cast<int>(op.logits.dim(1));
  call.n_chosen = static_cast<int>(op.ids.dim(1));
  call.normalize = op.normalize;
  const auto kernel = call.n_experts <= kKeptExperts ? sm80_route<true> : sm80_route<false>;
  launch_kernel(context, kernel, grid_of(context, (call.n_rows + kWarps - 1) / kWarps), kThreads, 0,
                call);
}

}  // namespace roost
