#include "engine/speculation/acceptance.h"

#include "base/check.h"

namespace roost {

namespace {

constexpr double kPriorRounds = 1;  // weight of the place in front, in rounds
constexpr double kMemory = 0.85;    // of a round in the next one: about the last seven count

}  // namespace

int32_t count_accepted(std::span<const int32_t> drafts, std::span<const int32_t> chosen) {
  ROOST_CHECK(chosen.size() >= drafts.size());
  size_t n = 0;
  while (n < drafts.size() && drafts[n] == chosen[n]) ++n;
  return static_cast<int32_t>(n);
}

void Acceptance::record(int32_t n_drafted, int32_t n_accepted) {
  ROOST_CHECK(n_accepted >= 0 && n_accepted <= n_drafted && n_drafted <= kDraftsMax);
  for (int32_t i = 0; i < n_drafted && i <= n_accepted; ++i) {
    const auto at = static_cast<size_t>(i);
    tries_[at] = kMemory * tries_[at] + 1;
    hits_[at] = kMemory * hits_[at] + (i < n_accepted ? 1 : 0);
  }
  update();
}

void Acceptance::update() {
  double in_front = first_guess_;
  survival_[0] = 1;
  for (size_t i = 0; i < tries_.size(); ++i) {
    in_front = (hits_[i] + kPriorRounds * in_front) / (tries_[i] + kPriorRounds);
    survival_[i + 1] = survival_[i] * in_front;
  }
}

void DraftFigures::record_round(int32_t n_rows_run, int32_t n_drafts, int32_t n_held) {
  ++n_rounds;
  n_rows += n_rows_run;
  n_drafted += n_drafts;
  n_accepted += n_held;
  for (int32_t i = 0; i < n_drafts; ++i) {
    drafted_at[static_cast<size_t>(i)] += 1;
    accepted_at[static_cast<size_t>(i)] += i < n_held ? 1 : 0;
  }
}

}  // namespace roost
