// draft_select on the CPU: vectors look for the candidates, of which there are few; float64 decides
// among them.
#include "ops/draft_select/draft_select.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/draft_select/draft_select_cpu.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace roost {
namespace HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

// Found so far: by falling logit, equal logits by ascending id. Ids are offered ascending, so an
// equal logit goes behind.
struct Found {
  const float* logits;
  int32_t* ids;
  size_t n_max;
  size_t n = 0;

  float floor() const {
    return n < n_max ? -std::numeric_limits<float>::infinity() : logits[ids[n - 1]];
  }
  void offer(size_t id) {
    if (!(logits[id] > floor())) return;
    size_t at = n < n_max ? n++ : n_max - 1;
    for (; at > 0 && logits[id] > logits[ids[at - 1]]; --at) ids[at] = ids[at - 1];
    ids[at] = static_cast<int32_t>(id);
  }
};

// The k largest of n; false when a logit is NaN or +inf, or fewer than k are above -inf.
bool find_candidates(const float* logits, size_t n, int32_t* ids, size_t k) {
  const hn::ScalableTag<float> d;
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  Found found{logits, ids, k};
  size_t i = 0;
  for (; i + hn::Lanes(d) <= n; i += hn::Lanes(d)) {
    const auto z = hn::LoadU(d, logits + i);
    if (!hn::AllTrue(d, hn::Lt(z, hn::Set(d, kInfinity)))) return false;  // NaN is not less
    if (hn::AllFalse(d, hn::Gt(z, hn::Set(d, found.floor())))) continue;
    for (size_t lane = 0; lane < hn::Lanes(d); ++lane) found.offer(i + lane);
  }
  for (; i < n; ++i) {
    if (!(logits[i] < kInfinity)) return false;
    found.offer(i);
  }
  return found.n == k;
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace roost
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace roost {

HWY_EXPORT(find_candidates);

namespace {

using Scores = std::array<double, DraftSelect::kCandidatesMax>;

// One row's place in the op.
struct Row {
  const DraftSelect& op;
  int64_t row;
  size_t k;
  int32_t* ids;

  // False: they are not all finite.
  bool score(int32_t previous, Scores& scores) const {
    const float* logits = op.logits.as<float>() + row * op.logits.dim(1);
    for (size_t i = 0; i < k; ++i) {
      double u = op.multiplier * static_cast<double>(logits[ids[i]]);
      if (op.softcap > 0) u = op.softcap * std::tanh(u / op.softcap);
      scores[i] = u + (op.hidden.exists() ? pair(previous, ids[i]) : 0.0);
    }
    return std::all_of(scores.begin(), scores.begin() + static_cast<std::ptrdiff_t>(k),
                       [](double score) { return std::isfinite(score); });
  }
  double pair(int32_t previous, int32_t id) const {
    const int64_t rank = op.hidden.dim(1);
    const float* hidden = op.hidden.as<float>() + row * rank;
    double sum = 0;
    for (int64_t r = 0; r < rank; ++r)
      sum += op.predecessor->decode(previous, r) * static_cast<double>(hidden[r]) *
             op.successor->decode(id, r);
    return sum;
  }
};

// Index of the candidate that is drawn.
size_t draw(const Scores& scores, const int32_t* ids, size_t k, const SampleParams& p,
            int64_t position) {
  std::array<size_t, DraftSelect::kCandidatesMax> order;
  for (size_t i = 0; i < k; ++i) order[i] = i;
  std::sort(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(k), [&](size_t a, size_t b) {
    return scores[a] != scores[b] ? scores[a] > scores[b] : a < b;
  });
  if (p.temperature == 0) return order[0];
  const auto weight = [&](size_t i) {
    return std::exp((scores[i] - scores[order[0]]) / p.temperature);
  };
  size_t n = p.top_k > 0 ? std::min(k, static_cast<size_t>(p.top_k)) : k;
  if (p.top_p < 1) {
    double total = 0, sum = 0;
    for (size_t i = 0; i < n; ++i) total += weight(order[i]);
    const double wanted = p.top_p * total;
    size_t n_kept = 0;
    do sum += weight(order[n_kept++]);
    while (n_kept < n && sum < wanted);
    n = n_kept;
  }
  size_t winner = order[0];
  double best = -std::numeric_limits<double>::infinity();
  for (size_t i = 0; i < n; ++i) {
    const size_t at = order[i];
    if (weight(at) < p.min_p) break;  // weights fall
    const double value = scores[at] / p.temperature + gumbel_noise(p.seed, position, ids[at]);
    if (value > best) winner = at, best = value;
  }
  return winner;
}

void walk_rows(const DraftSelect& op, const DraftWalk& walk) {
  const auto k = static_cast<size_t>(op.ids.dim(1));
  int32_t previous = walk.anchor;
  for (int32_t j = 0; j < walk.n_rows; ++j) {
    const int64_t t = walk.first_row + j;
    const Row row{op, t, k, op.ids.as<int32_t>() + t * op.ids.dim(1)};
    float* out = op.scores.as<float>() + t * op.ids.dim(1);
    Scores scores;
    if (previous < 0 || row.ids[0] < 0 || !row.score(previous, scores)) {
      std::fill_n(row.ids, k, -1);
      std::fill_n(out, k, std::numeric_limits<float>::quiet_NaN());
      op.tokens.as<int32_t>()[t] = previous = -1;
      continue;
    }
    for (size_t i = 0; i < k; ++i) out[i] = static_cast<float>(scores[i]);
    previous = row.ids[draw(scores, row.ids, k, walk.params, walk.params.position + j)];
    op.tokens.as<int32_t>()[t] = previous;
  }
}

}  // namespace

void draft_select_cpu(const DraftSelect& op, CpuContext& context) {
  check(op);
  const auto find = HWY_DYNAMIC_DISPATCH(find_candidates);
  const auto k = static_cast<size_t>(op.ids.dim(1));
  context.pool.parallel_for(op.logits.dim(0), [&](int64_t t) {
    int32_t* ids = op.ids.as<int32_t>() + t * op.ids.dim(1);
    const float* logits = op.logits.as<float>() + t * op.logits.dim(1);
    if (!find(logits, static_cast<size_t>(op.n_tokens), ids, k)) ids[0] = -1;
  });
  context.pool.parallel_for(static_cast<int64_t>(op.walks.size()),
                            [&](int64_t w) { walk_rows(op, op.walks[static_cast<size_t>(w)]); });
}

}  // namespace roost
#endif
