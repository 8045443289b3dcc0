#include "engine/speculation/acceptance.h"

#include "base/check.h"

namespace roost {

namespace {

constexpr double kPriorRounds = 0.5;  // weight of the place in front, in rounds
// How far a place is doubted to be as good as the one in front: of the way to the first guess. One
// draft that held is no reason for a deep round.
constexpr double kDoubt = 0.25;
constexpr double kMemory = 0.85;  // of a round in the next one: about the last seven count

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

void Acceptance::fade() {
  constexpr double kFaded = 0.2;
  for (size_t i = 0; i < tries_.size(); ++i) tries_[i] *= kFaded, hits_[i] *= kFaded;
}

void Acceptance::update() {
  double in_front = first_guess_;
  survival_[0] = 1;
  for (size_t i = 0; i < tries_.size(); ++i) {
    const double guess = in_front + (i > 0 ? kDoubt * (first_guess_ - in_front) : 0);
    in_front = (hits_[i] + kPriorRounds * guess) / (tries_[i] + kPriorRounds);
    survival_[i + 1] = survival_[i] * in_front;
  }
}

void DraftFigures::add(const DraftFigures& other) {
  n_rounds += other.n_rounds;
  n_plain_steps += other.n_plain_steps;
  n_rows += other.n_rows;
  n_drafted += other.n_drafted;
  n_accepted += other.n_accepted;
  n_copied += other.n_copied;
  n_tokens += other.n_tokens;
  draft_ns += other.draft_ns;
  for (size_t i = 0; i < accepted_at.size(); ++i) {
    accepted_at[i] += other.accepted_at[i];
    drafted_at[i] += other.drafted_at[i];
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
