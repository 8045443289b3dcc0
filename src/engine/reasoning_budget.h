// A bound on reasoning: when it is spent, or reasoning goes round in circles, the tokens that end
// it are kept instead of drawn ones (docs/SERVER.md, reasoning budget).
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <vector>

namespace roost {

struct ReasoningBudget {
  int64_t n_tokens = -1;       // kept tokens of reasoning; -1: no bound
  bool guards_loops = false;   // also ends reasoning that repeats itself
  bool needs_content = false;  // behind reasoning the reply does not end before it says something
  bool starts_in_reasoning = false;  // the prompt leaves reasoning open
  int32_t open_token = -1, close_token = -1;
  std::vector<int32_t> closing;                // what ends reasoning
  std::vector<int32_t> closing_after_newline;  // the same behind a token that ends in a newline
  std::shared_ptr<const std::vector<bool>> ends_in_newline;  // by token
  std::shared_ptr<const std::vector<bool>> is_blank;         // by token: nothing but white space

  bool is_off() const { return n_tokens < 0 && !guards_loops && !needs_content; }
};

// Whether the last kLoopTokens tokens are one piece of at most kLoopPeriodMax again and again.
class LoopWatch {
 public:
  static constexpr int32_t kLoopTokens = 512;
  static constexpr size_t kLoopPeriodMax = 64;

  void see(int32_t token) {
    for (size_t period = 1; period <= kLoopPeriodMax; ++period) {
      int32_t& n = n_equal_[period - 1];
      n = token == before(period) ? n + 1 : 0;
      has_loop_ |= n + static_cast<int32_t>(period) >= kLoopTokens;
    }
    last_[n_seen_++ % kLoopPeriodMax] = token;
  }
  bool has_loop() const { return has_loop_; }

 private:
  // The token that stands `period` tokens before the next one; -1: none does.
  int32_t before(size_t period) const {
    return period > n_seen_ ? -1 : last_[(n_seen_ - period) % kLoopPeriodMax];
  }

  std::array<int32_t, kLoopPeriodMax> last_{};
  std::array<int32_t, kLoopPeriodMax>
      n_equal_{};  // tokens in a row that equal the one a period before
  size_t n_seen_ = 0;
  bool has_loop_ = false;
};

// How far a reply is in its budget: a function of its kept tokens.
class BudgetState {
 public:
  BudgetState() = default;
  explicit BudgetState(const ReasoningBudget& budget) : is_open_(budget.starts_in_reasoning) {}

  // The token to keep at this position: the drawn one, or one that the budget forces.
  int32_t choose(const ReasoningBudget& budget, int32_t drawn) const {
    if (forced_ != nullptr && n_forced_ < forced_->size()) return (*forced_)[n_forced_];
    return is_spent(budget) ? closing_of(budget).front() : drawn;
  }
  bool is_forced(const ReasoningBudget& budget) const {
    return (forced_ != nullptr && n_forced_ < forced_->size()) || is_spent(budget);
  }
  bool has_found_loop() const { return loop_.has_loop(); }
  // Reasoning is over and nothing but white space stands behind it: the reply may not end yet.
  bool lacks_content(const ReasoningBudget& budget) const {
    return budget.needs_content && !is_open_ && !has_content_;
  }
  void keep(const ReasoningBudget& budget, int32_t token) {
    if (budget.is_off()) return;
    if (is_forced(budget)) {
      if (forced_ == nullptr) forced_ = &closing_of(budget);
      ++n_forced_;
    }
    if (n_all_ == 0 && token == budget.open_token) is_open_ = true;
    ++n_all_;
    last_ = token;
    if (!is_open_) {
      has_content_ |= !budget.needs_content || !(*budget.is_blank)[static_cast<size_t>(token)];
      return;
    }
    ++n_kept_;
    if (budget.guards_loops) loop_.see(token);
    if (token == budget.close_token) is_open_ = false;
  }

 private:
  bool is_spent(const ReasoningBudget& budget) const {
    const bool is_full = budget.n_tokens >= 0 && n_kept_ >= budget.n_tokens;
    return is_open_ && (is_full || loop_.has_loop());
  }
  const std::vector<int32_t>& closing_of(const ReasoningBudget& budget) const {
    const bool is_behind_newline = last_ >= 0 && budget.ends_in_newline &&
                                   (*budget.ends_in_newline)[static_cast<size_t>(last_)];
    return is_behind_newline ? budget.closing_after_newline : budget.closing;
  }

  bool is_open_ = false, has_content_ = false;
  int64_t n_kept_ = 0, n_all_ = 0;  // of reasoning, of the reply
  int32_t last_ = -1;
  const std::vector<int32_t>* forced_ = nullptr;  // in the request, which the sequence keeps
  size_t n_forced_ = 0;
  LoopWatch loop_;
};

}  // namespace roost
