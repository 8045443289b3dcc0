#include "engine/speculation/depth.h"

#include <algorithm>

#include "base/check.h"

namespace roost {

namespace {

// Rows that a plan adds to the plain step.
struct Plan {
  int64_t n_drafts = 0;      // rows of the target
  int64_t n_block_rows = 0;  // rows of the drafter
  double n_tokens = 0;       // expected, all streams

  double ms(const PlainStep& plain, const DraftCosts& costs) const {
    const double step = costs.step.estimate(plain.n_rows + n_drafts, plain.context);
    return n_block_rows > 0 ? step + costs.draft.estimate(n_block_rows, plain.context) : step;
  }
  double worth(const PlainStep& plain, const DraftCosts& costs) const {
    return n_tokens / ms(plain, costs);
  }
  void add_draft(const DraftOption& option, int32_t depth) {
    n_drafts += 1;
    if (option.source == DraftSource::kDrafter) n_block_rows += depth == 1 ? 2 : 1;
    n_tokens += option.acceptance->survival(depth);
  }
};

// The stream whose next draft is likeliest to hold, the earliest of equals; options.size(): none
// has another.
size_t likeliest(std::span<const DraftOption> options, std::span<const int32_t> depths) {
  size_t found = options.size();
  double highest = -1;
  for (size_t i = 0; i < options.size(); ++i) {
    if (depths[i] >= options[i].drafts_max) continue;
    const double survival = options[i].acceptance->survival(depths[i] + 1);
    if (survival > highest) found = i, highest = survival;
  }
  return found;
}

}  // namespace

double worth_of(const DraftOption& option, int32_t depth, const PlainStep& plain,
                const DraftCosts& costs) {
  Plan plan{.n_tokens = 1};
  for (int32_t d = 1; d <= depth; ++d) plan.add_draft(option, d);
  return plan.worth(plain, costs);
}

void plan_depths(std::span<const DraftOption> options, const PlainStep& plain, int64_t total_max,
                 const DraftCosts& costs, std::span<int32_t> depths) {
  ROOST_CHECK(depths.size() == options.size());
  int64_t n_best = 0;
  double best = 0;
  // The n-th row added is the same whatever the number kept, so the second pass repeats the first
  // one up to the best number.
  for (const bool is_search : {true, false}) {
    std::fill(depths.begin(), depths.end(), 0);
    Plan plan{.n_tokens = static_cast<double>(options.size())};
    if (is_search) best = plan.worth(plain, costs);
    while (plan.n_drafts < (is_search ? total_max : n_best)) {
      const size_t i = likeliest(options, depths);
      if (i == options.size()) break;
      plan.add_draft(options[i], ++depths[i]);
      if (!is_search) continue;
      const double worth = plan.worth(plain, costs);
      if (worth > best) best = worth, n_best = plan.n_drafts;
    }
  }
}

int32_t depth_of_try(const DraftOption& option, const PlainStep& plain, const DraftCosts& costs) {
  constexpr int32_t kDepthMax = 7;  // half a block tells most
  Plan plan{.n_tokens = 1};
  const double ms_max = 1.5 * plan.ms(plain, costs);
  int32_t depth = std::min(1, option.drafts_max);
  for (int32_t d = 1; d <= std::min(option.drafts_max, kDepthMax); ++d) {
    plan.add_draft(option, d);
    if (plan.ms(plain, costs) <= ms_max) depth = d;
  }
  return depth;
}

int32_t Probe::depth(int32_t planned, int32_t of_try, int32_t most) {
  of_try = std::min(of_try, most);
  is_try_ = false;
  if (of_try == 0) return 0;
  if (is_first_ || deeper_ > planned) {
    const int32_t n = std::max({planned, of_try, std::min(deeper_, most)});
    is_first_ = false;
    deeper_ = 0;
    is_try_ = n > planned;
    return n;
  }
  deeper_ = 0;
  if (planned > 0) {
    wait_ = kFirstWait;
    n_plain_ = 0;
    return planned;
  }
  if (++n_plain_ < wait_) return 0;
  n_plain_ = 0;
  wait_ = std::min(2 * wait_, kWaitMax);
  is_try_ = true;
  return of_try;
}

void Probe::note(int32_t n_drafted, bool all_held) {
  deeper_ = is_try_ && n_drafted > 0 && all_held ? 2 * n_drafted + 1 : 0;
}

Probe Probe::of_next() const {
  Probe next = *this;
  next.is_try_ = false;
  next.deeper_ = 0;
  next.wait_ = std::min(wait_, kWaitOfNextMax);
  return next;
}

}  // namespace roost
