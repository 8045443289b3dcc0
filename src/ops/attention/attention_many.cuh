// What the kernels of attention share, and the launch of the one for many rows.
#pragma once

#include <span>

#include "ops/cuda_backend.h"

namespace roost {

struct RowPlace {
  int32_t row, position, first_page, n_splits;  // pages from pages[first_page]
};

struct AttentionCall {
  const uint16_t *q, *q_gate, *k_pages, *v_pages;
  uint16_t* out;
  float* partials;  // [rows, splits, heads][D + 2]: O, maximum, sum
  const RowPlace* rows;
  const int32_t* pages;
  int64_t n_rows, first_item;
  int n_heads, kv_heads, dim, n_splits_max, n_head_tiles;
  float score_scale;  // scale · log2(e)
};

// As keys_per_split, on the card.
__device__ __forceinline__ int keys_per_split_of(int32_t position) {
  return position < 32'768 ? 512 : position < 65'536 ? 1'024 : position < 131'072 ? 2'048 : 4'096;
}

// True where the rows are many and the card has the shared memory; the bits are those of the other
// kernel. It makes the partials of all rows.
bool takes_attention_many(const AttentionCall& call);
void attention_many_cuda(const AttentionCall& call, std::span<const RowPlace> rows,
                         CudaContext& context);

}  // namespace roost
