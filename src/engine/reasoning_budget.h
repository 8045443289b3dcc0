// A bound on reasoning: when it is spent, the tokens that end reasoning are kept instead of drawn
// ones (docs/SERVER.md, reasoning budget).
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

namespace roost {

struct ReasoningBudget {
  int64_t n_tokens = -1;             // kept tokens of reasoning; -1: no bound
  bool starts_in_reasoning = false;  // the prompt leaves reasoning open
  int32_t open_token = -1, close_token = -1;
  std::vector<int32_t> closing;                // what ends reasoning
  std::vector<int32_t> closing_after_newline;  // the same behind a token that ends in a newline
  std::shared_ptr<const std::vector<bool>> ends_in_newline;  // by token

  bool is_off() const { return n_tokens < 0; }
};

// How far a reply is in its budget: a function of its kept tokens.
class BudgetState {
 public:
  BudgetState() = default;
  explicit BudgetState(const ReasoningBudget& budget) : is_open_(budget.starts_in_reasoning) {}

  // The token to keep at this position: the drawn one, or one that the budget forces.
  int32_t choose(const ReasoningBudget& budget, int32_t drawn) const {
    if (forced_ != nullptr && n_forced_ < forced_->size()) return (*forced_)[n_forced_];
    if (budget.is_off() || !is_open_ || n_kept_ < budget.n_tokens) return drawn;
    return closing_of(budget).front();
  }
  bool is_forced(const ReasoningBudget& budget) const {
    return (forced_ != nullptr && n_forced_ < forced_->size()) ||
           (!budget.is_off() && is_open_ && n_kept_ >= budget.n_tokens);
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
    if (!is_open_) return;
    ++n_kept_;
    if (token == budget.close_token) is_open_ = false;
  }

 private:
  const std::vector<int32_t>& closing_of(const ReasoningBudget& budget) const {
    const bool is_behind_newline = last_ >= 0 && budget.ends_in_newline &&
                                   (*budget.ends_in_newline)[static_cast<size_t>(last_)];
    return is_behind_newline ? budget.closing_after_newline : budget.closing;
  }

  bool is_open_ = false;
  int64_t n_kept_ = 0, n_all_ = 0;  // of reasoning, of the reply
  int32_t last_ = -1;
  const std::vector<int32_t>* forced_ = nullptr;  // in the request, which the sequence keeps
  size_t n_forced_ = 0;
};

}  // namespace roost
