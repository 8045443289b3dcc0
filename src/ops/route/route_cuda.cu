// The CUDA kernel of route: a warp a row.
#include "ops/launch.cuh"

namespace roost {
namespace {

using namespace cuda;

constexpr int kThreads = 128;
constexpr int kWarps = kThreads / 32;

// A logit and its expert. The order of choice: larger logits first, ties to the lower id.
struct Choice {
  float logit;
  int id;
};

__device__ __forceinline__ bool comes_before(const Choice& a, const Choice& b) {
  return a.logit > b.logit || (a.logit == b.logit && a.id < b.id);
}

// A lane's logits e = lane, lane + 32, …: in registers where they are few, else where they lie.
constexpr int kKeptExperts = 256;
template <bool kKept>
struct Logits {
  const float* row;
  int n_experts;
  float kept[kKept ? kKeptExperts / 32 : 1];

  __device__ Logits(const float* logits, int n) : row(logits), n_experts(n) {
    if constexpr (kKept) {
#pragma unroll
      for (int k = 0; k < kKeptExperts / 32; ++k) {
        const int e = 32 * k + threadIdx.x % 32;
        kept[k] = e < n ? logits[e] : -INFINITY;
      }
    }
  }
  __device__ __forceinline__ float at(int e) const {
    if constexpr (kKept) {
      float logit = kept[0];
#pragma unroll
      for (int k = 1; k < kKeptExperts / 32; ++k) logit = e / 32 == k ? kept[k] : logit;
      return logit;
    } else {
      return row[e];
    }
  }
  // Calls look(expert, logit) for those of the lane.
  template <class Look>
  __device__ __forceinline__ void for_each(const Look& look) const {
    if constexpr (kKept) {
#pragma unroll
      for (int k = 0; k < kKeptExperts / 32; ++k) {
        const int e = 32 * k + threadIdx.x % 32;
        if (e < n_experts) look(e, kept[k]);
      }
    } else {
      for (int e = threadIdx.x % 32; e < n_experts; e += 32) look(e, row[e]);
    }
  }
};

// The first in the order of choice of those behind `last`.
template <bool kKept>
__device__ __forceinline__ Choice next_choice(const Logits<kKept>& logits, const Choice& last) {
  Choice best{-INFINITY, INT32_MAX};
  logits.for_each([&](int e, float logit) {
    const Choice candidate{logit, e};
    if (comes_before(last, candidate) && comes_before(candidate, best)) best = candidate;
  });
  for (int step = 16; step > 0; step /= 2) {
    const Choice other{__shfl_xor_sync(~0u, best.logit, step), __shfl_xor_sync(~0u, best.id, step)};
    if (comes_before(other, best)) best = other;
  }
  return best;
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
__device__ void write_chosen(const RouteCall& c, const Logits<kKept>& logits, int64_t t,
                             float largest, const Choice& last) {
  const int lane = threadIdx.x % 32;
  const auto is_chosen = [&](int e) {
    return e < c.n_experts && !comes_before(last, Choice{logits.at(e), e});
  };
  float sum = 0;
  for (int first = 0; first < c.n_experts; first += 32) {
    const int e = first + lane;
    const bool counts = e < c.n_experts && (!c.normalize || is_chosen(e));
    const float term = counts ? exp_f32(logits.at(e) - largest) : 0.0f;
    // In ascending order; what does not count would add nothing.
    for (unsigned left = __ballot_sync(~0u, counts); left != 0; left &= left - 1)
      sum += __shfl_sync(~0u, term, __ffs(int(left)) - 1);
  }
  int n_before = 0;
  for (int first = 0; first < c.n_experts; first += 32) {
    const int e = first + lane;
    const unsigned mask = __ballot_sync(~0u, is_chosen(e));
    if (is_chosen(e)) {
      const int64_t to = t * c.n_chosen + n_before + __popc(mask & ((1u << lane) - 1));
      c.ids[to] = e;
      c.weights[to] = exp_f32(logits.at(e) - largest) / sum;
    }
    n_before += __popc(mask);
  }
}

template <bool kKept>
__global__ void __launch_bounds__(kThreads) sm80_route(RouteCall c) {
  wait_for_inputs();
  const int lane = threadIdx.x % 32;
  for (int64_t t = blockIdx.x * int64_t(kWarps) + threadIdx.x / 32; t < c.n_rows;
       t += int64_t(gridDim.x) * kWarps) {
    const Logits<kKept> logits(c.logits + t * c.n_experts, c.n_experts);
    if (c.shared_gate != nullptr && lane == 0) c.shared_gate[t] = sigmoid_f32(c.shared_logit[t]);
    bool is_finite = true;
    logits.for_each([&](int, float logit) { is_finite = is_finite && isfinite(logit); });
    if (!__all_sync(~0u, is_finite)) {
      for (int s = lane; s < c.n_chosen; s += 32) {
        c.ids[t * c.n_chosen + s] = s;
        c.weights[t * c.n_chosen + s] = NAN;
      }
      continue;
    }
    Choice last{INFINITY, -1};
    float largest = 0;
    for (int s = 0; s < c.n_chosen; ++s) {
      last = next_choice(logits, last);
      if (s == 0) largest = last.logit;
    }
    write_chosen(c, logits, t, largest, last);
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
