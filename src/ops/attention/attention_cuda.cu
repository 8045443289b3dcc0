// The CUDA kernels of attention, plain: a block attends with up to 16 heads of one row to one split
// of the keys; a second kernel merges the splits of a row in ascending order and applies the gate.
//
// A row is never in one product with another, so keys behind it need no mask inside the products:
// values behind it are zeros in shared memory, whatever their slots hold.
#include <vector>

#include "device/cuda/copy.cuh"
#include "device/cuda/mma.cuh"
#include "ops/attention/attention_many.cuh"
#include "ops/launch.cuh"

namespace roost {
namespace {

using namespace cuda;

constexpr int kThreads = 128;
constexpr int kWarps = kThreads / 32;
constexpr int kHeads = 16;  // of one product; absent ones are zeros
constexpr int kScoreStride = kPageTokens + 4;
constexpr int kWeightStride = kPageTokens + 8;  // in bf16: fragments of 8 rows meet no bank twice

// Dynamic shared memory, by rows that are 8 values longer than D: fragments meet no bank twice.
struct Shared {
  uint16_t *q, *k, *v, *weights;  // [16][D + 8], twice [64][D + 8], [16][kWeightStride]
  float *scores, *factor;  // [16][kScoreStride], [16]: what the sums so far are multiplied by
  float* maximum;          // [16]

  __device__ Shared(std::byte* base, int dim) {
    q = reinterpret_cast<uint16_t*>(base);
    k = q + kHeads * (dim + 8);
    v = k + kPageTokens * (dim + 8);
    weights = v + kPageTokens * (dim + 8);
    scores = reinterpret_cast<float*>(weights + kHeads * kWeightStride);
    factor = scores + kHeads * kScoreStride;
    maximum = factor + kHeads;
  }
};

size_t shared_bytes(int64_t dim) {
  return static_cast<size_t>((kHeads + 2 * kPageTokens) * (dim + 8) + kHeads * kWeightStride) * 2 +
         static_cast<size_t>(kHeads) * (kScoreStride + 2) * 4;
}

// Rows [first, first + n) of a [.., dim] list in memory to shared rows, zeros up to n_all.
__device__ __forceinline__ void load_rows(const uint16_t* from, int n, int n_all, int dim,
                                          uint16_t* to) {
#pragma unroll 1
  for (int piece = threadIdx.x; piece < n_all * (dim / 8); piece += kThreads) {
    const int row = piece / (dim / 8), col = piece % (dim / 8) * 8;
    uint4 values = make_uint4(0, 0, 0, 0);
    if (row < n) values = *reinterpret_cast<const uint4*>(from + int64_t(row) * dim + col);
    *reinterpret_cast<uint4*>(to + row * (dim + 8) + col) = values;
  }
}

// The same without waiting: one group of copies of the thread.
__device__ __forceinline__ void copy_rows(const uint16_t* from, int n, int dim, uint16_t* to) {
#pragma unroll 4
  for (int piece = threadIdx.x; piece < kPageTokens * (dim / 8); piece += kThreads) {
    const int row = piece / (dim / 8), col = piece % (dim / 8) * 8;
    copy_16(to + row * (dim + 8) + col, from + int64_t(min(row, n - 1)) * dim + col, row < n);
  }
  copy_commit();
}

__device__ __forceinline__ uint32_t pair_at(const uint16_t* from) {
  return *reinterpret_cast<const uint32_t*>(from);
}

// scores[head][key] of the tile; a warp takes 16 of its 64 keys.
__device__ __forceinline__ void score(const AttentionCall& c, const Shared& s) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, quad = lane % 4;
  const int first_key = warp * 16;
  const uint16_t* a_row = s.q + g * (c.dim + 8) + 2 * quad;
  const uint16_t* b_row = s.k + (first_key + g) * (c.dim + 8) + 2 * quad;
  float sums[2][4] = {};  // of keys g and g + 8: two chains, so that neither waits for itself
#pragma unroll 4
  for (int k = 0; k < c.dim; k += 16) {
    const uint32_t a[4] = {pair_at(a_row + k), pair_at(a_row + 8 * (c.dim + 8) + k),
                           pair_at(a_row + k + 8), pair_at(a_row + 8 * (c.dim + 8) + k + 8)};
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const uint16_t* b_from = b_row + half * 8 * (c.dim + 8) + k;
      const uint32_t b[2] = {pair_at(b_from), pair_at(b_from + 8)};
      mma_m16n8k16(sums[half], a, b);
    }
  }
#pragma unroll
  for (int half = 0; half < 2; ++half)
#pragma unroll
    for (int i = 0; i < 4; ++i)
      s.scores[(g + i / 2 * 8) * kScoreStride + first_key + half * 8 + 2 * quad + i % 2] =
          sums[half][i] * c.score_scale;
}

// The running maximum over the first n_keys scores of a head, its factor, and the head's weights
// r(2^(s - m)). Eight neighbouring threads take a head.
__device__ __forceinline__ void weigh(const Shared& s, int n_keys) {
  const int head = threadIdx.x / 8, first = threadIdx.x % 8;
  const float* scores = s.scores + head * kScoreStride;
  float maximum = -INFINITY;
#pragma unroll
  for (int key = first; key < kPageTokens; key += 8)
    maximum = key < n_keys ? fmaxf(maximum, scores[key]) : maximum;
#pragma unroll
  for (int step = 4; step > 0; step /= 2)
    maximum = fmaxf(maximum, __shfl_xor_sync(~0u, maximum, step));
  const float old = s.maximum[head];
  maximum = fmaxf(maximum, old);
  __syncwarp();
  if (first == 0) {
    s.maximum[head] = maximum;
    s.factor[head] = exp2_f32(old - maximum);
  }
#pragma unroll
  for (int key = first; key < kPageTokens; key += 8)
    s.weights[head * kWeightStride + key] =
        key < n_keys ? bf16_of(exp2_f32(scores[key] - maximum)) : uint16_t(0);
}

// O and, as if one more column of the values were ones, the sum of the weights.
template <int kTiles>
struct Totals {
  float o[kTiles][4], sum[4];
};

__device__ __forceinline__ void rescale(float (&sums)[4], const float (&factor)[2]) {
  sums[0] *= factor[0];
  sums[1] *= factor[0];
  sums[2] *= factor[1];
  sums[3] *= factor[1];
}

// totals = totals·factor + weights·values; a warp takes the dim tiles warp, warp + 4, ….
template <int kTiles>
__device__ __forceinline__ void gather(const Shared& s, int dim, Totals<kTiles>& totals) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, quad = lane % 4;
  const float factor[2] = {s.factor[g], s.factor[g + 8]};
  rescale(totals.sum, factor);
#pragma unroll
  for (int j = 0; j < kTiles; ++j) rescale(totals.o[j], factor);
  const uint16_t* a_row = s.weights + g * kWeightStride + 2 * quad;
#pragma unroll
  for (int k = 0; k < kPageTokens; k += 16) {
    const uint32_t a[4] = {pair_at(a_row + k), pair_at(a_row + 8 * kWeightStride + k),
                           pair_at(a_row + k + 8), pair_at(a_row + 8 * kWeightStride + k + 8)};
    const uint32_t ones[2] = {0x3F803F80u, 0x3F803F80u};
    mma_m16n8k16(totals.sum, a, ones);
#pragma unroll
    for (int j = 0; j < kTiles; j += 2) {  // of both tiles, keys k to k + 7 and the eight behind
      const int column = (warp + j * kWarps) * 8;
      if (column >= dim) continue;
      const int of_lane = min(column + lane / 16 * kWarps * 8, dim - 8);
      uint32_t b[4];
      load_matrices_transposed(b, s.v + (k + lane % 16) * (dim + 8) + of_lane);
      mma_m16n8k16(totals.o[j], a, {b[0], b[1]});
      if (column + kWarps * 8 < dim) mma_m16n8k16(totals.o[j + 1], a, {b[2], b[3]});
    }
  }
}

template <int kTiles>
__device__ __forceinline__ void store_partial(const AttentionCall& c, const Shared& s,
                                              const Totals<kTiles>& totals, int64_t first_partial,
                                              int n_live) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, quad = lane % 4;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int head = g + i / 2 * 8;
    if (head >= n_live) continue;
    float* partial = c.partials + (first_partial + head) * (c.dim + 2);
#pragma unroll
    for (int j = 0; j < kTiles; ++j) {
      const int column = (warp + j * kWarps) * 8;
      if (column < c.dim) partial[column + 2 * quad + i % 2] = totals.o[j][i];
    }
    if (warp == 0 && quad == 0 && i % 2 == 0) {
      partial[c.dim] = s.maximum[head];
      partial[c.dim + 1] = totals.sum[i];
    }
  }
}

// kTiles · 4 tiles of 8 dims cover D.
template <int kTiles>
__global__ void __launch_bounds__(kThreads) sm80_bf16_attention_split(AttentionCall c) {
  wait_for_inputs();
  extern __shared__ uint4 dynamic_shared[];
  const Shared s(reinterpret_cast<std::byte*>(dynamic_shared), c.dim);
  const int n_groups = c.kv_heads * c.n_head_tiles, heads_per_kv = c.n_heads / c.kv_heads;
  const int64_t item = c.first_item + blockIdx.x;
  const int64_t r = item / n_groups / c.n_splits_max;
  const RowPlace place = c.rows[r];
  const int split = int(item / n_groups % c.n_splits_max), group = int(item % n_groups);
  const int kv_head = group / c.n_head_tiles, first_head = group % c.n_head_tiles * kHeads;
  const int n_live = min(kHeads, heads_per_kv - first_head);
  const int64_t head = int64_t(kv_head) * heads_per_kv + first_head;
  load_rows(c.q + (place.row * int64_t(c.n_heads) + head) * c.dim, n_live, kHeads, c.dim, s.q);
  if (threadIdx.x < kHeads) s.maximum[threadIdx.x] = -INFINITY;
  Totals<kTiles> totals = {};
  const int per_split = keys_per_split_of(place.position);
  // A split behind the row's last has no keys; its partial is never read.
  const int end = min((split + 1) * per_split, place.position + 1);
  const auto place_of = [&](int key) {
    const int64_t page = c.pages[place.first_page + key / kPageTokens];
    return (page * c.kv_heads + kv_head) * kPageTokens * c.dim;
  };
  const int first_key = split * per_split;
  if (first_key < end)
    copy_rows(c.k_pages + place_of(first_key), min(kPageTokens, end - first_key), c.dim, s.k);
  for (int key = first_key; key < end; key += kPageTokens) {
    const int n_keys = min(kPageTokens, end - key), next = key + kPageTokens;
    __syncthreads();  // the values before have been multiplied; queries are there
    copy_rows(c.v_pages + place_of(key), n_keys, c.dim, s.v);
    copy_wait<1>();
    __syncthreads();
    score(c, s);
    __syncthreads();
    // The next keys come while this tile is weighed and gathered.
    if (next < end) {
      copy_rows(c.k_pages + place_of(next), min(kPageTokens, end - next), c.dim, s.k);
    } else {
      copy_commit();
    }
    weigh(s, n_keys);
    copy_wait<1>();
    __syncthreads();
    gather<kTiles>(s, c.dim, totals);
  }
  __syncthreads();
  store_partial<kTiles>(c, s, totals, (r * c.n_splits_max + split) * c.n_heads + head, n_live);
}

// A warp a row and head: splits merged in ascending order, then the gate.
__global__ void __launch_bounds__(kThreads) sm80_attention_merge(AttentionCall c) {
  wait_for_inputs();
  const int lane = threadIdx.x % 32;
  for (int64_t item = blockIdx.x * int64_t(kWarps) + threadIdx.x / 32; item < c.n_rows * c.n_heads;
       item += int64_t(gridDim.x) * kWarps) {
    const int64_t r = item / c.n_heads, head = item % c.n_heads;
    const RowPlace place = c.rows[r];
    const float* partials = c.partials + (r * c.n_splits_max * c.n_heads + head) * (c.dim + 2);
    const int64_t step = int64_t(c.n_heads) * (c.dim + 2);
    const int64_t row_head = place.row * int64_t(c.n_heads) + head;
    for (int i = lane; i < c.dim; i += 32) {
      float maximum = -INFINITY, sum = 0, o = 0;
      for (int split = 0; split < place.n_splits; ++split) {
        const float* partial = partials + split * step;
        const float higher = fmaxf(maximum, partial[c.dim]);
        const float mine = exp2_f32(maximum - higher), theirs = exp2_f32(partial[c.dim] - higher);
        sum = fmaf(sum, mine, partial[c.dim + 1] * theirs);
        o = fmaf(o, mine, partial[i] * theirs);
        maximum = higher;
      }
      const float gate = sigmoid_f32(f32_of(c.q_gate[(row_head * 2 + 1) * c.dim + i]));
      c.out[row_head * c.dim + i] = bf16_of(rounded_to_bf16(o / sum) * gate);
    }
  }
}

// One item a block, in as many launches as the largest grid makes necessary: a loop over items in
// the kernel costs registers that it does not have.
template <int kTiles>
void launch_splits(AttentionCall call, CudaContext& context) {
  const size_t n_bytes = shared_bytes(call.dim);
  check(cudaFuncSetAttribute(sm80_bf16_attention_split<kTiles>,
                             cudaFuncAttributeMaxDynamicSharedMemorySize,
                             static_cast<int>(n_bytes)));
  const int64_t n_items = call.n_rows * call.n_splits_max * call.kv_heads * call.n_head_tiles;
  while (call.first_item < n_items) {
    const unsigned n_blocks = grid_of(context, n_items - call.first_item);
    launch_kernel(context, sm80_bf16_attention_split<kTiles>, n_blocks, kThreads, n_bytes, call);
    call.first_item += n_blocks;
  }
}

// rows: of the call, on the host.
void launch(const AttentionCall& call, std::span<const RowPlace> rows, CudaContext& context) {
  if (takes_attention_many(call)) {
    attention_many_cuda(call, rows, context);
  } else if (call.dim <= 64) {
    launch_splits<2>(call, context);
  } else if (call.dim <= 256) {
    launch_splits<8>(call, context);
  } else {
    launch_splits<16>(call, context);
  }
  const int64_t n_blocks = (call.n_rows * call.n_heads + kWarps - 1) / kWarps;
  launch_kernel(context, sm80_attention_merge, grid_of(context, n_blocks), kThreads, 0, call);
}

int32_t splits_of(int32_t position) {
  return position / keys_per_split(position) + 1;
}

}  // namespace

size_t attention_cuda_scratch_bytes(int64_t n_heads, int64_t head_dim, int64_t context_max) {
  const auto last = static_cast<int32_t>(std::max<int64_t>(context_max, 1) - 1);
  const int64_t n_splits = std::max<int64_t>(splits_of(last), 64);
  return static_cast<size_t>(n_splits * n_heads * (head_dim + 2)) * 4 + DeviceArena::kAlign;
}

void attention_cuda(const Attention& op, CudaContext& context) {
  if (op.spans.empty()) return;
  std::vector<RowPlace> rows;
  std::vector<int32_t> pages;
  int32_t n_splits_max = 1;
  for (const RowSpan& span : op.spans) {
    const auto first_page = static_cast<int32_t>(pages.size());
    const int32_t n_pages = (span.first_index + span.n_rows - 1) / kPageTokens + 1;
    pages.insert(pages.end(), span.page_table, span.page_table + n_pages);
    for (int32_t r = 0; r < span.n_rows; ++r) {
      const int32_t position = span.first_index + r;
      rows.push_back({span.first_row + r, position, first_page, splits_of(position)});
      n_splits_max = std::max(n_splits_max, rows.back().n_splits);
    }
  }
  AttentionCall call{.q = bf16_data(op.q), .q_gate = bf16_data(op.q_gate)};
  call.k_pages = bf16_data(op.k_pages);
  call.v_pages = bf16_data(op.v_pages);
  call.out = bf16_data(op.out);
  call.pages = context.push(std::span<const int32_t>(pages));
  call.n_heads = static_cast<int>(op.q.dim(1));
  call.kv_heads = static_cast<int>(op.k_pages.dim(1));
  call.dim = static_cast<int>(op.q.dim(2));
  call.n_splits_max = n_splits_max;
  call.n_head_tiles = (call.n_heads / call.kv_heads + kHeads - 1) / kHeads;
  call.score_scale = op.scale * 1.44269504088896f;

  // As many rows at a time as the scratch holds partials of.
  const DeviceArena::Scope scope(context.scratch);
  const size_t row_floats =
      static_cast<size_t>(n_splits_max) * static_cast<size_t>(call.n_heads * (call.dim + 2));
  const size_t n_fit = (context.scratch.n_left() - DeviceArena::kAlign) / (row_floats * 4);
  const size_t n_together = std::min(rows.size(), n_fit);
  ROOST_CHECK(n_together >= 1);
  call.partials = context.scratch.take<float>(n_together * row_floats);
  const RowPlace* places = context.push(std::span<const RowPlace>(rows));
  for (size_t begin = 0; begin < rows.size(); begin += n_together) {
    call.rows = places + begin;
    call.n_rows = static_cast<int64_t>(std::min(n_together, rows.size() - begin));
    launch(call, std::span(rows).subspan(begin, static_cast<size_t>(call.n_rows)), context);
  }
}

}  // namespace roost
