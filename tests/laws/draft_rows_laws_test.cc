// What a request changes in its rows, or wants to know of them, is with drafts what it is without:
// penalties, biases, a least length, logprobs, reasoning budgets and grammars.
#include <gtest/gtest.h>

#include <cstdio>

#include "grammar/text_grammar.h"
#include "tests/laws/draft_run.h"

namespace roost::testing {
namespace {

using Change = std::function<void(EngineRequest&)>;

void expect_same_logprobs(const Reply& have, const Reply& want) {
  ASSERT_EQ(have.logprobs.size(), want.logprobs.size());
  for (size_t t = 0; t < want.logprobs.size(); ++t) {
    EXPECT_EQ(have.logprobs[t].logprob, want.logprobs[t].logprob) << t;
    ASSERT_EQ(have.logprobs[t].top.size(), want.logprobs[t].top.size());
    for (size_t i = 0; i < want.logprobs[t].top.size(); ++i) {
      EXPECT_EQ(have.logprobs[t].top[i].token, want.logprobs[t].top[i].token);
      EXPECT_EQ(have.logprobs[t].top[i].logprob, want.logprobs[t].top[i].logprob);
    }
  }
}

// Greedy and drawn, alone and 8 together; every reply plainly and with drafts, and that the change
// matters at all. Returns the figures of all drafted replies.
DraftFigures expect_drafted_equals_plain(const Change& change, size_t every = 41) {
  DraftFigures sum;
  size_t n_changed = 0;
  for (const double temperature : {0.0, 0.9}) {
    const std::vector<Ask> unchanged = asks_of(prompts(), every, temperature);
    std::vector<Ask> asks = unchanged;
    for (Ask& ask : asks) ask.change = change;
    CoreRun plain(false, false);
    const std::vector<Reply> want = plain.replies(asks, 1), free = plain.replies(unchanged, 1);
    for (const size_t together : {size_t{1}, size_t{8}}) {
      CoreRun drafted(true, true);
      const std::vector<Reply> have = drafted.replies(asks, together);
      for (size_t i = 0; i < asks.size(); ++i) {
        EXPECT_EQ(have[i].tokens, want[i].tokens) << "prompt " << i * every << ", temperature "
                                                  << temperature << ", " << together << " together";
        EXPECT_EQ(have[i].end.finish, want[i].end.finish);
        EXPECT_EQ(have[i].end.end_token, want[i].end.end_token);
        expect_same_logprobs(have[i], want[i]);
        n_changed += have[i].tokens != free[i].tokens || have[i].logprobs.size() > 0;
      }
      sum.add(sum_of(have));
    }
  }
  std::printf("  %zu replies changed; accept length %.2f, %ld of %ld drafts held\n", n_changed,
              sum.accept_length(), static_cast<long>(sum.n_accepted),
              static_cast<long>(sum.n_drafted));
  EXPECT_GT(n_changed, 0u);
  EXPECT_GT(sum.accept_length(), 1.3) << "nothing was drafted";
  return sum;
}

TEST(DraftRowsLaws, penalties_count_along_the_drafts) {
  expect_drafted_equals_plain([](EngineRequest& r) {
    r.adjust.presence = 0.4;
    r.adjust.frequency = 0.3;
  });
  expect_drafted_equals_plain([](EngineRequest& r) { r.adjust.repetition = 1.15; }, 57);
}

TEST(DraftRowsLaws, biases_and_a_least_length_hold_in_every_row) {
  expect_drafted_equals_plain([](EngineRequest& r) {
    r.adjust.bias = {{220, 1.5}, {198, kNeverBias}, {16, -2.0}};
    r.adjust.min_tokens = 45;
  });
}

TEST(DraftRowsLaws, logprobs_are_those_of_plain_rows) {
  expect_drafted_equals_plain([](EngineRequest& r) { r.top_logprobs = 5; });
  expect_drafted_equals_plain(
      [](EngineRequest& r) {
        r.top_logprobs = 0;
        r.adjust.frequency = 0.5;
      },
      57);
}

constexpr int32_t kNewline = 198, kNewlines = 511, kOpen = 3068, kClose = 3069;

TEST(DraftRowsLaws, a_reasoning_budget_closes_at_its_token) {
  const auto newlines = std::make_shared<std::vector<bool>>(3072, false);
  (*newlines)[kNewline] = (*newlines)[kNewlines] = true;
  for (const int64_t n_tokens : {0, 7, 19}) {
    expect_drafted_equals_plain(
        [&](EngineRequest& r) {
          r.budget = {.n_tokens = n_tokens,
                      .starts_in_reasoning = r.prompt.end()[-2] == kOpen,
                      .open_token = kOpen,
                      .close_token = kClose,
                      .closing = {kNewline, kClose, kNewlines},
                      .closing_after_newline = {kClose, kNewlines},
                      .ends_in_newline = newlines};
        },
        57);
  }
}

// Every token is three letters that name it, so that an expression over the letters is one over
// tokens.
std::shared_ptr<const TokenVocabulary> named_tokens() {
  std::vector<std::string> names;
  for (int id = 0; id < 3071; ++id)
    names.push_back({static_cast<char>('a' + id / 676), static_cast<char>('a' + id / 26 % 26),
                     static_cast<char>('a' + id % 26)});
  return std::make_shared<const TokenVocabulary>(std::move(names));
}

TEST(DraftRowsLaws, a_grammar_is_followed_along_the_drafts) {
  const auto vocabulary = named_tokens();
  for (const char* pattern : {"([a-e][a-z][b-mo-z]){20,}", "([a-e][a-z]{2}){1,30}"}) {
    const auto grammar =
        std::make_shared<const Grammar>(compile_regex_grammar(pattern).value(), vocabulary);
    expect_drafted_equals_plain([&](EngineRequest& r) { r.grammar.grammar = grammar; });
  }
}

TEST(DraftRowsLaws, all_of_it_at_once_beside_streams_that_ask_for_nothing) {
  const auto grammar = std::make_shared<const Grammar>(
      compile_regex_grammar("([a-e][a-z][b-z]){10,}").value(), named_tokens());
  expect_drafted_equals_plain([&](EngineRequest& r) {
    if (r.prompt.size() % 2 == 0) return;
    r.grammar.grammar = grammar;
    r.top_logprobs = 3;
    r.adjust.frequency = 0.2;
    r.adjust.min_tokens = 30;
  });
}

// Drafts that a grammar forbids are no rows: every draft that is verified could have held.
TEST(DraftRowsLaws, drafts_that_the_grammar_forbids_cost_no_rows) {
  const auto grammar = std::make_shared<const Grammar>(
      compile_regex_grammar("([a-e][a-z][a-m]){40}").value(), named_tokens());
  CoreRun run(true, true);
  run.runner().set_own_drafts([](const DraftBlock&, std::span<int32_t> tokens) {
    for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = i < 2 ? 26 : 25;  // baa, then aaz
  });
  Ask ask{prompts()[0].ids, {}};
  ask.change = [&](EngineRequest& r) { r.grammar.grammar = grammar; };
  const DraftFigures f = run.reply(ask).end.drafts;
  EXPECT_GT(f.drafted_at[1], 0);
  EXPECT_EQ(f.drafted_at[2], 0);
}

}  // namespace
}  // namespace roost::testing
