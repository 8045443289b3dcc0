// What gated_delta demands of its arguments.
#include "ops/gated_delta/gated_delta.h"

#include "base/check.h"
#include "ops/checks.h"

namespace roost {

void check(const GatedDelta& op) {
  ROOST_CHECK(op.q.exists() && op.q.shape.rank() == 3);
  ROOST_CHECK(op.v.exists() && op.v.shape.rank() == 3);
  ROOST_CHECK(op.state.exists() && op.state.shape.rank() == 4);
  ROOST_CHECK(op.z.exists() && op.z.shape.rank() == 2);
  const int64_t n_rows = op.z.dim(0), n_packed = op.q.dim(0), n_slots = op.state.dim(0);
  const int64_t key_heads = op.q.dim(1), key_dim = op.q.dim(2);
  const int64_t value_heads = op.v.dim(1), value_dim = op.v.dim(2);
  ROOST_CHECK(key_heads >= 1 && value_heads >= 1 && value_heads % key_heads == 0);
  ROOST_CHECK(key_dim >= 1 && key_dim <= GatedDelta::kKeyDimMax && value_dim >= 1);
  ROOST_CHECK(has_activation(op.q, {n_packed, key_heads, key_dim}));
  ROOST_CHECK(has_activation(op.k, {n_packed, key_heads, key_dim}));
  ROOST_CHECK(has_activation(op.v, {n_packed, value_heads, value_dim}));
  ROOST_CHECK(has(op.kq, DType::kF32, {n_packed, key_heads}));
  ROOST_CHECK(has(op.beta, DType::kF32, {n_packed, value_heads}));
  ROOST_CHECK(has(op.decay, DType::kF32, {n_packed, value_heads}));
  ROOST_CHECK(has_activation(op.z, {n_rows, value_heads * value_dim}));
  ROOST_CHECK(has_activation(op.out, {n_rows, value_heads * value_dim}));
  ROOST_CHECK(has(op.norm_weight, DType::kF32, {value_dim}) && op.eps > 0);
  ROOST_CHECK(has(op.state, DType::kF32, {n_slots, value_heads, key_dim, value_dim}));
  for (const DeltaSpan& span : op.spans) {
    ROOST_CHECK(span.n_new >= 0 && span.n_replay >= 0);
    ROOST_CHECK(span.store_after >= 0 && span.store_after <= span.n_packed());
    ROOST_CHECK(span.first_row >= 0 && int64_t{span.first_row} + span.n_new <= n_rows);
    ROOST_CHECK(span.first_packed >= 0 && span.first_packed + span.n_packed() <= n_packed);
    ROOST_CHECK(span.slot >= 0 && span.slot < n_slots);
  }
}

}  // namespace roost
