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

// Codes from `at` on, `stride` apart; the scale.
double put_codes(const std::vector<double>& values, const Tensor& codes, int64_t at,
                 int64_t stride) {
  double largest = 0;
  for (const double value : values)
    largest = std::isfinite(value) ? std::max(largest, std::abs(value)) : NAN;
  const double scale = largest < 0x1p-100 ? 0 : static_cast<float>(largest / 127);
  const bool has_values = scale > 0 && std::isfinite(scale);
  for (size_t i = 0; i < values.size(); ++i)
    codes.set(at + static_cast<int64_t>(i) * stride,
              has_values ? std::nearbyint(values[i] / scale) : 0);
  return scale;
}

// The key and the value of a token as codes: its head of a page, its slot there.
void append_codes(const QkNormRopeAppend& op, const std::vector<double>& key, int64_t value_at,
                  int64_t head, int64_t slot) {
  const int64_t dim = op.k_pages.dim(3), at = head * kPageTokens + slot;
  std::vector<double> value;
  for (int64_t i = 0; i < dim; ++i) value.push_back(op.v.get(value_at + i));
  op.k_scales.set(at, put_codes(key, op.k_pages, at * dim, 1));
  op.v_scales.set(at, put_codes(value, op.v_pages, head * dim * kPageTokens + slot, kPageTokens));
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
        const std::vector<double> key = rotated_head(op, op.k, from, op.k_weight, t);
        if (op.has_codes()) {
          append_codes(op, key, from, page * kv_heads + g, token % kPageTokens);
          continue;
        }
        put(key, op.k_pages, to);
        for (int64_t i = 0; i < dim; ++i) op.v_pages.set(to + i, op.v.get(from + i));
      }
    }
  }
}

}  // namespace roost
