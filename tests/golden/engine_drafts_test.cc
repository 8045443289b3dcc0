// The engine's rounds against the walk simulation and against the rounds that the golden data list:
// what the engine accepts is what a drafter of these weights can have accepted.
#include <gtest/gtest.h>

#include <cstdio>

#include "tests/golden/draft_walk.h"

namespace roost::testing {
namespace {

// Accepted drafts of every round of the one reply that a run gave, from what the drafter took in:
// the prompt's rows, then each round's.
Tokens rounds_of(const CoreRun& run, size_t n_prompt_calls) {
  Tokens rounds;
  const std::vector<int32_t>& absorbed = run.runner().n_absorbed();
  for (size_t i = n_prompt_calls; i < absorbed.size(); ++i)
    if (absorbed[i] > 0) rounds.push_back(absorbed[i] - 1);
  return rounds;
}

struct Told {
  Tokens reply, rounds;  // the reply with its end token
  DraftFigures figures;
};

// Every step costs the same, so blocks are as deep as they may be.
Told told_by_engine(const Tokens& prompt, int32_t n_rows) {
  CoreRun run(true, true, 1);
  Ask ask{prompt, {}, 160};
  ask.change = [&](EngineRequest& r) { r.drafts_max = n_rows - 1; };
  const Reply reply = run.reply(ask);
  Told told{reply.tokens, {}, reply.end.drafts};
  if (reply.end.end_token >= 0) told.reply.push_back(reply.end.end_token);
  size_t n_prompt_calls = 0;
  for (int32_t n = 0; n < static_cast<int32_t>(prompt.size());)
    n += run.runner().n_absorbed()[n_prompt_calls++];
  told.rounds = rounds_of(run, n_prompt_calls);
  return told;
}

// An end token that was drafted counts as a draft in a walk, and not in an engine, which does not
// verify what nothing can follow.
bool are_same_rounds(Tokens engine, const Tokens& walk) {
  if (engine.empty() || engine.size() != walk.size()) return false;
  if (engine.back() + 1 == walk.back()) ++engine.back();
  return engine == walk;
}

void print(const char* who, const Tokens& rounds) {
  std::printf("    %s:", who);
  for (const int32_t n : rounds) std::printf(" %d", n);
  std::printf("\n");
}

TEST(EngineDrafts, accept_in_every_round_of_the_golden_answers_what_golden_accepts) {
  int n_same = 0, n_all = 0;
  for (const json::Value* answer : text_answers()) {
    for (const int32_t n_rows : {16, 8}) {
      const Told told = told_by_engine(tokens_of(*answer->find("prompt_ids")), n_rows);
      const Tokens want = tokens_of(*answer->find("accepted")->find(std::to_string(n_rows)));
      const bool is_same = are_same_rounds(told.rounds, want);
      ++n_all;
      n_same += is_same;
      if (is_same) continue;
      std::printf("  %s, %d rows, %ld copied, reply %s\n",
                  answer->find("name")->as_string().c_str(), n_rows,
                  static_cast<long>(told.figures.n_copied),
                  told.reply == tokens_of(*answer->find("ids")) ? "equal" : "another");
      print("engine", told.rounds);
      print("golden", want);
    }
  }
  std::printf("  %d of %d answers have golden's rounds\n", n_same, n_all);
  EXPECT_EQ(n_same, 20);
}

TEST(EngineDrafts, accept_length_is_that_of_the_walk_simulation) {
  ThreadPool pool(2);
  OpsLimits limits = Qwen35::ops_limits(target()->config, kContext);
  Drafter::widen(fledgling_drafter()->config, kContext, 16, limits);
  const auto cpu = make_cpu_ops(pool, limits);
  const std::vector<Prompt> all = prompts();
  size_t engine = 0, walk = 0, n_tokens = 0;
  int64_t n_copied = 0;
  for (size_t i = 0; i < all.size(); i += 21) {
    const Told told = told_by_engine(all[i].ids, 16);
    if (told.reply.size() < 2) continue;
    DraftRun simulation(*cpu);
    const Tokens rounds = simulation.walk(all[i].ids, told.reply, 16);
    n_tokens += told.reply.size() - 1;
    engine += told.rounds.size();
    walk += rounds.size();
    n_copied += told.figures.n_copied;
    if (are_same_rounds(told.rounds, rounds)) continue;
    std::printf("  prompt %zu (%s), %ld copied\n", i, all[i].kind.c_str(),
                static_cast<long>(told.figures.n_copied));
    print("engine", told.rounds);
    print("walk", rounds);
  }
  const auto per = [&](size_t n) { return static_cast<double>(n_tokens) / static_cast<double>(n); };
  std::printf("  accept length: engine %.3f, walk %.3f; %ld copied\n", per(engine), per(walk),
              static_cast<long>(n_copied));
  EXPECT_NEAR(per(engine), per(walk), 0.01 * per(walk));
}

}  // namespace
}  // namespace roost::testing
