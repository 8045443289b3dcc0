// What the kernels of gated_delta share: the call, rows in shared memory, one row's arithmetic.
#pragma once

#include "ops/launch.cuh"

namespace roost::cuda {

inline constexpr int kThreads = 128;
inline constexpr int kLanes = 4;                    // threads of one value column
inline constexpr int kColumns = kThreads / kLanes;  // value columns of a block
inline constexpr int kStagedRows = 8;  // rows whose inputs lie in shared memory at a time

struct DeltaCall {
  const uint16_t *q, *k, *v;
  const float *kq, *beta, *decay;
  const uint16_t* z;
  const float* norm_weight;
  float* state;
  uint16_t* out;
  const DeltaSpan* spans;
  int64_t n_spans;
  int key_heads, value_heads, key_dim, value_dim;
  float eps;
};

// Rows staged for the block: keys and queries in f32, a lane's kKeys dims apart by kKeys + 4, so
// that the four lanes of a column read 16 bytes each and meet no bank twice.
template <int kKeys, int kMine = 1>
struct Staged {
  static constexpr int kStride = kKeys + 4;
  alignas(16) float q[kStagedRows][kLanes * kStride], k[kStagedRows][kLanes * kStride];
  float v[kStagedRows][kMine * kColumns];
  float kq[kStagedRows], beta[kStagedRows], decay[kStagedRows];
};

// One row for the value columns column, column + 32, … of a thread; the lanes of a column hold
// kKeys neighbouring key dims each, and absent dims are zeros, which add exactly nothing.
template <int kKeys, int kMine>
__device__ __forceinline__ void recur(const Staged<kKeys, kMine>& staged, int r, int column,
                                      int lane, float (&state)[kMine][kKeys], float (&y)[kMine]) {
  using Rows = Staged<kKeys, kMine>;
  const auto* q4 = reinterpret_cast<const float4*>(&staged.q[r][lane * Rows::kStride]);
  const auto* k4 = reinterpret_cast<const float4*>(&staged.k[r][lane * Rows::kStride]);
  float m4[kMine][4] = {}, n4[kMine][4] = {}, k[kKeys];  // chains side by side hide their latency
#pragma unroll
  for (int i = 0; i < kKeys / 4; ++i) {
    const float4 keys = k4[i], queries = q4[i];
    k[4 * i] = keys.x, k[4 * i + 1] = keys.y, k[4 * i + 2] = keys.z, k[4 * i + 3] = keys.w;
    const float q[4] = {queries.x, queries.y, queries.z, queries.w};
#pragma unroll
    for (int j = 0; j < 4; ++j) {
#pragma unroll
      for (int c = 0; c < kMine; ++c) {
        m4[c][j] = fmaf(state[c][4 * i + j], k[4 * i + j], m4[c][j]);
        n4[c][j] = fmaf(state[c][4 * i + j], q[j], n4[c][j]);
      }
    }
  }
  const float decay = staged.decay[r], beta = staged.beta[r], kq = staged.kq[r];
  float m[kMine], n[kMine];
#pragma unroll
  for (int c = 0; c < kMine; ++c) {
    m[c] = (m4[c][0] + m4[c][1]) + (m4[c][2] + m4[c][3]);
    n[c] = (n4[c][0] + n4[c][1]) + (n4[c][2] + n4[c][3]);
  }
#pragma unroll
  for (int step = 1; step < kLanes; step *= 2) {
#pragma unroll
    for (int c = 0; c < kMine; ++c) {
      m[c] += __shfl_xor_sync(~0u, m[c], step);
      n[c] += __shfl_xor_sync(~0u, n[c], step);
    }
  }
#pragma unroll
  for (int c = 0; c < kMine; ++c) {
    const float delta = beta * fmaf(-decay, m[c], staged.v[r][column + c * kColumns]);
#pragma unroll
    for (int i = 0; i < kKeys; ++i) state[c][i] = fmaf(k[i], delta, decay * state[c][i]);
    y[c] = fmaf(decay, n[c], delta * kq);
  }
}

// What the gated norm makes of y.
__device__ __forceinline__ uint16_t normed(float y, float scale, float weight, uint16_t z) {
  return bf16_of(y * scale * weight * silu_f32(f32_of(z)));
}

// The same for heads of 128 key and 128 value dims; with makes_norm the gated norm too, of at most
// kNormRows new rows a span.
inline constexpr int kNormRows = 16;
bool has_wide_heads(const DeltaCall& call);
void gated_delta_wide_cuda(const DeltaCall& call, bool makes_norm, CudaContext& context);

}  // namespace roost::cuda
