// The float64 reference of conv_gates.
#include <cmath>
#include <vector>

#include "ops/conv_gates/conv_gates.h"
#include "ops/reference.h"

namespace roost {
namespace {

// Packed row `p` of a sequence, element i: rows before the first lie in the tail, the first
// n_replay in the row store, the others among the rows of the step.
double packed_at(const DeltaSpan& span, int64_t p, int64_t i, const Tensor& rows,
                 const Tensor& store) {
  const int64_t width = rows.dim(1);
  if (p < span.n_replay) return store.get((span.slot * store.dim(1) + p) * width + i);
  return rows.get((span.first_row + p - span.n_replay) * width + i);
}

double raw_at(const ConvGates& op, const DeltaSpan& span, int64_t p, int64_t ch) {
  if (p < 0) return op.tail.get((int64_t{span.slot} * 3 + 3 + p) * op.tail.dim(2) + ch);
  return packed_at(span, p, ch, op.qkv, op.store_qkv);
}

// Channel ch of packed row p behind convolution and activation, not yet rounded.
double convolved(const ConvGates& op, const DeltaSpan& span, int64_t p, int64_t ch) {
  double sum = 0;
  for (int64_t i = 0; i < 4; ++i)
    sum += op.conv_weight.get(ch * 4 + i) * raw_at(op, span, p - 3 + i, ch);
  return sum / (1 + std::exp(-sum));
}

void normalize_key_head(const ConvGates& op, const ReferenceRules& rules, const DeltaSpan& span,
                        int64_t p, int64_t head) {
  const int64_t n_heads = op.q.dim(1), dim = op.q.dim(2);
  const int64_t row = span.first_packed + p;
  std::vector<double> q(static_cast<size_t>(dim)), k(q.size());
  double q_squares = 0, k_squares = 0;
  for (size_t i = 0; i < q.size(); ++i) {
    const int64_t ch = head * dim + static_cast<int64_t>(i);
    q[i] = rounded(rules, convolved(op, span, p, ch));
    k[i] = rounded(rules, convolved(op, span, p, n_heads * dim + ch));
    q_squares += q[i] * q[i];
    k_squares += k[i] * k[i];
  }
  double sum = 0;
  for (size_t i = 0; i < q.size(); ++i) {
    const int64_t at = (row * n_heads + head) * dim + static_cast<int64_t>(i);
    q[i] = q[i] / std::sqrt(q_squares + 1e-6) / std::sqrt(static_cast<double>(dim));
    k[i] = k[i] / std::sqrt(k_squares + 1e-6);
    op.q.set(at, q[i]);
    op.k.set(at, k[i]);
    sum += rounded(rules, k[i]) * rounded(rules, q[i]);
  }
  op.kq.set(row * n_heads + head, sum);
}

void gates(const ConvGates& op, const DeltaSpan& span, int64_t p) {
  const int64_t n_heads = op.v.dim(1);
  for (int64_t j = 0; j < n_heads; ++j) {
    const int64_t at = (span.first_packed + p) * n_heads + j;
    const double b = packed_at(span, p, j, op.b, op.store_b);
    const double x = packed_at(span, p, j, op.a, op.store_a) + op.dt_bias.get(j);
    const double softplus = std::fmax(x, 0) + std::log1p(std::exp(-std::fabs(x)));
    op.beta.set(at, 1 / (1 + std::exp(-b)));
    op.decay.set(at, std::exp(-std::exp(op.a_log.get(j)) * softplus));
  }
}

// Rows `first`, first + 1, … of one tensor's packed rows, taken out before anything is written.
std::vector<double> taken_rows(const DeltaSpan& span, int64_t first, int64_t n, const Tensor& rows,
                               const Tensor& store) {
  std::vector<double> values;
  for (int64_t p = first; p < first + n; ++p) {
    for (int64_t i = 0; i < rows.dim(1); ++i) values.push_back(packed_at(span, p, i, rows, store));
  }
  return values;
}

void put(const std::vector<double>& values, const Tensor& tensor, int64_t slot) {
  const int64_t stride = tensor.dim(1) * tensor.dim(2);
  for (size_t i = 0; i < values.size(); ++i)
    tensor.set(slot * stride + static_cast<int64_t>(i), values[i]);
}

void keep_rows(const ConvGates& op, const DeltaSpan& span) {
  std::vector<double> tail;
  for (int64_t p = span.store_after - 3; p < span.store_after; ++p) {
    for (int64_t ch = 0; ch < op.qkv.dim(1); ++ch) tail.push_back(raw_at(op, span, p, ch));
  }
  const int64_t n_kept = span.n_packed() - span.store_after;
  if (n_kept > 0) {
    const int64_t first = span.store_after;
    const std::vector<double> qkv = taken_rows(span, first, n_kept, op.qkv, op.store_qkv);
    const std::vector<double> b = taken_rows(span, first, n_kept, op.b, op.store_b);
    const std::vector<double> a = taken_rows(span, first, n_kept, op.a, op.store_a);
    put(qkv, op.store_qkv, span.slot);
    put(b, op.store_b, span.slot);
    put(a, op.store_a, span.slot);
  }
  put(tail, op.tail, span.slot);
}

}  // namespace

void conv_gates_reference(const ConvGates& op, const ReferenceRules& rules) {
  const int64_t key_width = op.q.dim(1) * op.q.dim(2), value_width = op.v.dim(1) * op.v.dim(2);
  for (const DeltaSpan& span : op.spans) {
    for (int64_t p = 0; p < span.n_packed(); ++p) {
      for (int64_t head = 0; head < op.q.dim(1); ++head)
        normalize_key_head(op, rules, span, p, head);
      for (int64_t i = 0; i < value_width; ++i)
        op.v.set((span.first_packed + p) * value_width + i,
                 convolved(op, span, p, 2 * key_width + i));
      gates(op, span, p);
    }
    keep_rows(op, span);
  }
}

}  // namespace roost
