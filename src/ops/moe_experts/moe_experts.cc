// What moe_experts demands of its arguments.
#include "ops/moe_experts/moe_experts.h"

#include "base/check.h"
#include "ops/checks.h"

namespace roost {
namespace {

bool is_mlp(const GatedMlp& mlp, int64_t width, int64_t hidden) {
  return is_sound(mlp.gate, width, hidden) && is_sound(mlp.up, width, hidden) &&
         is_sound(mlp.down, hidden, width);
}

// One packing for all: rows are brought into kernel form once, not once an expert.
bool is_alike(const QuantMatrix& a, const QuantMatrix& b) {
  return a.format == b.format && a.dtype == b.dtype &&
         (a.format == QuantMatrix::Format::kPlain || (a.bits == b.bits && a.group == b.group));
}

}  // namespace

void check(const MoeExperts& op) {
  ROOST_CHECK(op.x.exists() && op.x.shape.rank() == 2 && op.x.dim(0) >= 1);
  ROOST_CHECK(op.ids.exists() && op.ids.shape.rank() == 2 && !op.experts.empty());
  const int64_t n_rows = op.x.dim(0), hidden = op.x.dim(1), n_chosen = op.ids.dim(1);
  const auto n_experts = static_cast<int64_t>(op.experts.size());
  ROOST_CHECK(n_chosen >= 1 && n_chosen <= n_experts);
  ROOST_CHECK(has_activation(op.x, {n_rows, hidden}));
  ROOST_CHECK(has(op.ids, DType::kI32, {n_rows, n_chosen}));
  const int64_t n_slots = n_chosen + (op.shared != nullptr ? 1 : 0);
  ROOST_CHECK(has_activation(op.y, {n_rows, n_slots, hidden}));
  for (int64_t i = 0; i < n_rows * n_chosen; ++i) {
    const int32_t id = op.ids.as<int32_t>()[i];
    ROOST_CHECK(id >= 0 && id < n_experts);
  }
  const GatedMlp& first = op.experts[0];
  for (const GatedMlp& expert : op.experts) {
    ROOST_CHECK(is_mlp(expert, first.gate.n_out, hidden));
    ROOST_CHECK(is_alike(expert.gate, first.gate) && is_alike(expert.up, first.up) &&
                is_alike(expert.down, first.down));
  }
  ROOST_CHECK(op.shared == nullptr || is_mlp(*op.shared, op.shared->gate.n_out, hidden));
}

}  // namespace roost
