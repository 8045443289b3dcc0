// What route demands of its arguments.
#include "ops/route/route.h"

#include "base/check.h"
#include "ops/checks.h"

namespace roost {

void check(const Route& op) {
  ROOST_CHECK(op.logits.exists() && op.logits.shape.rank() == 2);
  ROOST_CHECK(op.ids.exists() && op.ids.shape.rank() == 2);
  const int64_t n_rows = op.logits.dim(0), n_experts = op.logits.dim(1), n_chosen = op.ids.dim(1);
  ROOST_CHECK(n_rows >= 1 && n_chosen >= 1 && n_chosen <= n_experts);
  ROOST_CHECK(has(op.logits, DType::kF32, {n_rows, n_experts}));
  ROOST_CHECK(has(op.ids, DType::kI32, {n_rows, n_chosen}));
  ROOST_CHECK(has(op.weights, DType::kF32, {n_rows, n_chosen}));
  ROOST_CHECK(op.shared_logit.exists() == op.shared_gate.exists());
  if (!op.shared_logit.exists()) return;
  ROOST_CHECK(has(op.shared_logit, DType::kF32, {n_rows, 1}));
  ROOST_CHECK(has(op.shared_gate, DType::kF32, {n_rows}));
}

}  // namespace roost
