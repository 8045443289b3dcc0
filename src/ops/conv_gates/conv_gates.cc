// What conv_gates demands of its arguments.
#include "ops/conv_gates/conv_gates.h"

#include "base/check.h"
#include "ops/checks.h"

namespace roost {
namespace {

void check_spans(const ConvGates& op, int64_t n_packed) {
  const int64_t n_rows = op.qkv.dim(0), n_slots = op.tail.dim(0);
  const int64_t n_kept_max = op.store_qkv.exists() ? op.store_qkv.dim(1) : 0;
  for (const DeltaSpan& span : op.spans) {
    const int64_t n_kept = int64_t{span.n_packed()} - span.store_after;
    ROOST_CHECK(span.n_new >= 0 && span.n_replay >= 0 && span.n_replay <= n_kept_max);
    ROOST_CHECK(span.store_after >= 0 && n_kept >= 0 && n_kept <= n_kept_max);
    ROOST_CHECK(span.first_row >= 0 && int64_t{span.first_row} + span.n_new <= n_rows);
    ROOST_CHECK(span.first_packed >= 0 && span.first_packed + span.n_packed() <= n_packed);
    ROOST_CHECK(span.slot >= 0 && span.slot < n_slots);
  }
}

}  // namespace

void check(const ConvGates& op) {
  ROOST_CHECK(op.q.exists() && op.q.shape.rank() == 3);
  ROOST_CHECK(op.v.exists() && op.v.shape.rank() == 3);
  ROOST_CHECK(op.tail.exists() && op.tail.shape.rank() == 3);
  ROOST_CHECK(op.qkv.exists() && op.qkv.shape.rank() == 2);
  const int64_t n_rows = op.qkv.dim(0), n_packed = op.q.dim(0), n_slots = op.tail.dim(0);
  const int64_t key_heads = op.q.dim(1), key_dim = op.q.dim(2);
  const int64_t value_heads = op.v.dim(1), value_dim = op.v.dim(2);
  const int64_t n_channels = 2 * key_heads * key_dim + value_heads * value_dim;
  ROOST_CHECK(key_heads >= 1 && key_dim >= 1 && value_heads >= 1 && value_dim >= 1);
  ROOST_CHECK(has_activation(op.qkv, {n_rows, n_channels}));
  ROOST_CHECK(has(op.b, DType::kF32, {n_rows, value_heads}));
  ROOST_CHECK(has(op.a, DType::kF32, {n_rows, value_heads}));
  ROOST_CHECK(has(op.conv_weight, DType::kF32, {n_channels, 4}));
  ROOST_CHECK(has(op.a_log, DType::kF32, {value_heads}));
  ROOST_CHECK(has(op.dt_bias, DType::kF32, {value_heads}));
  ROOST_CHECK(has_activation(op.tail, {n_slots, 3, n_channels}));
  if (op.store_qkv.exists()) {
    ROOST_CHECK(op.store_qkv.shape.rank() == 3);
    const int64_t n_kept_max = op.store_qkv.dim(1);
    ROOST_CHECK(has_activation(op.store_qkv, {n_slots, n_kept_max, n_channels}));
    ROOST_CHECK(has(op.store_b, DType::kF32, {n_slots, n_kept_max, value_heads}));
    ROOST_CHECK(has(op.store_a, DType::kF32, {n_slots, n_kept_max, value_heads}));
  }
  ROOST_CHECK(has_activation(op.q, {n_packed, key_heads, key_dim}));
  ROOST_CHECK(has_activation(op.k, {n_packed, key_heads, key_dim}));
  ROOST_CHECK(has_activation(op.v, {n_packed, value_heads, value_dim}));
  ROOST_CHECK(has(op.kq, DType::kF32, {n_packed, key_heads}));
  ROOST_CHECK(has(op.beta, DType::kF32, {n_packed, value_heads}));
  ROOST_CHECK(has(op.decay, DType::kF32, {n_packed, value_heads}));
  check_spans(op, n_packed);
}

}  // namespace roost
