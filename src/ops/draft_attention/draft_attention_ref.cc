// The float64 reference of draft_attention.
#include <algorithm>
#include <cmath>
#include <vector>

#include "ops/draft_attention/draft_attention.h"

namespace roost {
namespace {

using Vector = std::vector<double>;

// Head `head` of row t of `heads`, normalized and rotated.
Vector turned_head(const DraftAttention& op, const Tensor& heads, int64_t t, int64_t head,
                   const Tensor& weight) {
  const int64_t dim = op.dim(), half = dim / 2, at = t * heads.dim(1) + head * dim;
  double squares = 0;
  for (int64_t i = 0; i < dim; ++i) squares += heads.get(at + i) * heads.get(at + i);
  const double scale = 1 / std::sqrt(squares / static_cast<double>(dim) + op.eps);
  Vector turned(static_cast<size_t>(dim));
  for (int64_t i = 0; i < half; ++i) {
    const double a = heads.get(at + i) * scale * weight.get(i);
    const double b = heads.get(at + i + half) * scale * weight.get(i + half);
    const double c = op.rope.get((t * half + i) * 2), s = op.rope.get((t * half + i) * 2 + 1);
    turned[static_cast<size_t>(i)] = a * c - b * s;
    turned[static_cast<size_t>(i + half)] = b * c + a * s;
  }
  return turned;
}

Vector part_of(const Tensor& tensor, int64_t at, int64_t n) {
  Vector values;
  for (int64_t i = 0; i < n; ++i) values.push_back(tensor.get(at + i));
  return values;
}

struct Pairs {
  std::vector<Vector> keys, values;
};

// What row j of the block sees, of KV head g.
Pairs seen_by(const DraftAttention& op, const DraftSpan& span, int64_t j, int64_t g) {
  const int64_t dim = op.dim(), position = span.position + j;
  Pairs seen;
  for (int64_t c = span.context_begin; c < span.position; ++c) {
    if (op.window > 0 && c <= position - op.window) continue;
    const int64_t page = span.page_table[c / kPageTokens];
    const int64_t at = ((page * op.kv_heads() + g) * kPageTokens + c % kPageTokens) * dim;
    seen.keys.push_back(part_of(op.k_pages, at, dim));
    seen.values.push_back(part_of(op.v_pages, at, dim));
  }
  for (int64_t other = 0; other < span.n_rows; ++other) {
    if (op.is_causal && other > j) continue;
    const int64_t t = span.first_row + other;
    seen.keys.push_back(turned_head(op, op.k, t, g, op.k_weight));
    seen.values.push_back(part_of(op.v, t * op.v.dim(1) + g * dim, dim));
  }
  return seen;
}

Vector attend(const DraftAttention& op, const Vector& query, const Pairs& seen) {
  Vector scores;
  for (const Vector& key : seen.keys) {
    double dot = 0;
    for (size_t i = 0; i < key.size(); ++i) dot += query[i] * key[i];
    scores.push_back(dot * op.scale);
  }
  const double largest = *std::max_element(scores.begin(), scores.end());
  Vector out(query.size(), 0);
  double total = 0;
  for (size_t key = 0; key < scores.size(); ++key) {
    const double weight = std::exp(scores[key] - largest);
    total += weight;
    for (size_t i = 0; i < out.size(); ++i) out[i] += weight * seen.values[key][i];
  }
  for (double& o : out) o /= total;
  return out;
}

}  // namespace

void draft_attention_reference(const DraftAttention& op, const ReferenceRules&) {
  const int64_t dim = op.dim(), n_heads = op.q.dim(1) / dim;
  for (const DraftSpan& span : op.spans) {
    for (int64_t j = 0; j < span.n_rows; ++j) {
      const int64_t t = span.first_row + j;
      for (int64_t head = 0; head < n_heads; ++head) {
        const Pairs seen = seen_by(op, span, j, head / op.heads_per_kv());
        const Vector out = attend(op, turned_head(op, op.q, t, head, op.q_weight), seen);
        for (int64_t i = 0; i < dim; ++i)
          op.out.set((t * n_heads + head) * dim + i, out[static_cast<size_t>(i)]);
      }
    }
  }
}

}  // namespace roost
