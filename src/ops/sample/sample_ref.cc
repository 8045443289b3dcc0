// The float64 reference of sample: sort, cut, cut, cut, draw.
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "ops/sample/sample.h"

namespace roost {
namespace {

struct Candidate {
  double logit, weight;
  int32_t id;
};

// S: partial sums of 4096 ids, ids ascending.
double total_weight(std::vector<Candidate> left) {
  std::sort(left.begin(), left.end(),
            [](const Candidate& a, const Candidate& b) { return a.id < b.id; });
  double total = 0, part = 0;
  for (size_t i = 0; i < left.size(); ++i) {
    part += left[i].weight;
    if (i + 1 == left.size() || left[i + 1].id / 4096 != left[i].id / 4096) {
      total += part;
      part = 0;
    }
  }
  return total;
}

void keep_top_p(std::vector<Candidate>& left, double top_p) {
  const double wanted = top_p * total_weight(left);
  double sum = 0;
  size_t n_kept = 0;
  while (n_kept < left.size() && (n_kept == 0 || sum < wanted)) sum += left[n_kept++].weight;
  left.resize(n_kept);
}

int32_t sample_row(const Sample& op, int64_t row) {
  const SampleParams& p = op.params[static_cast<size_t>(row)];
  const uint32_t* mask = op.masks.empty() ? nullptr : op.masks[static_cast<size_t>(row)];
  std::vector<Candidate> left;
  for (int64_t id = 0; id < op.n_tokens; ++id) {
    const double z = op.logits.get(row * op.logits.dim(1) + id);
    if (std::isnan(z) || z == std::numeric_limits<double>::infinity()) return -1;
    if (mask != nullptr && ((mask[id / 32] >> (id % 32)) & 1) == 0) continue;
    if (std::isfinite(z)) left.push_back({z, 0, static_cast<int32_t>(id)});
  }
  if (left.empty()) return -1;
  std::sort(left.begin(), left.end(), [](const Candidate& a, const Candidate& b) {
    return a.logit != b.logit ? a.logit > b.logit : a.id < b.id;
  });
  if (p.temperature == 0) return left[0].id;
  if (p.top_k > 0 && static_cast<size_t>(p.top_k) < left.size())
    left.resize(static_cast<size_t>(p.top_k));
  const double largest = left[0].logit;
  for (Candidate& c : left) c.weight = std::exp((c.logit - largest) / p.temperature);
  if (p.top_p < 1) keep_top_p(left, p.top_p);
  int32_t winner = -1;
  double best = 0;
  for (const Candidate& c : left) {
    if (c.weight < p.min_p) continue;
    const double value = c.logit / p.temperature + gumbel_noise(p.seed, p.position, c.id);
    if (winner < 0 || value > best || (value == best && c.id < winner)) {
      winner = c.id;
      best = value;
    }
  }
  return winner;
}

}  // namespace

void sample_reference(const Sample& op, const ReferenceRules&) {
  for (int64_t row = 0; row < op.logits.dim(0); ++row) op.tokens.set(row, sample_row(op, row));
}

}  // namespace roost
