// What draft_attention demands of its arguments.
#include "ops/draft_attention/draft_attention.h"

#include "base/check.h"
#include "ops/checks.h"

namespace roost {

void check(const DraftAttention& op) {
  ROOST_CHECK(op.q.exists() && op.q.shape.rank() == 2 && op.k.exists() && op.k.shape.rank() == 2);
  ROOST_CHECK(op.k_pages.exists() && op.k_pages.shape.rank() == 4);
  const int64_t n_rows = op.q.dim(0), n_pages = op.k_pages.dim(0), dim = op.dim();
  const int64_t kv_heads = op.kv_heads(), kv_width = kv_heads * dim;
  ROOST_CHECK(kv_heads >= 1 && dim >= 2 && dim % 2 == 0 && dim <= DraftAttention::kDimMax &&
              op.q.dim(1) % kv_width == 0);
  ROOST_CHECK(op.heads_per_kv() >= 1 && op.heads_per_kv() <= DraftAttention::kGroupHeadsMax);
  ROOST_CHECK(op.window >= 0 && op.scale > 0 && op.eps > 0);
  ROOST_CHECK(has_activation(op.q, op.q.shape) && has_activation(op.out, op.q.shape));
  ROOST_CHECK(has_activation(op.k, {n_rows, kv_width}) && has_activation(op.v, {n_rows, kv_width}));
  ROOST_CHECK(has(op.q_weight, DType::kF32, {dim}) && has(op.k_weight, DType::kF32, {dim}));
  ROOST_CHECK(has(op.rope, DType::kF32, {n_rows, dim / 2, 2}));
  ROOST_CHECK(has_activation(op.k_pages, {n_pages, kv_heads, kPageTokens, dim}));
  ROOST_CHECK(has_activation(op.v_pages, {n_pages, kv_heads, kPageTokens, dim}));
  for (const DraftSpan& span : op.spans) {
    ROOST_CHECK(span.first_row >= 0 && span.n_rows >= 1 && span.n_rows <= DraftSpan::kRowsMax);
    ROOST_CHECK(int64_t{span.first_row} + span.n_rows <= n_rows);
    ROOST_CHECK(span.context_begin >= 0 && span.context_begin <= span.position);
    for (int32_t c = span.context_begin; c < span.position; c = (c / kPageTokens + 1) * kPageTokens)
      ROOST_CHECK(span.page_table[c / kPageTokens] >= 0 &&
                  span.page_table[c / kPageTokens] < n_pages);
  }
}

}  // namespace roost
