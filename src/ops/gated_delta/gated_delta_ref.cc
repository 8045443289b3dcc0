// The float64 reference of gated_delta.
#include <cmath>
#include <vector>

#include "ops/gated_delta/gated_delta.h"
#include "ops/reference.h"

namespace roost {
namespace {

// One row of one value head: y, and the state behind the row.
std::vector<double> recur(const GatedDelta& op, int64_t row, int64_t head,
                          std::vector<double>& state) {
  const int64_t key_heads = op.q.dim(1), value_heads = op.v.dim(1);
  const int64_t key_head = head / (value_heads / key_heads);
  const auto key_dim = static_cast<size_t>(op.q.dim(2)), dim = static_cast<size_t>(op.v.dim(2));
  const int64_t key_at = (row * key_heads + key_head) * op.q.dim(2);
  const double beta = op.beta.get(row * value_heads + head);
  const double decay = op.decay.get(row * value_heads + head);
  const double kq = op.kq.get(row * key_heads + key_head);
  std::vector<double> m(dim, 0.0), n(dim, 0.0), delta(dim), y(dim);
  for (size_t i = 0; i < key_dim; ++i) {
    const double k = op.k.get(key_at + static_cast<int64_t>(i));
    const double q = op.q.get(key_at + static_cast<int64_t>(i));
    for (size_t c = 0; c < dim; ++c) {
      m[c] += state[i * dim + c] * k;
      n[c] += state[i * dim + c] * q;
    }
  }
  for (size_t c = 0; c < dim; ++c) {
    const double v = op.v.get((row * value_heads + head) * op.v.dim(2) + static_cast<int64_t>(c));
    delta[c] = beta * (v - decay * m[c]);
    y[c] = decay * n[c] + delta[c] * kq;
  }
  for (size_t i = 0; i < key_dim; ++i) {
    const double k = op.k.get(key_at + static_cast<int64_t>(i));
    for (size_t c = 0; c < dim; ++c) state[i * dim + c] = decay * state[i * dim + c] + k * delta[c];
  }
  return y;
}

void norm_and_gate(const GatedDelta& op, const ReferenceRules& rules, int64_t row, int64_t head,
                   std::vector<double> y) {
  double squares = 0;
  for (double& value : y) {
    value = rounded(rules, value);
    squares += value * value;
  }
  const double scale = 1 / std::sqrt(squares / static_cast<double>(y.size()) + op.eps);
  for (size_t c = 0; c < y.size(); ++c) {
    const int64_t at = row * op.z.dim(1) + head * op.v.dim(2) + static_cast<int64_t>(c);
    const double z = op.z.get(at);
    const double silu = z / (1 + std::exp(-z));
    op.out.set(at, y[c] * op.norm_weight.get(static_cast<int64_t>(c)) * scale * silu);
  }
}

}  // namespace

void gated_delta_reference(const GatedDelta& op, const ReferenceRules& rules) {
  const int64_t state_size = op.state.dim(2) * op.state.dim(3);
  for (const DeltaSpan& span : op.spans) {
    for (int64_t head = 0; head < op.v.dim(1); ++head) {
      const int64_t state_at = (span.slot * op.v.dim(1) + head) * state_size;
      std::vector<double> state(static_cast<size_t>(state_size));
      for (int64_t i = 0; i < state_size; ++i)
        state[static_cast<size_t>(i)] = op.state.get(state_at + i);
      for (int64_t p = 0; p < span.n_packed(); ++p) {
        const std::vector<double> y = recur(op, span.first_packed + p, head, state);
        if (p >= span.n_replay)
          norm_and_gate(op, rules, span.first_row + p - span.n_replay, head, y);
        if (p + 1 != span.store_after) continue;
        for (int64_t i = 0; i < state_size; ++i)
          op.state.set(state_at + i, state[static_cast<size_t>(i)]);
      }
    }
  }
}

}  // namespace roost
