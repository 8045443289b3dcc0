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

TEST(ReasoningBudget, behind_reasoning_white_space_is_no_content) {
  ReasoningBudget needy = budget(-1);
  needy.needs_content = true;
  needy.is_blank = std::make_shared<const std::vector<bool>>(
      std::vector<bool>{false, false, false, true, false, false});
  const auto lacks = [](const ReasoningBudget& rule, const std::vector<int32_t>& drawn) {
    BudgetState state(rule);
    for (const int32_t token : drawn) state.keep(rule, token);
    return state.lacks_content(rule);
  };
  EXPECT_FALSE(lacks(needy, {5, 5}));  // it may end inside
  EXPECT_TRUE(lacks(needy, {5, 2}));
  EXPECT_TRUE(lacks(needy, {5, 2, 3, 3}));
  EXPECT_FALSE(lacks(needy, {5, 2, 3, 4}));
  EXPECT_FALSE(lacks(needy, {5, 2, 3, 5, 3}));
  needy.starts_in_reasoning = false;
  EXPECT_TRUE(lacks(needy, {}));
  EXPECT_FALSE(lacks(needy, {1, 5}));  // the reply opens it
  EXPECT_FALSE(lacks(needy, {5}));
  EXPECT_FALSE(lacks(budget(-1, false), {}));
  needy.n_tokens = 1;  // closed by force
  needy.starts_in_reasoning = true;
  EXPECT_TRUE(lacks(needy, {5, 3, 2, 3, 3}));
  EXPECT_FALSE(lacks(needy, {5, 3, 2, 3, 3, 5}));
}

// Against loops alone; tokens from 10 on are text.
ReasoningBudget guarded_budget() {
  ReasoningBudget out = budget(-1);
  out.guards_loops = true;
  out.ends_in_newline = std::make_shared<const std::vector<bool>>(300, false);
  return out;
}

TEST(ReasoningBudget, reasoning_that_repeats_itself_is_closed) {
  for (const size_t period : {size_t{1}, size_t{3}, LoopWatch::kLoopPeriodMax}) {
    ReasoningBudget guarded = guarded_budget();
    // 100 tokens that differ, then a piece of them again and again.
    std::vector<int32_t> drawn;
    for (int32_t i = 0; i < 100; ++i) drawn.push_back(10 + i);
    for (size_t i = 0; i < 600; ++i) drawn.push_back(static_cast<int32_t>(200 + i % period));
    const std::vector<int32_t> out = kept(guarded, drawn);
    const auto close = std::find(out.begin(), out.end(), 3);
    ASSERT_NE(close, out.end());
    EXPECT_EQ(close - out.begin(), 100 + LoopWatch::kLoopTokens);
    EXPECT_EQ(std::vector<int32_t>(close, close + 4), guarded.closing);
    drawn.resize(100 + static_cast<size_t>(LoopWatch::kLoopTokens) - 1);
    EXPECT_EQ(kept(guarded, drawn), drawn);  // one short of a loop
  }
}

TEST(ReasoningBudget, a_piece_longer_than_the_longest_is_no_loop) {
  ReasoningBudget guarded = guarded_budget();
  std::vector<int32_t> drawn;
  for (size_t i = 0; i < 2000; ++i)
    drawn.push_back(static_cast<int32_t>(10 + i % (LoopWatch::kLoopPeriodMax + 1)));
  EXPECT_EQ(kept(guarded, drawn), drawn);
  guarded.starts_in_reasoning = false;  // and content may say what it likes
  EXPECT_EQ(kept(guarded, std::vector<int32_t>(600, 5)), std::vector<int32_t>(600, 5));
}

}  // namespace
}  // namespace roost
