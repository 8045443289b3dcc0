#include "engine/reasoning_budget.h"

#include <gtest/gtest.h>

namespace roost {
namespace {

// Tokens: 1 opens, 2 closes, 3 is a newline, 4 ends in one, 5 is text.
ReasoningBudget budget(int64_t n_tokens, bool starts_in_reasoning = true) {
  ReasoningBudget out;
  out.n_tokens = n_tokens;
  out.starts_in_reasoning = starts_in_reasoning;
  out.open_token = 1;
  out.close_token = 2;
  out.closing = {3, 2, 3, 3};
  out.closing_after_newline = {2, 3, 3};
  out.ends_in_newline = std::make_shared<const std::vector<bool>>(
      std::vector<bool>{false, false, false, true, true, false});
  return out;
}

std::vector<int32_t> kept(const ReasoningBudget& budget, const std::vector<int32_t>& drawn) {
  BudgetState state(budget);
  std::vector<int32_t> out;
  for (const int32_t token : drawn) {
    out.push_back(state.choose(budget, token));
    state.keep(budget, out.back());
  }
  return out;
}

TEST(ReasoningBudget, closes_when_it_is_spent) {
  EXPECT_EQ(kept(budget(2), {5, 5, 5, 5, 5, 5, 5, 5}),
            (std::vector<int32_t>{5, 5, 3, 2, 3, 3, 5, 5}));
  EXPECT_EQ(kept(budget(2), {5, 4, 5, 5, 5, 5}), (std::vector<int32_t>{5, 4, 2, 3, 3, 5}));
}

TEST(ReasoningBudget, reasoning_that_ends_by_itself_is_left_alone) {
  const std::vector<int32_t> drawn = {5, 2, 5, 5, 5, 5, 5};
  EXPECT_EQ(kept(budget(3), drawn), drawn);
  EXPECT_EQ(kept(budget(2), drawn), drawn);
  EXPECT_EQ(kept(budget(-1), drawn), drawn);
  EXPECT_EQ(kept(budget(1, false), drawn), drawn);
}

TEST(ReasoningBudget, reasoning_that_the_reply_opens_counts) {
  EXPECT_EQ(kept(budget(2, false), {1, 5, 5, 5, 5, 5, 5}),
            (std::vector<int32_t>{1, 5, 3, 2, 3, 3, 5}));
}

}  // namespace
}  // namespace roost
