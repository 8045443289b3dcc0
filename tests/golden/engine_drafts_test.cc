// The engine's rounds against the walk simulation and against the rounds that the golden data list:
// what the engine accepts is what a drafter of these weights can have accepted.
#include <gtest/gtest.h>

#include <cstdio>

#include "tests/golden/draft_walk.h"

namespace roost::testing {
namespace {

// Stands still but where a test moves it.
class ManualClock final : public Clock {
 public:
  int64_t now_ns() const override { return now_; }
  int64_t unix_seconds() const override { return 0; }
  void advance(int64_t ns) { now_ += ns; }

 private:
  int64_t now_ = 0;
};

struct Told {
  Tokens reply, drafted, accepted;  // the reply with its end token; per round
  DraftFigures figures;
};

// Every step costs the same and drafting nothing, so blocks are as deep as they may be.
Told told_by_engine(const Tokens& prompt, int32_t n_rows) {
  ManualClock clock;
  CoreRun run(true, true, 1, target(), &clock);
  run.runner().on_step([&] { clock.advance(1'000'000'000); });
  Ask ask{prompt, {}, 160};
  ask.change = [&](EngineRequest& r) { r.drafts_max = n_rows - 1; };
  const Reply reply = run.reply(ask);
  Told told{reply.tokens, {}, {}, reply.end.drafts};
  if (reply.end.end_token >= 0) told.reply.push_back(reply.end.end_token);
  auto n_prompt = static_cast<int32_t>(prompt.size());
  for (const TestRunner::Absorbed& rows : run.runner().absorbed()) {
    if (n_prompt > 0) {
      n_prompt -= rows.n_rows;
      continue;
    }
    told.drafted.push_back(rows.n_drafted);
    told.accepted.push_back(rows.n_rows - 1);
  }
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
      const bool is_same = are_same_rounds(told.accepted, want);
      ++n_all;
      n_same += is_same;
      if (is_same) continue;
      std::printf("  %s, %d rows, %ld copied, reply %s\n",
                  answer->find("name")->as_string().c_str(), n_rows,
                  static_cast<long>(told.figures.n_copied),
                  told.reply == tokens_of(*answer->find("ids")) ? "equal" : "another");
      print("engine", told.accepted);
      print("golden", want);
    }
  }
  std::printf("  %d of %d answers have golden's rounds\n", n_same, n_all);
  EXPECT_EQ(n_same, 20);
}

#ifndef ROOST_MODEL_CUDA  // the walk is the CPU's, and near-ties fall differently

TEST(EngineDrafts, accept_length_is_that_of_the_walk_simulation) {
  ThreadPool pool(2);
  OpsLimits limits = Qwen35::ops_limits(target_on_host()->config, kContext);
  Drafter::widen(drafter_on_host()->config, kContext, 16, limits);
  const auto cpu = make_cpu_ops(pool, limits);
  const std::vector<Prompt> all = prompts();
  size_t engine = 0, walk = 0, n_tokens = 0;
  for (size_t i = 0; i < all.size(); i += 21) {
    const Told told = told_by_engine(all[i].ids, 16);
    if (told.reply.size() < 2 || told.figures.n_copied > 0) continue;
    DraftRun simulation(*cpu);
    // A stream whose drafts never hold brings fewer: round by round with as many as the engine's.
    const Tokens same = simulation.walk(all[i].ids, told.reply, [&](size_t round) {
      return round < told.drafted.size() ? told.drafted[round] : 15;
    });
    EXPECT_TRUE(are_same_rounds(told.accepted, same)) << "prompt " << i;
    if (!are_same_rounds(told.accepted, same)) {
      print("engine", told.accepted);
      print("walk", same);
    }
    n_tokens += told.reply.size() - 1;
    engine += told.accepted.size();
    walk += simulation.walk(all[i].ids, told.reply, 16).size();
  }
  const auto per = [&](size_t n) { return static_cast<double>(n_tokens) / static_cast<double>(n); };
  std::printf("  accept length: engine %.3f, walk %.3f\n", per(engine), per(walk));
  EXPECT_NEAR(per(engine), per(walk), 0.01 * per(walk));
}

#endif

}  // namespace
}  // namespace roost::testing
