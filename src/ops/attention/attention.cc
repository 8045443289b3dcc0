// What attention demands of its arguments.
#include "ops/attention/attention.h"

#include "base/check.h"
#include "ops/checks.h"
#include "ops/kv_codes.h"

namespace roost {

void check(const Attention& op) {
  ROOST_CHECK(op.q.exists() && op.q.shape.rank() == 3);
  ROOST_CHECK(op.k_pages.exists() && op.k_pages.shape.rank() == 4);
  const int64_t n_rows = op.q.dim(0), n_heads = op.q.dim(1), dim = op.q.dim(2);
  const int64_t n_pages = op.k_pages.dim(0), kv_heads = op.k_pages.dim(1);
  ROOST_CHECK(kv_heads >= 1 && n_heads % kv_heads == 0);
  ROOST_CHECK(n_heads / kv_heads >= 1 && n_heads / kv_heads <= Attention::kGroupHeadsMax);
  ROOST_CHECK(dim >= 16 && dim % 16 == 0 && dim <= Attention::kHeadDimMax && op.scale > 0);
  ROOST_CHECK(has_activation(op.q, {n_rows, n_heads, dim}));
  ROOST_CHECK(has_activation(op.q_gate, {n_rows, n_heads, 2 * dim}));
  ROOST_CHECK(are_kv_pages(op.k_pages, op.v_pages, op.k_scales, op.v_scales,
                           {n_pages, kv_heads, kPageTokens, dim}));
  ROOST_CHECK(has_activation(op.out, {n_rows, n_heads * dim}));
  for (const RowSpan& span : op.spans) {
    const int64_t n_tokens = int64_t{span.first_index} + span.n_rows;
    ROOST_CHECK(span.first_row >= 0 && span.n_rows >= 1 && span.first_index >= 0);
    ROOST_CHECK(int64_t{span.first_row} + span.n_rows <= n_rows && span.page_table != nullptr);
    ROOST_CHECK(n_tokens <= Attention::kTokensMax);
    for (int64_t i = 0; i * kPageTokens < n_tokens; ++i)
      ROOST_CHECK(span.page_table[i] >= 0 && span.page_table[i] < n_pages);
  }
}

}  // namespace roost
