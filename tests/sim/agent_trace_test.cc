// An agent's day before the engine's core: a long first prompt, turns with tool results,
// sub-agents with the same system turn, a title request; what is computed twice, and how long
// anybody is silent. And a long conversation beside a stream, and many requests in little memory.
#include <gtest/gtest.h>

#include <memory>
#include <random>

#include "engine/engine_core.h"
#include "tests/sim/fake_runner.h"

namespace roost {
namespace {

using testing::FakeModel;
using testing::FakeRunner;
using testing::VirtualClock;
using Tokens = std::vector<int32_t>;

constexpr int32_t kTurn = 998;

// The engine's core with memory for a few conversations.
class Desk {
 public:
  explicit Desk(int32_t n_pages, int32_t n_snapshots, int64_t context_max, uint64_t seed)
      : random_(seed), runner_(n_pages, 4, n_snapshots, clock_, {}) {
    CoreOptions options;
    options.streams_max = 4;
    options.context_max = context_max;
    options.n_pages = n_pages;
    options.n_snapshots = n_snapshots;
    options.turn_token = kTurn;
    options.end_tokens = {FakeModel::kEndToken};
    core_ = std::make_unique<EngineCore>(options, runner_, clock_);
    core_->measure_costs(300'000'000);
  }

  struct Reply {
    Tokens tokens;
    EngineEvent end;
    bool is_done = false;
  };
  std::shared_ptr<Reply> submit(const Tokens& prompt, int64_t n_max, uint64_t seed = 0) {
    EngineRequest r;
    r.prompt = prompt;
    r.new_tokens_max = n_max;
    r.ignore_end_tokens = true;
    r.sampling.seed = seed;
    auto reply = std::make_shared<Reply>();
    auto sequence = EngineCore::make_sequence(
        r,
        [reply](const EngineEvent& event) {
          reply->tokens.insert(reply->tokens.end(), event.tokens.begin(), event.tokens.end());
          if (event.kind != EngineEvent::Kind::kFinished) return;
          reply->end = event;
          reply->is_done = true;
        },
        core_->options(), clock_.now_ns());
    sequence->id = ++n_requests_;
    core_->add(std::move(sequence));
    return reply;
  }
  void step() {
    core_->admit();
    core_->step();
  }
  Reply ask(const Tokens& prompt, int64_t n_max, uint64_t seed = 0) {
    const auto reply = submit(prompt, n_max, seed);
    while (!reply->is_done) step();
    return *reply;
  }
  Tokens text(int64_t n) {
    Tokens tokens(static_cast<size_t>(n));
    for (int32_t& t : tokens) t = 1 + static_cast<int32_t>(random_() % 990);
    return tokens;
  }
  int64_t between(int64_t low, int64_t high) {
    return low + static_cast<int64_t>(random_() % static_cast<uint64_t>(high - low + 1));
  }
  EngineCore& core() { return *core_; }

 private:
  std::mt19937_64 random_;
  VirtualClock clock_;
  FakeRunner runner_;
  std::unique_ptr<EngineCore> core_;
  uint64_t n_requests_ = 0;
};

void append(Tokens& to, const Tokens& from) {
  to.insert(to.end(), from.begin(), from.end());
}

// Adds a turn and the header of the next reply.
void add_turn(Tokens& conversation, const Tokens& text) {
  conversation.push_back(kTurn);
  append(conversation, text);
  append(conversation, {kTurn, 995, 996});
}

struct Trace {
  int64_t n_old = 0;         // prompt tokens that an earlier prompt or reply held
  int64_t n_recomputed = 0;  // of these, computed again
  int64_t gap_max_ns = 0;

  // n_known: how many tokens of the prompt had been computed before.
  void add(const Desk::Reply& reply, int64_t n_known) {
    n_old += n_known;
    n_recomputed += std::max<int64_t>(n_known - reply.end.n_cached, 0);
    gap_max_ns = std::max(gap_max_ns, reply.end.gap_max_ns);
  }
};

TEST(AgentTrace, recomputes_at_most_3_percent_of_what_was_known) {
  Desk desk(3000, 48, 131'072, 1);
  Trace trace;
  Tokens system = {kTurn};
  append(system, desk.text(12'000));
  Tokens main = system;
  add_turn(main, desk.text(13'000));
  int64_t n_known = 0;
  for (int turn = 0; turn < 30; ++turn) {
    const Desk::Reply reply = desk.ask(main, desk.between(40, 400), 7);
    trace.add(reply, n_known);
    append(main, reply.tokens);
    n_known = static_cast<int64_t>(main.size()) - 1;  // the last token's row has not run
    if (turn == 2) {
      // A title, of the first query without its system turn.
      Tokens title;
      add_turn(title, desk.text(300));
      trace.add(desk.ask(title, 20), 0);
    }
    if (turn == 10 || turn == 20) {
      Tokens agent = system;
      add_turn(agent, desk.text(2'000));
      auto known = static_cast<int64_t>(system.size());
      for (int t = 0; t < 6; ++t) {
        const Desk::Reply answer = desk.ask(agent, desk.between(40, 200), 8);
        trace.add(answer, known);
        append(agent, answer.tokens);
        known = static_cast<int64_t>(agent.size()) - 1;
        add_turn(agent, desk.text(desk.between(200, 3'000)));
      }
    }
    add_turn(main, desk.text(desk.between(200, 2'000)));
  }
  std::printf(
      "  %lld prompt tokens were known, %lld of them computed again; longest silence %.1f ms\n",
      static_cast<long long>(trace.n_old), static_cast<long long>(trace.n_recomputed),
      static_cast<double>(trace.gap_max_ns) / 1e6);
  EXPECT_GT(trace.n_old, 1'000'000);
  EXPECT_LE(trace.n_recomputed, trace.n_old * 3 / 100);
  EXPECT_LE(trace.gap_max_ns, 260'000'000);
}

TEST(Soak, sixty_turns_beside_a_stream_equal_the_same_alone) {
  const auto converse = [](bool has_stream) {
    Desk desk(1200, 32, 32'768, 2);
    std::shared_ptr<Desk::Reply> stream;
    if (has_stream) stream = desk.submit(desk.text(100), 20'000, 3);
    Desk texts(1, 1, 64, 9);  // the turns are the same with the stream and without
    Tokens conversation = {kTurn};
    std::vector<Tokens> replies;
    for (int turn = 0; turn < 60; ++turn) {
      add_turn(conversation, texts.text(texts.between(10, 300)));
      replies.push_back(desk.ask(conversation, 50, 11).tokens);
      append(conversation, replies.back());
    }
    EXPECT_TRUE(!has_stream || !stream->is_done);
    return replies;
  };
  EXPECT_EQ(converse(true), converse(false));
}

TEST(Soak, every_page_and_slot_comes_back_after_20000_requests) {
  Desk desk(200, 16, 4096, 4);
  Tokens conversation = {kTurn};
  for (int i = 0; i < 20'000; ++i) {
    Tokens prompt = i % 3 == 0 ? desk.text(desk.between(1, 200)) : conversation;
    if (i % 3 != 0) add_turn(prompt, desk.text(desk.between(1, 60)));
    const Desk::Reply reply = desk.ask(prompt, desk.between(1, 8), static_cast<uint64_t>(i));
    if (i % 3 != 0) {
      conversation = prompt;
      append(conversation, reply.tokens);
      if (conversation.size() > 3000) conversation = {kTurn};
    }
  }
  desk.core().check_invariants();
  const Engine::Counts counts = desk.core().counts();
  EXPECT_EQ(counts.n_free_pages, counts.n_pages);
  EXPECT_EQ(counts.n_free_slots, counts.n_slots);
  EXPECT_EQ(counts.n_requests, 20'000);
}

// Four conversations start behind a running stream, shortest last; nobody waits for ever.
TEST(Fairness, a_stream_of_short_prompts_does_not_starve_a_long_one) {
  Desk desk(1200, 16, 32'768, 5);
  const auto running = desk.submit(desk.text(50), 4'000);
  while (running->tokens.empty()) desk.step();
  const auto long_one = desk.submit(desk.text(20'000), 4);
  std::vector<std::shared_ptr<Desk::Reply>> short_ones;
  int n_before = 0;
  for (int i = 0; !long_one->is_done && i < 3'000; ++i) {
    if (i % 2 == 0) short_ones.push_back(desk.submit(desk.text(600), 2));
    desk.step();
  }
  ASSERT_TRUE(long_one->is_done);
  for (const auto& reply : short_ones)
    n_before += reply->is_done && reply->end.first_token_ns < long_one->end.first_token_ns;
  while (!running->is_done) desk.step();
  EXPECT_GT(n_before, 0);
  EXPECT_LE(n_before, 8 + 4);  // and those that ran already when it was due
  EXPECT_LE(running->end.gap_max_ns, 260'000'000);
}

}  // namespace
}  // namespace roost
