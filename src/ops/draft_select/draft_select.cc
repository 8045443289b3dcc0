// What draft_select demands of its arguments.
#include "ops/draft_select/draft_select.h"

#include "base/check.h"
#include "ops/checks.h"

namespace roost {

void check(const DraftSelect& op) {
  ROOST_CHECK(op.logits.exists() && op.logits.shape.rank() == 2 && op.logits.dim(0) >= 1);
  ROOST_CHECK(op.ids.exists() && op.ids.shape.rank() == 2);
  const int64_t n_rows = op.logits.dim(0), n_vocabulary = op.logits.dim(1), k = op.ids.dim(1);
  ROOST_CHECK(op.n_tokens >= 1 && op.n_tokens <= n_vocabulary);
  ROOST_CHECK(k >= 1 && k <= op.n_tokens && k <= DraftSelect::kCandidatesMax);
  ROOST_CHECK(op.multiplier > 0 && op.softcap >= 0);
  ROOST_CHECK(has(op.logits, DType::kF32, {n_rows, n_vocabulary}));
  ROOST_CHECK(has(op.ids, DType::kI32, {n_rows, k}) && has(op.scores, DType::kF32, {n_rows, k}));
  ROOST_CHECK(has(op.tokens, DType::kI32, {n_rows}));
  const bool has_pairs = op.hidden.exists();
  ROOST_CHECK(has_pairs == (op.predecessor != nullptr) && has_pairs == (op.successor != nullptr));
  if (has_pairs) {
    ROOST_CHECK(op.hidden.shape.rank() == 2);
    const int64_t rank = op.hidden.dim(1);
    ROOST_CHECK(has(op.hidden, DType::kF32, {n_rows, rank}));
    ROOST_CHECK(is_sound(*op.predecessor, n_vocabulary, rank));
    ROOST_CHECK(is_sound(*op.successor, n_vocabulary, rank));
  }
  for (const DraftWalk& walk : op.walks) {
    ROOST_CHECK(walk.first_row >= 0 && walk.n_rows >= 1);
    ROOST_CHECK(int64_t{walk.first_row} + walk.n_rows <= n_rows);
    ROOST_CHECK(walk.anchor >= 0 && walk.anchor < n_vocabulary);
    ROOST_CHECK(walk.params.temperature >= 0 && walk.params.top_k >= 0);
  }
}

}  // namespace roost
