// The float64 reference of qk_norm_rope_append.
#include <cmath>
#include <vector>

#include "ops/qk_norm_rope_append/qk_norm_rope_append.h"

namespace roost {
namespace {

// The head that starts at element `at` of `heads`, normalized and rotated for row t.
std::vector<double> rotated_head(const QkNormRopeAppend& op, const Tensor& heads, int64_t at,
                                 const Tensor& weight, int64_t t) {
  const auto dim = static_cast<size_t>(op.k_pages.dim(3));
  std::vector<double> n(dim);
  double squares = 0;
  for (size_t i = 0; i < dim; ++i) {
    n[i] = heads.get(at + static_cast<int64_t>(i));
    squares += n[i] * n[i];
  }
  const double scale = 1 / std::sqrt(squares / static_cast<double>(dim) + op.eps);
  for (size_t i = 0; i < dim; ++i) n[i] *= weight.get(static_cast<int64_t>(i)) * scale;
  const int64_t n_pairs = op.rope.dim(1);
  for (int64_t i = 0; i < n_pairs; ++i) {
    const double c = op.rope.get((t * n_pairs + i) * 2), s = op.rope.get((t * n_pairs + i) * 2 + 1);
    double& a = n[static_cast<size_t>(i)];
    double& b = n[static_cast<size_t>(i + n_pairs)];
    const double turned_a = a * c - b * s, turned_b = b * c + a * s;
    a = turned_a;
    b = turned_b;
  }
  return n;
}

void put(const std::vector<double>& values, const Tensor& tensor, int64_t at) {
  for (size_t i = 0; i < values.size(); ++i) tensor.set(at + static_cast<int64_t>(i), values[i]);
}

}  // namespace

void qk_norm_rope_append_reference(const QkNormRopeAppend& op, const ReferenceRules&) {
  const int64_t n_heads = op.n_heads(), dim = op.k_pages.dim(3), kv_heads = op.k_pages.dim(1);
  for (const RowSpan& span : op.spans) {
    for (int64_t r = 0; r < span.n_rows; ++r) {
      const int64_t t = span.first_row + r, token = span.first_index + r;
      for (int64_t j = 0; j < n_heads; ++j)
        put(rotated_head(op, op.q_gate, (t * n_heads + j) * 2 * dim, op.q_weight, t), op.q,
            (t * n_heads + j) * dim);
      const int64_t page = span.page_table[token / kPageTokens];
      for (int64_t g = 0; g < kv_heads; ++g) {
        const int64_t from = (t * kv_heads + g) * dim;
        const int64_t to = ((page * kv_heads + g) * kPageTokens + token % kPageTokens) * dim;
        put(rotated_head(op, op.k, from, op.k_weight, t), op.k_pages, to);
        for (int64_t i = 0; i < dim; ++i) op.v_pages.set(to + i, op.v.get(from + i));
      }
    }
  }
}

}  // namespace roost
