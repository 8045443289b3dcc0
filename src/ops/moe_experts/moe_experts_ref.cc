// The float64 reference of moe_experts: expert by expert, each over the rows that chose it.
#include <cstring>
#include <vector>

#include "ops/moe_experts/moe_experts.h"
#include "ops/reference.h"

namespace roost {
namespace {

// A row of the step and the slot its result goes to.
struct Place {
  int64_t row, slot;
};

double dot(const double* x, const std::vector<double>& w) {
  double sum = 0;
  for (size_t i = 0; i < w.size(); ++i) sum += x[i] * w[i];
  return sum;
}

void run_expert(const MoeExperts& op, const GatedMlp& mlp, const std::vector<Place>& places,
                const ReferenceRules& rules) {
  const int64_t hidden = op.x.dim(1), width = mlp.gate.n_out, n_slots = op.y.dim(1);
  const auto h = static_cast<size_t>(hidden), m = static_cast<size_t>(width);
  const std::vector<double> x_gate = product_input(op.x, mlp.gate, rules);
  const std::vector<double> x_up = product_input(op.x, mlp.up, rules);
  std::vector<double> gate(h), up(h), inner(places.size() * m);
  for (size_t j = 0; j < m; ++j) {
    decode_row(mlp.gate, static_cast<int64_t>(j), gate, rules);
    decode_row(mlp.up, static_cast<int64_t>(j), up, rules);
    for (size_t p = 0; p < places.size(); ++p) {
      const size_t at = static_cast<size_t>(places[p].row) * h;
      inner[p * m + j] =
          rounded(rules, silu(dot(x_gate.data() + at, gate)) * dot(x_up.data() + at, up));
    }
  }
  const Tensor inner_rows{reinterpret_cast<std::byte*>(inner.data()),
                          DType::kF64,
                          {static_cast<int64_t>(places.size()), width}};
  const std::vector<double> x_down = product_input(inner_rows, mlp.down, rules);
  std::vector<double> down(m);
  for (int64_t i = 0; i < hidden; ++i) {
    decode_row(mlp.down, i, down, rules);
    for (size_t p = 0; p < places.size(); ++p)
      op.y.set((places[p].row * n_slots + places[p].slot) * hidden + i,
               dot(x_down.data() + p * m, down));
  }
}

}  // namespace

void moe_experts_reference(const MoeExperts& op, const ReferenceRules& rules) {
  const int64_t n_rows = op.x.dim(0), n_chosen = op.ids.dim(1);
  for (size_t e = 0; e < op.experts.size(); ++e) {
    std::vector<Place> places;
    for (int64_t t = 0; t < n_rows; ++t) {
      for (int64_t s = 0; s < n_chosen; ++s) {
        if (static_cast<size_t>(op.ids.get(t * n_chosen + s)) == e) places.push_back({t, s});
      }
    }
    if (!places.empty()) run_expert(op, op.experts[e], places, rules);
  }
  if (op.shared == nullptr) return;
  std::vector<Place> places;
  for (int64_t t = 0; t < n_rows; ++t) places.push_back({t, n_chosen});
  run_expert(op, *op.shared, places, rules);
}

}  // namespace roost
