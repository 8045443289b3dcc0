// What a request changes in its rows of logits before a token is drawn, and the probabilities that
// it wants to see (docs/SERVER.md, sampling).
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace roost {

inline constexpr double kNeverBias = -100;  // a token of this bias is never drawn

struct LogitAdjust {
  std::vector<std::pair<int32_t, double>> bias;  // token, what is added; each token once
  double presence = 0, frequency = 0;            // of kept tokens of the reply
  double repetition = 1;                         // of tokens of the prompt and the reply
  int64_t min_tokens = 0;  // before so many kept tokens the end and stop tokens are not drawn

  bool is_off() const {
    return bias.empty() && presence == 0 && frequency == 0 && repetition == 1 && min_tokens == 0;
  }
};

struct TokenLogprob {
  int32_t token = 0;
  float logprob = 0;  // natural logarithm
};

// Of one drawn token, from the raw logits: before biases, penalties, masks and temperature.
struct TokenLogprobs {
  float logprob = 0;              // of the drawn token
  std::vector<TokenLogprob> top;  // the likeliest, falling; ties by the lower token
};

// The history of one sequence as the penalties see it. All memory is taken at its making.
class PenaltyHistory {
 public:
  PenaltyHistory() = default;
  // n_tokens_max: of prompt and reply together. Takes 5 bytes per token of the vocabulary.
  PenaltyHistory(const LogitAdjust& adjust, std::span<const int32_t> prompt, int64_t vocabulary,
                 int64_t n_tokens_max);
  void keep(int32_t token);  // a kept token of the reply

  std::span<const int32_t> seen() const { return seen_; }  // each once, in order
  int32_t count(int32_t token) const { return counts_[static_cast<size_t>(token)]; }

 private:
  void note(int32_t token);

  std::vector<int32_t> counts_;  // of the reply, by token
  std::vector<uint8_t> is_seen_;
  std::vector<int32_t> seen_;
};

// Changes one row in place: z + bias; seen tokens z > 0 ? z / repetition : z * repetition; then
// - frequency * count - presence * [count > 0]; then masks to -inf. In float64, rounded once.
// masked: tokens that may not be drawn here.
void adjust_logits(const LogitAdjust& adjust, const PenaltyHistory& history,
                   std::span<const int32_t> masked, std::span<float> logits);

// Takes the logprobs of a raw row: top.size() likeliest of ids [0, n_tokens), and ln(sum e^z) into
// *log_total. `top` must have its capacity already: nothing is allocated.
void take_top(std::span<const float> logits, size_t n_top, std::vector<TokenLogprob>& top,
              double* log_total);

// What looks at the rows of one sequence from which a step draws. They are drawn one after the
// other, each when the token of the row in front of it is known: what a row of a draft is changed
// by is then what it would be without drafts.
class RowHook {
 public:
  virtual ~RowHook() = default;
  // False: the row is not looked at. Its draft is not the token that was kept in front of it, or
  // the reply has ended.
  virtual bool wants_row() const = 0;
  virtual bool wants_logits() const = 0;
  // The raw row, which it may change: ids with a token alone. If wants_logits().
  virtual void before_draw(std::span<float> logits) = 0;
  virtual const uint32_t* mask() = 0;             // of the row, as that of Sample
  virtual int32_t after_draw(int32_t drawn) = 0;  // the token that is kept; -1 stays -1
};

}  // namespace roost
