// What add_rms_norm demands of its arguments.
#include "ops/add_rms_norm/add_rms_norm.h"

#include "base/check.h"
#include "ops/checks.h"

namespace roost {
namespace {

void check_experts(const ExpertSum& sum, int64_t n_rows, int64_t width) {
  ROOST_CHECK(sum.ids.exists() && sum.ids.shape.rank() == 2 && sum.n_experts >= 1);
  const int64_t n_chosen = sum.ids.dim(1);
  const int64_t n_slots = n_chosen + (sum.shared_gate.exists() ? 1 : 0);
  ROOST_CHECK(n_chosen >= 1 && n_chosen <= sum.n_experts);
  ROOST_CHECK(has(sum.ids, DType::kI32, {n_rows, n_chosen}));
  ROOST_CHECK(has(sum.weights, DType::kF32, {n_rows, n_chosen}));
  ROOST_CHECK(has_activation(sum.y, {n_rows, n_slots, width}));
  ROOST_CHECK(!sum.shared_gate.exists() || has(sum.shared_gate, DType::kF32, {n_rows}));
  const int32_t* ids = sum.ids.as<int32_t>();
  for (int64_t i = 0; i < n_rows * n_chosen; ++i) {
    ROOST_CHECK(ids[i] >= 0 && ids[i] < sum.n_experts);
    ROOST_CHECK(i % n_chosen == 0 || ids[i] > ids[i - 1]);
  }
}

}  // namespace

void check(const AddRmsNorm& op) {
  ROOST_CHECK(op.x.exists() && op.x.shape.rank() == 2);
  const int64_t n_rows = op.x.dim(0), width = op.x.dim(1);
  ROOST_CHECK(n_rows >= 1 && width >= 1);
  ROOST_CHECK(has_activation(op.x, {n_rows, width}));
  ROOST_CHECK(!op.add.exists() || has_activation(op.add, {n_rows, width}));
  ROOST_CHECK(!op.add.exists() || !op.experts.y.exists());
  if (op.experts.y.exists()) check_experts(op.experts, n_rows, width);
  if (op.tap.exists()) {
    ROOST_CHECK(op.tap.shape.rank() == 2 && has_activation(op.tap, {n_rows, op.tap.dim(1)}));
    ROOST_CHECK(op.tap_first >= 0 && op.tap_first + width <= op.tap.dim(1));
  }
  if (!op.out.exists()) return;
  ROOST_CHECK(has(op.weight, DType::kF32, {width}) && op.eps > 0);
  if (!op.rows.exists()) {
    ROOST_CHECK(has_activation(op.out, {n_rows, width}));
    return;
  }
  ROOST_CHECK(op.rows.shape.rank() == 1 && op.rows.dim(0) >= 1);
  ROOST_CHECK(has(op.rows, DType::kI32, {op.rows.dim(0)}));
  ROOST_CHECK(has_activation(op.out, {op.rows.dim(0), width}));
  for (int64_t j = 0; j < op.rows.dim(0); ++j) {
    const int32_t row = op.rows.as<int32_t>()[j];
    ROOST_CHECK(row >= 0 && row < n_rows);
  }
}

}  // namespace roost
