// The CUDA kernels of gated_delta: the recurrence with the state in registers, then the gated norm.
#include <algorithm>
#include <vector>

#include "device/cuda/cluster.cuh"
#include "ops/launch.cuh"

namespace roost {
namespace {

using namespace cuda;

constexpr int kThreads = 128;
constexpr int kLanes = 4;                    // threads of one value column
constexpr int kColumns = kThreads / kLanes;  // value columns of a block
constexpr int kStagedRows = 8;               // rows whose inputs lie in shared memory at a time

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
template <int kKeys>
struct Staged {
  static constexpr int kStride = kKeys + 4;
  alignas(16) float q[kStagedRows][kLanes * kStride], k[kStagedRows][kLanes * kStride];
  float v[kStagedRows][kColumns];
  float kq[kStagedRows], beta[kStagedRows], decay[kStagedRows];
};

// The next rows, on their way from memory while the staged ones are computed.
template <int kKeys>
struct Fetched {
  static constexpr int kRuns = kStagedRows * kLanes * kKeys / 8 / kThreads;  // of 8 dims
  static_assert(kRuns >= 1);
  uint4 q[kRuns], k[kRuns];
  uint16_t v[kStagedRows * kColumns / kThreads];
  float kq, beta, decay;
};

// Dims of whole runs of 16 bytes; narrower heads are staged without fetching ahead.
template <int kKeys>
__device__ __forceinline__ bool is_wide(const DeltaCall& c) {
  return kKeys >= 32 && c.key_dim == kLanes * kKeys &&
         ((reinterpret_cast<uintptr_t>(c.q) | reinterpret_cast<uintptr_t>(c.k)) & 15) == 0;
}

template <int kKeys>
__device__ __forceinline__ void fetch_rows(const DeltaCall& c, int64_t first, int n, int64_t head,
                                           int64_t first_column, Fetched<kKeys>& to) {
  const int64_t key_head = head / (c.value_heads / c.key_heads);
#pragma unroll
  for (int i = 0; i < Fetched<kKeys>::kRuns; ++i) {
    const int run = threadIdx.x + i * kThreads, r = run / (kLanes * kKeys / 8);
    if (r >= n) continue;
    const int64_t from =
        ((first + r) * c.key_heads + key_head) * c.key_dim + run % (kLanes * kKeys / 8) * 8;
    to.q[i] = *reinterpret_cast<const uint4*>(c.q + from);
    to.k[i] = *reinterpret_cast<const uint4*>(c.k + from);
  }
#pragma unroll
  for (int i = 0; i < kStagedRows * kColumns / kThreads; ++i) {
    const int r = threadIdx.x / kColumns + i * (kThreads / kColumns);
    const int64_t col = first_column + threadIdx.x % kColumns;
    to.v[i] = r < n && col < c.value_dim
                  ? c.v[((first + r) * c.value_heads + head) * c.value_dim + col]
                  : uint16_t(0);
  }
  if (int(threadIdx.x) >= n) return;
  const int64_t row = first + threadIdx.x;
  to.kq = c.kq[row * c.key_heads + key_head];
  to.beta = c.beta[row * c.value_heads + head];
  to.decay = c.decay[row * c.value_heads + head];
}

__device__ __forceinline__ void store_f32(const uint4& bf16, float* to) {
  const uint32_t words[4] = {bf16.x, bf16.y, bf16.z, bf16.w};
#pragma unroll
  for (int i = 0; i < 2; ++i)
    reinterpret_cast<float4*>(to)[i] =
        make_float4(f32_of(uint16_t(words[2 * i])), f32_of(uint16_t(words[2 * i] >> 16)),
                    f32_of(uint16_t(words[2 * i + 1])), f32_of(uint16_t(words[2 * i + 1] >> 16)));
}

template <int kKeys>
__device__ __forceinline__ void stage_fetched(const Fetched<kKeys>& from, int n,
                                              Staged<kKeys>& staged) {
#pragma unroll
  for (int i = 0; i < Fetched<kKeys>::kRuns; ++i) {
    const int run = threadIdx.x + i * kThreads, r = run / (kLanes * kKeys / 8);
    const int dim = run % (kLanes * kKeys / 8) * 8;
    if (r >= n) continue;
    const int to = dim / kKeys * Staged<kKeys>::kStride + dim % kKeys;
    store_f32(from.q[i], &staged.q[r][to]);
    store_f32(from.k[i], &staged.k[r][to]);
  }
#pragma unroll
  for (int i = 0; i < kStagedRows * kColumns / kThreads; ++i)
    staged.v[threadIdx.x / kColumns + i * (kThreads / kColumns)][threadIdx.x % kColumns] =
        f32_of(from.v[i]);
  if (int(threadIdx.x) >= n) return;
  staged.kq[threadIdx.x] = from.kq;
  staged.beta[threadIdx.x] = from.beta;
  staged.decay[threadIdx.x] = from.decay;
}

template <int kKeys>
__device__ __forceinline__ void stage_rows(const DeltaCall& c, int64_t first, int n, int64_t head,
                                           int64_t first_column, Staged<kKeys>& staged) {
  const int64_t key_head = head / (c.value_heads / c.key_heads);
  for (int at = threadIdx.x; at < n * kLanes * kKeys; at += kThreads) {
    const int r = at / (kLanes * kKeys), i = at % (kLanes * kKeys);
    const int64_t from = ((first + r) * c.key_heads + key_head) * c.key_dim + i;
    const int to = i / kKeys * Staged<kKeys>::kStride + i % kKeys;
    staged.q[r][to] = i < c.key_dim ? f32_of(c.q[from]) : 0.0f;
    staged.k[r][to] = i < c.key_dim ? f32_of(c.k[from]) : 0.0f;
  }
  for (int at = threadIdx.x; at < n * kColumns; at += kThreads) {
    const int r = at / kColumns, col = at % kColumns;
    const int64_t from = ((first + r) * c.value_heads + head) * c.value_dim + first_column + col;
    staged.v[r][col] = first_column + col < c.value_dim ? f32_of(c.v[from]) : 0.0f;
  }
  if (threadIdx.x < n) {
    const int64_t row = first + threadIdx.x;
    staged.kq[threadIdx.x] = c.kq[row * c.key_heads + key_head];
    staged.beta[threadIdx.x] = c.beta[row * c.value_heads + head];
    staged.decay[threadIdx.x] = c.decay[row * c.value_heads + head];
  }
}

// One row for one value column; the lanes of the column hold kKeys neighbouring key dims each, and
// absent dims are zeros, which add exactly nothing. Returns y.
template <int kKeys>
__device__ __forceinline__ float recur(const Staged<kKeys>& staged, int r, int column, int lane,
                                       float (&state)[kKeys]) {
  const auto* q4 = reinterpret_cast<const float4*>(&staged.q[r][lane * Staged<kKeys>::kStride]);
  const auto* k4 = reinterpret_cast<const float4*>(&staged.k[r][lane * Staged<kKeys>::kStride]);
  float m4[4] = {}, n4[4] = {}, k[kKeys];  // chains side by side hide the latency of one
#pragma unroll
  for (int i = 0; i < kKeys / 4; ++i) {
    const float4 keys = k4[i], queries = q4[i];
    k[4 * i] = keys.x, k[4 * i + 1] = keys.y, k[4 * i + 2] = keys.z, k[4 * i + 3] = keys.w;
    const float q[4] = {queries.x, queries.y, queries.z, queries.w};
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      m4[j] = fmaf(state[4 * i + j], k[4 * i + j], m4[j]);
      n4[j] = fmaf(state[4 * i + j], q[j], n4[j]);
    }
  }
  float m = (m4[0] + m4[1]) + (m4[2] + m4[3]), n = (n4[0] + n4[1]) + (n4[2] + n4[3]);
#pragma unroll
  for (int step = 1; step < kLanes; step *= 2) {
    m += __shfl_xor_sync(~0u, m, step);
    n += __shfl_xor_sync(~0u, n, step);
  }
  const float decay = staged.decay[r];
  const float delta = staged.beta[r] * fmaf(-decay, m, staged.v[r][column]);
#pragma unroll
  for (int i = 0; i < kKeys; ++i) state[i] = fmaf(k[i], delta, decay * state[i]);
  return fmaf(decay, n, delta * staged.kq[r]);
}

// What the gated norm makes of y.
__device__ __forceinline__ uint16_t normed(float y, float scale, float weight, uint16_t z) {
  return bf16_of(y * scale * weight * silu_f32(f32_of(z)));
}

constexpr int kNormRows = 16;   // new rows of a span whose norm the cluster makes
constexpr int kNormBlocks = 4;  // of a head with kNormBlocks · kColumns value columns

// The norm of a span's new rows, whose y the blocks of the cluster hold, rounded; a warp a row. The
// order is that of sm80_gated_norm: a lane adds its columns of every block, then the lanes.
__device__ __forceinline__ void norm_rows(const DeltaCall& c, const DeltaSpan& span, int64_t head,
                                          const float (&y)[kNormRows][kColumns]) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  cluster_barrier();
  const int lane = threadIdx.x % 32, rank = rank_in_cluster();
  for (int r = threadIdx.x / 32; r < span.n_new; r += kThreads / 32) {
    float all[kNormBlocks], squares = 0;
#pragma unroll
    for (int b = 0; b < kNormBlocks; ++b) all[b] = read_of_rank(&y[r][lane], b);
#pragma unroll
    for (int b = 0; b < kNormBlocks; ++b) squares = fmaf(all[b], all[b], squares);
    const float scale = inverse_sqrt_f32(warp_sum(squares) / float(c.value_dim) + c.eps);
    const int col = rank * kColumns + lane;
    const int64_t at = ((span.first_row + r) * int64_t(c.value_heads) + head) * c.value_dim + col;
    c.out[at] = normed(y[r][lane], scale, c.norm_weight[col], c.z[at]);
  }
  cluster_barrier();  // all have read
#endif
}

// A block runs 32 value columns of one head through a span's rows. y goes to out, rounded, and the
// norm follows in its own kernel; or, with kNorm, the blocks of a head are a cluster and make it
// themselves. kKeys: a quarter of Dk, rounded up to what is compiled.
template <int kKeys, bool kNorm>
__global__ void __launch_bounds__(kThreads) sm80_f32_gated_delta_rows(DeltaCall c) {
  constexpr int kFetchedKeys = kKeys >= 32 ? kKeys : 32;
  wait_for_inputs();
  __shared__ Staged<kKeys> staged;
  __shared__ float y_rows[kNorm ? kNormRows : 1][kColumns];
  const int lane = threadIdx.x % kLanes, column = threadIdx.x / kLanes;
  const int64_t n_tiles = (c.value_dim + kColumns - 1) / kColumns;
  const int64_t n_items = c.n_spans * c.value_heads * n_tiles;
  for (int64_t item = blockIdx.x; item < n_items; item += gridDim.x) {
    const DeltaSpan span = c.spans[item / n_tiles / c.value_heads];
    const int64_t head = item / n_tiles % c.value_heads;
    const int64_t first_column = item % n_tiles * kColumns, col = first_column + column;
    const bool is_mine = col < c.value_dim;
    float* place = c.state + (span.slot * int64_t(c.value_heads) + head) * c.key_dim * c.value_dim +
                   int64_t(lane) * kKeys * c.value_dim + col;
    const int n_dims = min(max(c.key_dim - lane * kKeys, 0), kKeys);
    float state[kKeys];
#pragma unroll
    for (int i = 0; i < kKeys; ++i)
      state[i] = is_mine && i < n_dims ? place[int64_t(i) * c.value_dim] : 0.0f;
    const int n_packed = span.n_replay + span.n_new;
    [[maybe_unused]] Fetched<kFetchedKeys> next;
    const bool fetches = is_wide<kKeys>(c);
    if (fetches)
      fetch_rows(c, span.first_packed, min(kStagedRows, n_packed), head, first_column, next);
    for (int begin = 0; begin < n_packed; begin += kStagedRows) {
      const int n = min(kStagedRows, n_packed - begin), n_left = n_packed - begin - n;
      __syncthreads();  // the rows before have been read
      if (fetches) {
        if constexpr (kKeys == kFetchedKeys) stage_fetched(next, n, staged);
      } else {
        stage_rows<kKeys>(c, span.first_packed + begin, n, head, first_column, staged);
      }
      __syncthreads();
      if (fetches && n_left > 0)
        fetch_rows(c, span.first_packed + begin + n, min(kStagedRows, n_left), head, first_column,
                   next);
#pragma unroll 2
      for (int r = 0; r < n; ++r) {
        const int p = begin + r;
        const float y = recur<kKeys>(staged, r, column, lane, state);
        if (kNorm && lane == 0 && p >= span.n_replay)
          y_rows[p - span.n_replay][column] = rounded_to_bf16(y);
        if (!kNorm && is_mine && lane == 0 && p >= span.n_replay)
          c.out[((span.first_row + p - span.n_replay) * int64_t(c.value_heads) + head) *
                    c.value_dim +
                col] = bf16_of(y);
        if (p + 1 != span.store_after || !is_mine) continue;
#pragma unroll
        for (int i = 0; i < kKeys; ++i) {
          if (i < n_dims) place[int64_t(i) * c.value_dim] = state[i];
        }
      }
    }
    if constexpr (kNorm) norm_rows(c, span, head, y_rows);
  }
}

// A warp a row and head, in place over y.
__global__ void sm80_gated_norm(uint16_t* out, const uint16_t* z, const float* weight,
                                const int32_t* rows, int64_t n_rows, int n_heads, int dim,
                                float eps) {
  wait_for_inputs();
  const int lane = threadIdx.x % 32, n_warps = kThreads / 32;
  for (int64_t item = blockIdx.x * int64_t(n_warps) + threadIdx.x / 32; item < n_rows * n_heads;
       item += int64_t(gridDim.x) * n_warps) {
    const int64_t at = (rows[item / n_heads] * int64_t(n_heads) + item % n_heads) * dim;
    float squares = 0;
    for (int i = lane; i < dim; i += 32)
      squares = fmaf(f32_of(out[at + i]), f32_of(out[at + i]), squares);
    const float scale = inverse_sqrt_f32(warp_sum(squares) / float(dim) + eps);
    for (int i = lane; i < dim; i += 32)
      out[at + i] = normed(f32_of(out[at + i]), scale, weight[i], z[at + i]);
  }
}

template <int kKeys>
void launch_rows(const DeltaCall& call, bool makes_norm, CudaContext& context) {
  const int64_t n_heads = call.n_spans * call.value_heads;
  if (makes_norm) {
    launch_clusters(context, sm80_f32_gated_delta_rows<kKeys, true>,
                    kNormBlocks * grid_of(context, n_heads), kThreads, 0, kNormBlocks, call);
    return;
  }
  const int64_t n_tiles = (call.value_dim + kColumns - 1) / kColumns;
  launch_kernel(context, sm80_f32_gated_delta_rows<kKeys, false>,
                grid_of(context, n_heads * n_tiles), kThreads, 0, call);
}

}  // namespace

void gated_delta_cuda(const GatedDelta& op, CudaContext& context) {
  if (op.spans.empty()) return;
  DeltaCall call{.q = bf16_data(op.q), .k = bf16_data(op.k), .v = bf16_data(op.v)};
  call.kq = f32_data(op.kq);
  call.beta = f32_data(op.beta);
  call.decay = f32_data(op.decay);
  call.z = bf16_data(op.z);
  call.norm_weight = f32_data(op.norm_weight);
  call.eps = op.eps;
  call.state = f32_data(op.state);
  call.out = bf16_data(op.out);
  call.spans = context.push(op.spans);
  call.n_spans = static_cast<int64_t>(op.spans.size());
  call.key_heads = static_cast<int>(op.q.dim(1));
  call.key_dim = static_cast<int>(op.q.dim(2));
  call.value_heads = static_cast<int>(op.v.dim(1));
  call.value_dim = static_cast<int>(op.v.dim(2));
  // Few rows have their norm made at once; the order of arithmetic is the same.
  const bool makes_norm = has_warpgroup_products() && call.value_dim == kNormBlocks * kColumns &&
                          std::all_of(op.spans.begin(), op.spans.end(), [](const DeltaSpan& span) {
                            return span.n_new <= kNormRows;
                          });
  // By Dk alone: which dims a lane sums is part of the order of arithmetic.
  if (call.key_dim <= 16) {
    launch_rows<4>(call, makes_norm, context);
  } else if (call.key_dim <= 64) {
    launch_rows<16>(call, makes_norm, context);
  } else if (call.key_dim <= 128) {
    launch_rows<32>(call, makes_norm, context);
  } else {
    launch_rows<64>(call, makes_norm, context);
  }
  if (makes_norm) return;
  std::vector<int32_t> rows;
  for (const DeltaSpan& span : op.spans) {
    for (int32_t r = 0; r < span.n_new; ++r) rows.push_back(span.first_row + r);
  }
  if (rows.empty()) return;
  const auto n_rows = static_cast<int64_t>(rows.size());
  const int64_t n_blocks = (n_rows * call.value_heads + kThreads / 32 - 1) / (kThreads / 32);
  launch_kernel(context, sm80_gated_norm, grid_of(context, n_blocks), kThreads, 0, call.out, call.z,
                call.norm_weight, context.push(std::span<const int32_t>(rows)), n_rows,
                call.value_heads, call.value_dim, op.eps);
}

}  // namespace roost
