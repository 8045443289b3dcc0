// The CUDA kernels of gated_delta: the recurrence with the state in registers, then the gated norm.
#include <algorithm>
#include <vector>

#include "ops/gated_delta/gated_delta_rows.cuh"

namespace roost {
namespace {

using namespace cuda;

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
void launch_rows(const DeltaCall& call, CudaContext& context) {
  const int64_t n_tiles = (call.value_dim + kColumns - 1) / kColumns;
  launch_kernel(context, sm80_f32_gated_delta_rows<kKeys>,
                grid_of(context, call.n_spans * call.value_heads * n_tiles), kThreads, 0, call);
}

// The order of arithmetic depends on the dims alone: which dims a lane sums is part of it.
void launch_rows(const DeltaCall& call, bool makes_norm, CudaContext& context) {
  if (makes_norm || has_wide_heads(call)) {
    gated_delta_wide_cuda(call, makes_norm, context);
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
