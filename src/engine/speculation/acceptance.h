// What a stream's verified rounds have shown about its drafts.
#pragma once

#include <array>
#include <cstdint>
#include <span>

namespace roost {

inline constexpr int32_t kDraftsMax = 15;  // of one round: a block without its anchor

// How many of the drafts the target would have drawn itself: chosen[i] is the target's token behind
// row i (row 0 is the anchor's), drafts[i] the guess at it. chosen.size() >= drafts.size().
int32_t count_accepted(std::span<const int32_t> drafts, std::span<const int32_t> chosen);

// How often each draft of a round holds, given that those in front of it did. Recent rounds count
// more, and a place that was seldom reached follows the one in front of it.
class Acceptance {
 public:
  // A round of n_drafted drafts of which the first n_accepted held.
  void record(int32_t n_drafted, int32_t n_accepted);
  // What was seen lies long back: the next round tells more than all of it.
  void fade();
  // Probability that the first n drafts all hold; falls with n. n in [0, kDraftsMax].
  double survival(int32_t n) const { return survival_[static_cast<size_t>(n)]; }

  // first_guess: how often a draft holds in a stream of which nothing is known.
  explicit Acceptance(double first_guess = 0.7) : first_guess_(first_guess) { update(); }

 private:
  void update();
  double first_guess_;
  // Index i: draft i + 1.
  std::array<double, kDraftsMax> tries_{}, hits_{};
  std::array<double, kDraftsMax + 1> survival_{};
};

// Counts of a reply, for people, behind its first token, which the prompt's rows give. A round is a
// step in which a stream brings drafts. Accept length is tokens per round or plain step: accepted
// drafts and the target's own token, an end token too.
struct DraftFigures {
  int64_t n_rounds = 0;       // steps with drafts
  int64_t n_plain_steps = 0;  // steps that drew one token without drafts
  int64_t n_rows = 0;         // rows verified in rounds, the anchors' included
  int64_t n_drafted = 0, n_accepted = 0;
  int64_t n_copied = 0;  // of n_drafted: copies of earlier text
  int64_t n_tokens = 0;  // of rounds and plain steps
  int64_t draft_ns = 0;  // that the reply waited for its drafter's blocks, others' in them included
  std::array<int64_t, kDraftsMax> accepted_at{};  // rounds in which draft i + 1 held
  std::array<int64_t, kDraftsMax> drafted_at{};   // rounds that had a draft i + 1

  void add(const DraftFigures& other);  // another reply's
  void record_round(int32_t n_rows_run, int32_t n_drafts, int32_t n_held);
  double accept_length() const {
    const int64_t n = n_rounds + n_plain_steps;
    return n == 0 ? 0 : static_cast<double>(n_tokens) / static_cast<double>(n);
  }
};

}  // namespace roost
