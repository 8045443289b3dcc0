// The float64 reference of attention.
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "ops/attention/attention.h"
#include "ops/reference.h"

namespace roost {
namespace {

// Numerator, denominator and running maximum over some keys of one row and head.
struct Softmax {
  double maximum = -std::numeric_limits<double>::infinity();
  double sum = 0;
  std::vector<double> output;

  void raise(double new_maximum) {
    const double factor = std::exp2(maximum - new_maximum);
    maximum = new_maximum;
    sum *= factor;
    for (double& o : output) o *= factor;
  }
};

struct Place {
  int64_t row, head, kv_head, position;
  const int32_t* page_table;
};

// Of the page's KV head and slot.
int64_t slot_at(const Attention& op, const Place& place, int64_t token) {
  const int64_t page = place.page_table[token / kPageTokens];
  return (page * op.k_pages.dim(1) + place.kv_head) * kPageTokens + token % kPageTokens;
}

double value_at(const Attention& op, int64_t slot, int64_t i) {
  const int64_t dim = op.q.dim(2);
  if (!op.has_codes()) return op.v_pages.get(slot * dim + i);
  return op.v_pages.get((slot / kPageTokens * dim + i) * kPageTokens + slot % kPageTokens);
}

void add_tile(const Attention& op, const ReferenceRules& rules, const Place& place, int64_t begin,
              int64_t end, Softmax& total) {
  const int64_t dim = op.q.dim(2);
  const int64_t q_at = (place.row * op.q.dim(1) + place.head) * dim;
  std::vector<double> scores;
  for (int64_t token = begin; token < end; ++token) {
    const int64_t at = slot_at(op, place, token);
    double dot = 0;
    for (int64_t i = 0; i < dim; ++i) dot += op.q.get(q_at + i) * op.k_pages.get(at * dim + i);
    if (op.has_codes()) dot *= op.k_scales.get(at);
    scores.push_back(dot * op.scale * 1.4426950408889634);
  }
  total.raise(std::max(total.maximum, *std::max_element(scores.begin(), scores.end())));
  for (int64_t token = begin; token < end; ++token) {
    const double score = scores[static_cast<size_t>(token - begin)];
    const double probability = std::exp2(score - total.maximum);
    const int64_t at = slot_at(op, place, token);
    total.sum += rounded(rules, probability);
    const double weight =
        rounded(rules, op.has_codes() ? probability * op.v_scales.get(at) : probability);
    for (int64_t i = 0; i < dim; ++i)
      total.output[static_cast<size_t>(i)] += weight * value_at(op, at, i);
  }
}

void attend(const Attention& op, const ReferenceRules& rules, const Place& place) {
  const auto dim = static_cast<size_t>(op.q.dim(2));
  const int64_t n_keys = place.position + 1;
  const int64_t per_split = keys_per_split(static_cast<int32_t>(place.position));
  Softmax total{.output = std::vector<double>(dim)};
  for (int64_t begin = 0; begin < n_keys; begin += per_split) {
    Softmax split{.output = std::vector<double>(dim)};
    const int64_t end = std::min(begin + per_split, n_keys);
    for (int64_t tile = begin; tile < end; tile += kPageTokens)
      add_tile(op, rules, place, tile, std::min(tile + kPageTokens, end), split);
    const double maximum = std::max(total.maximum, split.maximum);
    total.raise(maximum);
    split.raise(maximum);
    total.sum += split.sum;
    for (size_t i = 0; i < dim; ++i) total.output[i] += split.output[i];
  }
  for (size_t i = 0; i < dim; ++i) {
    const int64_t head_at = place.row * op.q.dim(1) + place.head, element = static_cast<int64_t>(i);
    const double gate = op.q_gate.get((head_at * 2 + 1) * op.q.dim(2) + element);
    const double o = rounded(rules, total.output[i] / total.sum);
    op.out.set(head_at * op.q.dim(2) + element, o / (1 + std::exp(-gate)));
  }
}

}  // namespace

void attention_reference(const Attention& op, const ReferenceRules& rules) {
  const int64_t n_heads = op.q.dim(1), heads_per_kv = n_heads / op.k_pages.dim(1);
  for (const RowSpan& span : op.spans) {
    for (int64_t r = 0; r < span.n_rows; ++r) {
      for (int64_t head = 0; head < n_heads; ++head)
        attend(op, rules,
               {.row = span.first_row + r,
                .head = head,
                .kv_head = head / heads_per_kv,
                .position = span.first_index + r,
                .page_table = span.page_table});
    }
  }
}

}  // namespace roost
