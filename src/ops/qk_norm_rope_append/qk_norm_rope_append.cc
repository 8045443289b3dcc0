// What qk_norm_rope_append demands of its arguments.
#include "ops/qk_norm_rope_append/qk_norm_rope_append.h"

#include "base/check.h"
#include "ops/checks.h"
#include "ops/kv_codes.h"

namespace roost {

void check(const QkNormRopeAppend& op) {
  ROOST_CHECK(op.k.exists() && op.k.shape.rank() == 2);
  ROOST_CHECK(op.k_pages.exists() && op.k_pages.shape.rank() == 4);
  ROOST_CHECK(op.rope.exists() && op.rope.shape.rank() == 3);
  const int64_t n_rows = op.k.dim(0), n_pages = op.k_pages.dim(0);
  const int64_t kv_heads = op.k_pages.dim(1), dim = op.k_pages.dim(3);
  const int64_t n_pairs = op.rope.dim(1);
  ROOST_CHECK(kv_heads >= 1 && n_pairs >= 1 && 2 * n_pairs <= dim && op.eps > 0);
  ROOST_CHECK(has_activation(op.k, {n_rows, kv_heads * dim}));
  ROOST_CHECK(has_activation(op.v, {n_rows, kv_heads * dim}));
  ROOST_CHECK(has(op.k_weight, DType::kF32, {dim}));
  ROOST_CHECK(has(op.rope, DType::kF32, {n_rows, n_pairs, 2}));
  ROOST_CHECK(are_kv_pages(op.k_pages, op.v_pages, op.k_scales, op.v_scales,
                           {n_pages, kv_heads, kPageTokens, dim}));
  ROOST_CHECK(!op.has_codes() || dim <= kCodedHeadDimMax);
  ROOST_CHECK(op.q.exists() == op.q_gate.exists() && op.q.exists() == op.q_weight.exists());
  if (op.q.exists()) {
    const int64_t n_heads = op.n_heads();
    ROOST_CHECK(op.q.shape.rank() == 3 && n_heads >= 1);
    ROOST_CHECK(has_activation(op.q, {n_rows, n_heads, dim}));
    ROOST_CHECK(has_activation(op.q_gate, {n_rows, n_heads, 2 * dim}));
    ROOST_CHECK(has(op.q_weight, DType::kF32, {dim}));
  }
  for (const RowSpan& span : op.spans) {
    const int64_t end_index = int64_t{span.first_index} + span.n_rows;
    ROOST_CHECK(span.first_row >= 0 && span.n_rows >= 1 && span.first_index >= 0);
    ROOST_CHECK(int64_t{span.first_row} + span.n_rows <= n_rows && span.page_table != nullptr);
    for (int64_t i = span.first_index / kPageTokens; i * kPageTokens < end_index; ++i)
      ROOST_CHECK(span.page_table[i] >= 0 && span.page_table[i] < n_pages);
  }
}

}  // namespace roost
