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
template <int kKeys, int kMine = 1>
struct Staged {
  static constexpr int kStride = kKeys + 4;
  alignas(16) float q[kStagedRows][kLanes * kStride], k[kStagedRows][kLanes * kStride];
  float v[kStagedRows][kMine * kColumns];
  float kq[kStagedRows], beta[kStagedRows], decay[kStagedRows];
};

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

// A block runs 32 value columns of one head through a span's rows. y goes to out, rounded; the norm
// follows in its own kernel. kKeys: a quarter of Dk, rounded up to what is compiled.
template <int kKeys>
__global__ void __launch_bounds__(kThreads) sm80_f32_gated_delta_rows(DeltaCall c) {
  wait_for_inputs();
  __shared__ Staged<kKeys> staged;
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
    float state[1][kKeys], y[1];
#pragma unroll
    for (int i = 0; i < kKeys; ++i)
      state[0][i] = is_mine && i < n_dims ? place[int64_t(i) * c.value_dim] : 0.0f;
    const int n_packed = span.n_replay + span.n_new;
    for (int begin = 0; begin < n_packed; begin += kStagedRows) {
      const int n = min(kStagedRows, n_packed - begin);
      __syncthreads();  // the rows before have been read
      stage_rows<kKeys>(c, span.first_packed + begin, n, head, first_column, staged);
      __syncthreads();
      for (int r = 0; r < n; ++r) {
        const int p = begin + r;
        recur(staged, r, column, lane, state, y);
        if (is_mine && lane == 0 && p >= span.n_replay)
          c.out[((span.first_row + p - span.n_replay) * int64_t(c.value_heads) + head) *
                    c.value_dim +
                col] = bf16_of(y[0]);
        if (p + 1 != span.store_after || !is_mine) continue;
#pragma unroll
        for (int i = 0; i < kKeys; ++i) {
          if (i < n_dims) place[int64_t(i) * c.value_dim] = state[0][i];
        }
      }
    }
  }
}

// ---- heads of 128 key and 128 value dims, the published geometries'. The code is short: a step of
// one row runs it once, from a cold instruction cache.
constexpr int kWideDim = 128;
constexpr int kWideKeys = kWideDim / kLanes;
constexpr int kNormRows = 16;                     // new rows of a span whose norm is made at once
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
#pragma unroll 1
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

bool has_wide_heads(const DeltaCall& c) {
  return c.key_dim == kWideDim && c.value_dim == kWideDim &&
         ((reinterpret_cast<uintptr_t>(c.q) | reinterpret_cast<uintptr_t>(c.k)) & 15) == 0;
}

template <int kKeys>
void launch_rows(const DeltaCall& call, CudaContext& context) {
  const int64_t n_tiles = (call.value_dim + kColumns - 1) / kColumns;
  launch_kernel(context, sm80_f32_gated_delta_rows<kKeys>,
                grid_of(context, call.n_spans * call.value_heads * n_tiles), kThreads, 0, call);
}

// The order of arithmetic depends on the dims alone: which dims a lane sums is part of it.
void launch_rows(const DeltaCall& call, bool makes_norm, CudaContext& context) {
  const int64_t n_heads = call.n_spans * call.value_heads;
  if (makes_norm) {
    launch_clusters(context, sm80_f32_gated_delta_wide<true, 1>,
                    kNormBlocks * grid_of(context, n_heads), kThreads, 0, kNormBlocks, call);
  } else if (has_wide_heads(call)) {
    // Two columns a thread: what it reads of keys and queries in shared memory serves both.
    launch_kernel(context, sm80_f32_gated_delta_wide<false, 2>,
                  grid_of(context, n_heads * kNormBlocks / 2), kThreads, 0, call);
  } else if (call.key_dim <= 16) {
    launch_rows<4>(call, context);
  } else if (call.key_dim <= 64) {
    launch_rows<16>(call, context);
  } else if (call.key_dim <= 128) {
    launch_rows<32>(call, context);
  } else {
    launch_rows<64>(call, context);
  }
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
  // Few rows have their norm made at once.
  const bool makes_norm = has_warpgroup_products() && has_wide_heads(call) &&
                          std::all_of(op.spans.begin(), op.spans.end(), [](const DeltaSpan& span) {
                            return span.n_new <= kNormRows;
                          });
  launch_rows(call, makes_norm, context);
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
