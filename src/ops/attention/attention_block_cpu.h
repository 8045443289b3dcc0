// The CPU's attention over one block: rows of one sequence that share their split borders, with the
// query heads of one KV head. attention_cpu is made of these.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ops/attention/attention.h"

namespace roost {

inline constexpr int64_t kBlockQueries = 64;  // most queries (row, head) of a block
inline constexpr int64_t kKeyStep = 16;       // keys and value dims that are widened at a time
// Floats between widened keys: known to the compiler, and not a power of two, so that the keys do
// not fall into the same lines of the nearest memory.
inline constexpr int64_t kKeyStride = Attention::kHeadDimMax + 16;

struct AttentionBlock {
  const Attention* op;
  const RowSpan* span;
  int32_t first = 0, n_rows = 0;  // rows of the span
  int32_t kv_head = 0;

  int64_t heads() const { return op->q.dim(1) / op->k_pages.dim(1); }  // of the KV head
  int64_t n_queries() const { return n_rows * heads(); }               // query i: row i / heads()
  int64_t first_position() const { return int64_t{span->first_index} + first; }
  int64_t n_keys() const { return first_position() + n_rows; }
  int64_t split_size() const { return keys_per_split(static_cast<int32_t>(first_position())); }
  int64_t n_splits() const { return (n_keys() + split_size() - 1) / split_size(); }
};

// Softmax numerators and denominators of a block's queries over some keys. A query is a lane; lanes
// lie in panels of two vectors: element (i, lane) of a matrix of n rows is at
// panel · n · 2·L + i · width + lane - panel · 2·L, where width is the lanes of that panel.
struct AttentionSums {
  float* maximum;  // [kBlockQueries]
  float* sum;      // [kBlockQueries]
  float* output;   // [D] x [kBlockQueries]

  static size_t n_floats(int64_t head_dim) {
    return static_cast<size_t>((head_dim + 2) * kBlockQueries);
  }
  static AttentionSums at(float* memory) {
    return {memory, memory + kBlockQueries, memory + 2 * kBlockQueries};
  }
};

// What a thread needs besides: queries, a few keys and values in f32, one tile of scores.
struct AttentionScratch {
  float* queries;    // [D] x [kBlockQueries], panels
  float* keys;       // [kKeyStep][kKeyStride]
  float* values;     // [64][kKeyStep]
  float* scores;     // [64] x [kBlockQueries], panels; then the probabilities
  float* positions;  // [kBlockQueries]
  float* factors;    // [kBlockQueries]
  AttentionSums split, total;

  static size_t n_floats(int64_t head_dim);
  static AttentionScratch at(float* memory, int64_t head_dim);
};

void load_block(const AttentionBlock& block, const AttentionScratch& scratch);
// Sums over the keys of split `split`, for a block that is loaded.
void sum_split(const AttentionBlock& block, int64_t split, const AttentionScratch& scratch,
               const AttentionSums& sums);
// Splits must come in ascending order; split 0 starts the total.
void merge_split(const AttentionBlock& block, int64_t split, const AttentionSums& sums,
                 const AttentionScratch& scratch, const AttentionSums& total);
void store_block(const AttentionBlock& block, const AttentionScratch& scratch,
                 const AttentionSums& total);

}  // namespace roost
