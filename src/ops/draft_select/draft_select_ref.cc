// The float64 reference of draft_select: sort, score, sort, cut, draw.
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "ops/draft_select/draft_select.h"

namespace roost {
namespace {

struct Candidate {
  int32_t id;
  double logit, score = 0, weight = 0;
};

bool comes_before(const Candidate& a, const Candidate& b) {
  return a.logit != b.logit ? a.logit > b.logit : a.id < b.id;
}

// The k largest of a row; none when the row is not sound.
std::vector<Candidate> candidates_of(const DraftSelect& op, int64_t row) {
  std::vector<Candidate> all;
  for (int64_t id = 0; id < op.n_tokens; ++id) {
    const double z = op.logits.get(row * op.logits.dim(1) + id);
    if (std::isnan(z) || z == std::numeric_limits<double>::infinity()) return {};
    all.push_back({static_cast<int32_t>(id), z});
  }
  std::sort(all.begin(), all.end(), comes_before);
  all.resize(static_cast<size_t>(op.ids.dim(1)));
  if (std::isinf(all.back().logit)) return {};
  return all;
}

double score_of(const DraftSelect& op, const Candidate& c, int64_t row, int32_t previous) {
  double score = op.multiplier * c.logit;
  if (op.softcap > 0) score = op.softcap * std::tanh(score / op.softcap);
  if (!op.hidden.exists()) return score;
  const int64_t rank = op.hidden.dim(1);
  double pair = 0;
  for (int64_t r = 0; r < rank; ++r)
    pair += op.predecessor->decode(previous, r) * op.hidden.get(row * rank + r) *
            op.successor->decode(c.id, r);
  return score + pair;
}

int32_t draw(std::vector<Candidate> left, const SampleParams& p, int64_t position) {
  std::sort(left.begin(), left.end(), [](const Candidate& a, const Candidate& b) {
    return a.score != b.score ? a.score > b.score : comes_before(a, b);
  });
  if (p.temperature == 0) return left[0].id;
  if (p.top_k > 0 && static_cast<size_t>(p.top_k) < left.size())
    left.resize(static_cast<size_t>(p.top_k));
  double total = 0;
  for (Candidate& c : left) {
    c.weight = std::exp((c.score - left[0].score) / p.temperature);
    total += c.weight;
  }
  if (p.top_p < 1) {
    double sum = 0;
    size_t n_kept = 0;
    while (n_kept < left.size() && (n_kept == 0 || sum < p.top_p * total))
      sum += left[n_kept++].weight;
    left.resize(n_kept);
  }
  int32_t winner = -1;
  double best = 0;
  for (const Candidate& c : left) {
    if (c.weight < p.min_p) continue;
    const double value = c.score / p.temperature + gumbel_noise(p.seed, position, c.id);
    if (winner >= 0 && value <= best) continue;
    winner = c.id;
    best = value;
  }
  return winner;
}

void walk_rows(const DraftSelect& op, const DraftWalk& walk) {
  const int64_t k = op.ids.dim(1);
  int32_t previous = walk.anchor;
  for (int64_t j = 0; j < walk.n_rows; ++j) {
    const int64_t row = walk.first_row + j;
    std::vector<Candidate> left = previous < 0 ? std::vector<Candidate>() : candidates_of(op, row);
    for (Candidate& c : left) c.score = score_of(op, c, row, previous);
    const bool is_sound = std::all_of(left.begin(), left.end(),
                                      [](const Candidate& c) { return std::isfinite(c.score); });
    if (!is_sound) left.clear();
    for (size_t i = 0; i < static_cast<size_t>(k); ++i) {
      const int64_t at = row * k + static_cast<int64_t>(i);
      op.ids.set(at, left.empty() ? -1 : left[i].id);
      op.scores.set(at, left.empty() ? NAN : left[i].score);
    }
    previous = left.empty() ? -1 : draw(left, walk.params, walk.params.position + j);
    op.tokens.set(row, previous);
  }
}

}  // namespace

void draft_select_reference(const DraftSelect& op, const ReferenceRules&) {
  for (const DraftWalk& walk : op.walks) walk_rows(op, walk);
}

}  // namespace roost
