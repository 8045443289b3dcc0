// The float64 reference of add_rms_norm.
#include <cmath>

#include "ops/add_rms_norm/add_rms_norm.h"
#include "ops/reference.h"

namespace roost {
namespace {

// Element i of the expert sum of row t, in the expert tree.
double expert_sum(const ExpertSum& sum, int64_t t, int64_t i) {
  const int64_t n_chosen = sum.ids.dim(1), n_slots = sum.y.dim(1), width = sum.y.dim(2);
  double quarter[4] = {0, 0, 0, 0};
  for (int64_t s = 0; s < n_chosen; ++s) {
    const auto id = static_cast<int64_t>(sum.ids.get(t * n_chosen + s));
    quarter[4 * id / sum.n_experts] +=
        sum.weights.get(t * n_chosen + s) * sum.y.get((t * n_slots + s) * width + i);
  }
  const double routed = (quarter[0] + quarter[1]) + (quarter[2] + quarter[3]);
  if (!sum.shared_gate.exists()) return routed;
  return routed + sum.shared_gate.get(t) * sum.y.get((t * n_slots + n_chosen) * width + i);
}

}  // namespace

void add_rms_norm_reference(const AddRmsNorm& op, const ReferenceRules& rules) {
  const int64_t n_rows = op.x.dim(0), width = op.x.dim(1);
  for (int64_t t = 0; t < n_rows; ++t) {
    for (int64_t i = 0; i < width; ++i) {
      const int64_t at = t * width + i;
      if (op.add.exists()) op.x.set(at, op.x.get(at) + op.add.get(at));
      if (op.experts.y.exists())
        op.x.set(at, op.x.get(at) + rounded(rules, expert_sum(op.experts, t, i)));
      if (op.tap.exists()) op.tap.set(t * op.tap.dim(1) + op.tap_first + i, op.x.get(at));
    }
  }
  if (!op.out.exists()) return;
  const int64_t n_out = op.rows.exists() ? op.rows.dim(0) : n_rows;
  for (int64_t j = 0; j < n_out; ++j) {
    const int64_t t = op.rows.exists() ? static_cast<int64_t>(op.rows.get(j)) : j;
    double sum = 0;
    for (int64_t i = 0; i < width; ++i) sum += op.x.get(t * width + i) * op.x.get(t * width + i);
    const double scale = 1.0 / std::sqrt(sum / static_cast<double>(width) + op.eps);
    for (int64_t i = 0; i < width; ++i)
      op.out.set(j * width + i, op.x.get(t * width + i) * scale * op.weight.get(i));
  }
}

}  // namespace roost
