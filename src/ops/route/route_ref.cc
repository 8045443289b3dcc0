// The float64 reference of route.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "ops/route/route.h"

namespace roost {
namespace {

void route_row(const Route& op, int64_t t) {
  const int64_t n_experts = op.logits.dim(1), n_chosen = op.ids.dim(1);
  const auto logit = [&](int64_t e) { return op.logits.get(t * n_experts + e); };
  bool is_finite = true;
  for (int64_t e = 0; e < n_experts; ++e) is_finite = is_finite && std::isfinite(logit(e));
  if (!is_finite) {
    for (int64_t s = 0; s < n_chosen; ++s) {
      op.ids.set(t * n_chosen + s, static_cast<double>(s));
      op.weights.set(t * n_chosen + s, std::numeric_limits<double>::quiet_NaN());
    }
    return;
  }
  std::vector<int64_t> order(static_cast<size_t>(n_experts));
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
    return logit(a) != logit(b) ? logit(a) > logit(b) : a < b;
  });
  const double largest = logit(order[0]);
  double sum = 0, sum_chosen = 0;
  std::sort(order.begin(), order.begin() + n_chosen);
  for (int64_t e = 0; e < n_experts; ++e) sum += std::exp(logit(e) - largest);
  for (int64_t s = 0; s < n_chosen; ++s)
    sum_chosen += std::exp(logit(order[static_cast<size_t>(s)]) - largest);
  for (int64_t s = 0; s < n_chosen; ++s) {
    const int64_t e = order[static_cast<size_t>(s)];
    const double probability = std::exp(logit(e) - largest) / sum;
    op.ids.set(t * n_chosen + s, static_cast<double>(e));
    op.weights.set(t * n_chosen + s, op.normalize ? probability / (sum_chosen / sum) : probability);
  }
}

}  // namespace

void route_reference(const Route& op, const ReferenceRules&) {
  for (int64_t t = 0; t < op.logits.dim(0); ++t) {
    route_row(op, t);
    if (op.shared_gate.exists())
      op.shared_gate.set(t, 1.0 / (1.0 + std::exp(-op.shared_logit.get(t))));
  }
}

}  // namespace roost
