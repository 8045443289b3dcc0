// The CUDA kernel of attention for many rows: a block attends with all heads of several
// neighbouring rows of a sequence to one split of the keys, so that a key is read once for all of
// them.
//
// Arithmetic of a row: that of attention_cuda.cu, tile by tile of 64 keys. Rows of a block lie in
// one tile of positions, so no tile is behind a row; in the last one, weights behind a row are
// zeros, which add exactly nothing (docs/decisions/0002-mma-laws.md, L6).
#include <vector>

#include "device/cuda/copy.cuh"
#include "device/cuda/mma.cuh"
#include "ops/attention/attention_many.cuh"
#include "ops/launch.cuh"

namespace roost {
namespace {

using namespace cuda;

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / 32;
constexpr int kQueries = 16 * kWarps;  // of a block: rows times heads of one KV head
constexpr int kTile = kPageTokens;
constexpr int64_t kRowsMin = 32;  // with fewer, one row a block fills the card better

// Rows [row, row + n_rows) of the step at positions from `position` on, the first of them number
// `first` of the call.
struct RowGroup {
  int32_t first, row, position, n_rows, first_page, n_splits;
};

struct ManyCall {
  AttentionCall base;
  const RowGroup* groups;
  int64_t n_groups, first_item;
};

template <int kDim>
struct Shared {
  static constexpr int kStride = kDim + 8;  // fragments of 8 rows meet no bank twice
  uint16_t q[kQueries][kStride];
  uint16_t k[2][kTile][kStride], v[2][kTile][kStride];
};

// Keys and values of a tile of n_keys on their way; zeros behind them.
template <int kDim>
__device__ __forceinline__ void copy_tile(const AttentionCall& c, int64_t at, int n_keys,
                                          Shared<kDim>& s, int buffer) {
#pragma unroll 4
  for (int piece = threadIdx.x; piece < kTile * (kDim / 8); piece += kThreads) {
    const int key = piece / (kDim / 8), col = piece % (kDim / 8) * 8;
    const int64_t from = at + int64_t(min(key, n_keys - 1)) * kDim + col;
    copy_16(&s.k[buffer][key][col], c.k_pages + from, key < n_keys);
    copy_16(&s.v[buffer][key][col], c.v_pages + from, key < n_keys);
  }
  copy_commit();
}

// A value that is not finite would reach rows in front of it through their weights of zero: values
// of the keys behind `first_key` are looked at, and such a key is cleared. Returns the first of
// them; rows that see it have no sum.
template <int kDim>
__device__ __forceinline__ int clear_broken(Shared<kDim>& s, int buffer, int first_key,
                                            int n_keys) {
  __shared__ int broken;
  if (threadIdx.x == 0) broken = kTile;
  __syncthreads();
  for (int key = first_key + 1 + threadIdx.x / 32; key < n_keys; key += kWarps) {
    bool is_broken = false;
    for (int i = threadIdx.x % 32; i < kDim; i += 32)
      is_broken = is_broken || (s.v[buffer][key][i] & 0x7F80) == 0x7F80;
    if (!__any_sync(~0u, is_broken)) continue;
    for (int i = threadIdx.x % 32; i < kDim; i += 32) s.v[buffer][key][i] = 0;
    if (threadIdx.x % 32 == 0) atomicMin(&broken, key);
  }
  __syncthreads();
  return broken;
}

__device__ __forceinline__ uint32_t pair_of_weights(float low, float high) {
  return uint32_t(bf16_of(low)) | uint32_t(bf16_of(high)) << 16;
}

// What a warp has of its 16 queries; a thread of two of them.
template <int kDim>
struct Totals {
  float o[kDim / 8][4] = {}, sum[4] = {};
  float maximum[2] = {-INFINITY, -INFINITY};
};

// One tile. n_seen: how many of its keys each of the thread's two queries sees.
template <int kDim>
__device__ __forceinline__ void add_tile(const Shared<kDim>& s, int buffer, float score_scale,
                                         const int (&n_seen)[2], Totals<kDim>& totals) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, quad = lane % 4;
  float scores[kTile / 8][4] = {};
  const uint16_t* q_row = &s.q[16 * warp + lane % 16][lane / 16 * 8];
  const uint16_t* k_row = &s.k[buffer][lane % 8 + lane / 16 * 8][lane / 8 % 2 * 8];
#pragma unroll 4
  for (int d = 0; d < kDim; d += 16) {
    uint32_t a[4];
    load_matrices(a, q_row + d);
#pragma unroll
    for (int n = 0; n < kTile / 16; ++n) {
      uint32_t both[4];
      load_matrices(both, k_row + n * 16 * Shared<kDim>::kStride + d);
      const uint32_t b0[2] = {both[0], both[1]}, b1[2] = {both[2], both[3]};
      mma_m16n8k16(scores[2 * n], a, b0);
      mma_m16n8k16(scores[2 * n + 1], a, b1);
    }
  }
  float maximum[2] = {-INFINITY, -INFINITY};
#pragma unroll
  for (int n = 0; n < kTile / 8; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      scores[n][i] *= score_scale;
      if (8 * n + 2 * quad + i % 2 < n_seen[i / 2])
        maximum[i / 2] = fmaxf(maximum[i / 2], scores[n][i]);
    }
  }
  float factor[2];
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    maximum[h] = fmaxf(maximum[h], __shfl_xor_sync(~0u, maximum[h], 1));
    maximum[h] = fmaxf(maximum[h], __shfl_xor_sync(~0u, maximum[h], 2));
    maximum[h] = fmaxf(maximum[h], totals.maximum[h]);
    factor[h] = exp2_f32(totals.maximum[h] - maximum[h]);
    totals.maximum[h] = maximum[h];
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) totals.sum[i] *= factor[i / 2];
#pragma unroll
  for (int j = 0; j < kDim / 8; ++j) {
#pragma unroll
    for (int i = 0; i < 4; ++i) totals.o[j][i] *= factor[i / 2];
  }
#pragma unroll
  for (int n = 0; n < kTile / 8; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const bool is_seen = 8 * n + 2 * quad + i % 2 < n_seen[i / 2];
      scores[n][i] = is_seen ? exp2_f32(scores[n][i] - maximum[i / 2]) : 0.0f;
    }
  }
  const uint16_t* v_row = &s.v[buffer][lane % 16][lane / 16 * 8];
#pragma unroll
  for (int step = 0; step < kTile / 16; ++step) {
    const float(&low)[4] = scores[2 * step];
    const float(&high)[4] = scores[2 * step + 1];
    const uint32_t a[4] = {pair_of_weights(low[0], low[1]), pair_of_weights(low[2], low[3]),
                           pair_of_weights(high[0], high[1]), pair_of_weights(high[2], high[3])};
    const uint32_t ones[2] = {0x3F803F80u, 0x3F803F80u};
    mma_m16n8k16(totals.sum, a, ones);
#pragma unroll
    for (int j = 0; j < kDim / 16; ++j) {
      uint32_t both[4];
      load_matrices_transposed(both, v_row + step * 16 * Shared<kDim>::kStride + 16 * j);
      const uint32_t b0[2] = {both[0], both[1]}, b1[2] = {both[2], both[3]};
      mma_m16n8k16(totals.o[2 * j], a, b0);
      mma_m16n8k16(totals.o[2 * j + 1], a, b1);
    }
  }
}

template <int kDim>
__global__ void __launch_bounds__(kThreads) sm80_bf16_attention_many(ManyCall call) {
  wait_for_inputs();
  extern __shared__ uint4 dynamic_shared[];
  auto& s = *reinterpret_cast<Shared<kDim>*>(dynamic_shared);
  const AttentionCall& c = call.base;
  const int64_t item = call.first_item + blockIdx.x;
  const RowGroup group = call.groups[item / c.kv_heads / c.n_splits_max];
  const int split = int(item / c.kv_heads % c.n_splits_max), kv_head = int(item % c.kv_heads);
  if (split >= group.n_splits) return;
  const int heads = c.n_heads / c.kv_heads, n_queries = group.n_rows * heads;
  for (int piece = threadIdx.x; piece < kQueries * (kDim / 8); piece += kThreads) {
    const int query = piece / (kDim / 8), col = piece % (kDim / 8) * 8;
    const int row = group.row + min(query, n_queries - 1) / heads;
    const int64_t head = int64_t(row) * c.n_heads + kv_head * heads + query % heads;
    copy_16(&s.q[query][col], c.q + head * kDim + col, query < n_queries);
  }
  copy_commit();
  const int per_split = keys_per_split_of(group.position), first_key = split * per_split;
  const int end = min(first_key + per_split, group.position + group.n_rows);
  const auto place_of = [&](int key) {
    const int64_t page = c.pages[group.first_page + key / kPageTokens];
    return (page * c.kv_heads + kv_head) * kPageTokens * kDim;
  };
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4;
  int position[2];  // of the thread's queries
#pragma unroll
  for (int h = 0; h < 2; ++h)
    position[h] = group.position + min(16 * warp + g + 8 * h, n_queries - 1) / heads;
  Totals<kDim> totals;
  copy_tile<kDim>(c, place_of(first_key), min(kTile, end - first_key), s, 0);
  int buffer = 0;
  for (int key = first_key; key < end; key += kTile, buffer ^= 1) {
    const int next = key + kTile;
    if (next < end) {
      copy_tile<kDim>(c, place_of(next), min(kTile, end - next), s, buffer ^ 1);
    } else {
      copy_commit();
    }
    copy_wait<1>();
    __syncthreads();  // the tile is there
    int broken = kTile;
    if (next > group.position)
      broken = clear_broken<kDim>(s, buffer, group.position - key, end - key);
    const int n_seen[2] = {min(kTile, position[0] + 1 - key), min(kTile, position[1] + 1 - key)};
    if (16 * warp < n_queries) add_tile<kDim>(s, buffer, c.score_scale, n_seen, totals);
#pragma unroll
    for (int i = 0; i < 4; ++i)
      if (broken < n_seen[i / 2]) totals.sum[i] = NAN;
    __syncthreads();  // the tile has been read
  }
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const int query = 16 * warp + g + 8 * h;
    if (query >= n_queries) continue;
    const int64_t r = group.first + query / heads, head = kv_head * heads + query % heads;
    float* partial = c.partials + ((r * c.n_splits_max + split) * c.n_heads + head) * (kDim + 2);
#pragma unroll
    for (int j = 0; j < kDim / 8; ++j)
      *reinterpret_cast<float2*>(partial + 8 * j + 2 * (lane % 4)) =
          make_float2(totals.o[j][2 * h], totals.o[j][2 * h + 1]);
    if (lane % 4 != 0) continue;
    partial[kDim] = totals.maximum[h];
    partial[kDim + 1] = totals.sum[2 * h];
  }
}

template <int kDim>
void launch(ManyCall call, CudaContext& context) {
  constexpr size_t kBytes = sizeof(Shared<kDim>);
  check(cudaFuncSetAttribute(sm80_bf16_attention_many<kDim>,
                             cudaFuncAttributeMaxDynamicSharedMemorySize,
                             static_cast<int>(kBytes)));
  const int64_t n_items = call.n_groups * call.base.n_splits_max * call.base.kv_heads;
  while (call.first_item < n_items) {
    const unsigned n_blocks = grid_of(context, n_items - call.first_item);
    launch_kernel(context, sm80_bf16_attention_many<kDim>, n_blocks, kThreads, kBytes, call);
    call.first_item += n_blocks;
  }
}

// Rows of a block: a power of two, so that groups on multiples of it lie in one tile.
int rows_of_block(const AttentionCall& c) {
  int n = 1;
  while (2 * n * (c.n_heads / c.kv_heads) <= kQueries && 2 * n <= kTile) n *= 2;
  return n;
}

}  // namespace

bool takes_attention_many(const AttentionCall& c) {
  const bool has_dim = c.dim == 64 || c.dim == 128 || c.dim == 256;
  return has_warpgroup_products() && has_dim && c.n_rows >= kRowsMin &&
         c.n_heads / c.kv_heads <= kQueries;
}

void attention_many_cuda(const AttentionCall& c, std::span<const RowPlace> rows,
                         CudaContext& context) {
  const int n_together = rows_of_block(c);
  std::vector<RowGroup> groups;
  for (size_t i = 0; i < rows.size(); ++i) {
    const RowPlace& place = rows[i];
    if (!groups.empty() && place.position % n_together != 0) {
      RowGroup& group = groups.back();
      const bool follows = place.first_page == group.first_page &&
                           place.row == group.row + group.n_rows &&
                           place.position == group.position + group.n_rows;
      if (follows) {
        group.n_rows += 1;
        continue;
      }
    }
    groups.push_back(
        {static_cast<int32_t>(i), place.row, place.position, 1, place.first_page, place.n_splits});
  }
  const ManyCall call{.base = c,
                      .groups = context.push(std::span<const RowGroup>(groups)),
                      .n_groups = static_cast<int64_t>(groups.size())};
  if (c.dim == 64) {
    launch<64>(call, context);
  } else if (c.dim == 128) {
    launch<128>(call, context);
  } else {
    launch<256>(call, context);
  }
}

}  // namespace roost
