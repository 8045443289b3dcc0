// The CUDA kernels of gated_delta for heads of 128 key and 128 value dims, the published
// geometries'. The code is short: a step of one row runs it once, from a cold instruction cache.
#include "device/cuda/cluster.cuh"
#include "ops/gated_delta/gated_delta_rows.cuh"

namespace roost::cuda {
namespace {

constexpr int kWideDim = 128;
constexpr int kWideKeys = kWideDim / kLanes;
constexpr int kNormBlocks = kWideDim / kColumns;  // of a head, a cluster then

// The next rows, on their way from memory while the staged ones are computed.
template <int kMine>
struct Fetched {
  static constexpr int kValues = kStagedRows * kMine * kColumns / kThreads;
  uint4 q, k;  // 8 dims of a row
  uint16_t v[kValues];
  float kq, beta, decay;
};

// Where value i of a thread's lies in a chunk of rows.
template <int kMine>
__device__ __forceinline__ int2 row_and_column(int i) {
  constexpr int kWidth = kMine * kColumns;
  return {int(threadIdx.x) / kWidth + i * (kThreads / kWidth), int(threadIdx.x) % kWidth};
}

template <int kMine>
__device__ __forceinline__ void fetch_rows(const DeltaCall& c, int64_t first, int n, int64_t head,
                                           int64_t first_column, Fetched<kMine>& to) {
  static_assert(kStagedRows * kWideDim / 8 == kThreads);
  const int64_t key_head = head / (c.value_heads / c.key_heads);
  const int row = min(int(threadIdx.x) / (kWideDim / 8), n - 1);
  const int64_t from =
      ((first + row) * c.key_heads + key_head) * kWideDim + threadIdx.x % (kWideDim / 8) * 8;
  to.q = *reinterpret_cast<const uint4*>(c.q + from);
  to.k = *reinterpret_cast<const uint4*>(c.k + from);
#pragma unroll
  for (int i = 0; i < Fetched<kMine>::kValues; ++i) {
    const int2 at = row_and_column<kMine>(i);
    to.v[i] =
        c.v[((first + min(at.x, n - 1)) * c.value_heads + head) * kWideDim + first_column + at.y];
  }
  const int64_t scalar_row = first + min(int(threadIdx.x) % kStagedRows, n - 1);
  to.kq = c.kq[scalar_row * c.key_heads + key_head];
  to.beta = c.beta[scalar_row * c.value_heads + head];
  to.decay = c.decay[scalar_row * c.value_heads + head];
}

__device__ __forceinline__ void store_f32(const uint4& bf16, float* to) {
  const uint32_t words[4] = {bf16.x, bf16.y, bf16.z, bf16.w};
#pragma unroll
  for (int i = 0; i < 2; ++i)
    reinterpret_cast<float4*>(to)[i] =
        make_float4(f32_of(uint16_t(words[2 * i])), f32_of(uint16_t(words[2 * i] >> 16)),
                    f32_of(uint16_t(words[2 * i + 1])), f32_of(uint16_t(words[2 * i + 1] >> 16)));
}

template <int kMine>
__device__ __forceinline__ void stage_fetched(const Fetched<kMine>& from,
                                              Staged<kWideKeys, kMine>& staged) {
  const int row = threadIdx.x / (kWideDim / 8), dim = threadIdx.x % (kWideDim / 8) * 8;
  const int to = dim / kWideKeys * Staged<kWideKeys>::kStride + dim % kWideKeys;
  store_f32(from.q, &staged.q[row][to]);
  store_f32(from.k, &staged.k[row][to]);
#pragma unroll
  for (int i = 0; i < Fetched<kMine>::kValues; ++i) {
    const int2 at = row_and_column<kMine>(i);
    staged.v[at.x][at.y] = f32_of(from.v[i]);
  }
  if (threadIdx.x >= kStagedRows) return;
  staged.kq[threadIdx.x] = from.kq;
  staged.beta[threadIdx.x] = from.beta;
  staged.decay[threadIdx.x] = from.decay;
}

// The norm of a span's new rows, whose y the blocks of the cluster hold, rounded; a warp a row. The
// order is that of sm80_gated_norm: a lane adds its columns of every block, then the lanes.
__device__ __forceinline__ void norm_rows(const DeltaCall& c, const DeltaSpan& span, int64_t head,
                                          const float (&y)[kNormRows][kColumns]) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  cluster_barrier();
  const int lane = threadIdx.x % 32, rank = rank_in_cluster(), col = rank * kColumns + lane;
#pragma unroll 1
  for (int r = threadIdx.x / 32; r < span.n_new; r += kThreads / 32) {
    float all[kNormBlocks], squares = 0;
#pragma unroll
    for (int b = 0; b < kNormBlocks; ++b) all[b] = read_of_rank(&y[r][lane], b);
    const int64_t at = ((span.first_row + r) * int64_t(c.value_heads) + head) * kWideDim + col;
    const uint16_t z = c.z[at];
#pragma unroll
    for (int b = 0; b < kNormBlocks; ++b) squares = fmaf(all[b], all[b], squares);
    const float scale = inverse_sqrt_f32(warp_sum(squares) / float(kWideDim) + c.eps);
    c.out[at] = normed(y[r][lane], scale, c.norm_weight[col], z);
  }
  cluster_barrier();  // all have read
#endif
}

// As sm80_f32_gated_delta_rows, a thread kMine columns; with kNorm the blocks of a head are a
// cluster, and it makes the norm too.
template <bool kNorm, int kMine>
__global__ void __launch_bounds__(kThreads) sm80_f32_gated_delta_wide(DeltaCall c) {
  static_assert(!kNorm || kMine == 1);
  constexpr int kBlocks = kWideDim / (kMine * kColumns);  // of a head
  wait_for_inputs();
  __shared__ Staged<kWideKeys, kMine> staged[2];
  __shared__ float y_rows[kNorm ? kNormRows : 1][kColumns];
  const int lane = threadIdx.x % kLanes, column = threadIdx.x / kLanes;
  const int64_t n_items = c.n_spans * c.value_heads * kBlocks;
  for (int64_t item = blockIdx.x; item < n_items; item += gridDim.x) {
    const DeltaSpan span = c.spans[item / kBlocks / c.value_heads];
    const int64_t head = item / kBlocks % c.value_heads;
    const int64_t first_column = item % kBlocks * kMine * kColumns;
    float* place = c.state + (span.slot * int64_t(c.value_heads) + head) * (kWideDim * kWideDim) +
                   lane * (kWideKeys * kWideDim) + first_column + column;
    const int n_packed = span.n_replay + span.n_new;
    Fetched<kMine> next;
    if (n_packed > 0)
      fetch_rows(c, span.first_packed, min(kStagedRows, n_packed), head, first_column, next);
    float state[kMine][kWideKeys], y[kMine];
#pragma unroll
    for (int i = 0; i < kMine * kWideKeys; ++i)
      state[i / kWideKeys][i % kWideKeys] =
          place[i % kWideKeys * kWideDim + i / kWideKeys * kColumns];
    uint16_t* out =
        c.out + (span.first_row * int64_t(c.value_heads) + head) * kWideDim + first_column + column;
    int buffer = 0;
    for (int begin = 0; begin < n_packed;) {
      // Rows up to where the state is stored come in chunks of their own.
      const int end = begin < span.store_after ? span.store_after : n_packed;
      const int n = min(kStagedRows, end - begin), n_left = n_packed - begin - n;
      stage_fetched(next, staged[buffer]);
      __syncthreads();  // also: the buffer after the next one has been read
      const int next_end = begin + n < span.store_after ? span.store_after : n_packed;
      if (n_left > 0)
        fetch_rows(c, span.first_packed + begin + n, min(kStagedRows, next_end - begin - n), head,
                   first_column, next);
#pragma unroll kMine
      for (int r = 0; r < n; ++r) {
        recur(staged[buffer], r, column, lane, state, y);
        const int new_row = begin + r - span.n_replay;
        if (lane > 0 || new_row < 0) continue;
        if constexpr (kNorm) {
          y_rows[new_row][column] = rounded_to_bf16(y[0]);
        } else {
#pragma unroll
          for (int m = 0; m < kMine; ++m)
            out[int64_t(new_row) * c.value_heads * kWideDim + m * kColumns] = bf16_of(y[m]);
        }
      }
      begin += n;
      buffer ^= 1;
      if (begin != span.store_after) continue;
#pragma unroll
      for (int i = 0; i < kMine * kWideKeys; ++i)
        place[i % kWideKeys * kWideDim + i / kWideKeys * kColumns] =
            state[i / kWideKeys][i % kWideKeys];
    }
    if constexpr (kNorm) {
      norm_rows(c, span, head, y_rows);
    } else {
      __syncthreads();  // the rows have been read
    }
  }
}

}  // namespace

bool has_wide_heads(const DeltaCall& c) {
  return c.key_dim == kWideDim && c.value_dim == kWideDim &&
         ((reinterpret_cast<uintptr_t>(c.q) | reinterpret_cast<uintptr_t>(c.k)) & 15) == 0;
}

void gated_delta_wide_cuda(const DeltaCall& call, bool makes_norm, CudaContext& context) {
  const int64_t n_heads = call.n_spans * call.value_heads;
  if (makes_norm) {
    launch_clusters(context, sm80_f32_gated_delta_wide<true, 1>,
                    kNormBlocks * grid_of(context, n_heads), kThreads, 0, kNormBlocks, call);
    return;
  }
  // Two columns a thread: what it reads of keys and queries in shared memory serves both.
  launch_kernel(context, sm80_f32_gated_delta_wide<false, 2>,
                grid_of(context, n_heads * kNormBlocks / 2), kThreads, 0, call);
}

}  // namespace roost::cuda
