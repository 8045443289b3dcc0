// An agent's day: a long first prompt, turns with tool results, sub-agents with the same system
// turn beside the main conversation, a title request.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <random>
#include <vector>

#include "engine/engine_core.h"

namespace roost::testing {

using Tokens = std::vector<int32_t>;

struct TraceReply {
  Tokens tokens;
  EngineEvent end;
  bool is_done = false;
};

// An engine's core and clients whose texts come from a seed.
class Desk {
 public:
  Desk(EngineCore& core, const Clock& clock, int32_t turn_token, int32_t first_text_token,
       int32_t n_text_tokens, uint64_t seed)
      : core_(core),
        clock_(clock),
        turn_token_(turn_token),
        first_text_token_(first_text_token),
        n_text_tokens_(n_text_tokens),
        random_(seed) {}

  std::shared_ptr<TraceReply> submit(const Tokens& prompt, int64_t n_max, uint64_t seed = 0) {
    EngineRequest r;
    r.prompt = prompt;
    r.new_tokens_max = n_max;
    r.ignore_end_tokens = true;
    r.sampling.seed = seed;
    auto reply = std::make_shared<TraceReply>();
    auto sequence = EngineCore::make_sequence(
        r,
        [reply](const EngineEvent& event) {
          reply->tokens.insert(reply->tokens.end(), event.tokens.begin(), event.tokens.end());
          if (event.kind != EngineEvent::Kind::kFinished) return;
          reply->end = event;
          reply->is_done = true;
        },
        core_.options(), clock_.now_ns());
    sequence->id = ++n_requests_;
    core_.add(std::move(sequence));
    return reply;
  }
  void step() {
    core_.admit();
    core_.step();
  }
  TraceReply ask(const Tokens& prompt, int64_t n_max, uint64_t seed = 0) {
    const auto reply = submit(prompt, n_max, seed);
    while (!reply->is_done) step();
    return *reply;
  }
  Tokens text(int64_t n) {
    Tokens tokens(static_cast<size_t>(n));
    for (int32_t& t : tokens)
      t = first_text_token_ +
          static_cast<int32_t>(random_() % static_cast<uint64_t>(n_text_tokens_));
    return tokens;
  }
  int64_t between(int64_t low, int64_t high) {
    return low + static_cast<int64_t>(random_() % static_cast<uint64_t>(high - low + 1));
  }
  // Adds a turn and the header of the next reply.
  void add_turn(Tokens& conversation, const Tokens& turn) const {
    conversation.push_back(turn_token_);
    conversation.insert(conversation.end(), turn.begin(), turn.end());
    conversation.insert(conversation.end(),
                        {turn_token_, first_text_token_, first_text_token_ + 1});
  }
  int32_t turn_token() const { return turn_token_; }
  EngineCore& core() { return core_; }

 private:
  EngineCore& core_;
  const Clock& clock_;
  const int32_t turn_token_, first_text_token_, n_text_tokens_;
  std::mt19937_64 random_;
  uint64_t n_requests_ = 0;
};

struct Trace {
  int64_t n_prompt = 0;      // tokens of all prompts
  int64_t n_old = 0;         // of them, those that an earlier prompt or reply held
  int64_t n_recomputed = 0;  // of these, computed again
  int64_t gap_max_ns = 0, first_token_max_ns = 0;

  // n_known: how many tokens of the prompt had been computed before.
  void add(const TraceReply& reply, int64_t n_known) {
    n_prompt += reply.end.n_prompt;
    n_old += n_known;
    n_recomputed += std::max<int64_t>(n_known - reply.end.n_cached, 0);
    gap_max_ns = std::max(gap_max_ns, reply.end.gap_max_ns);
    first_token_max_ns =
        std::max(first_token_max_ns, reply.end.first_token_ns - reply.end.submitted_ns);
  }
  double recomputed_share() const {
    return static_cast<double>(n_recomputed) / static_cast<double>(n_old);
  }
};

// 25,000 tokens and 30 turns with tool results of up to 8,000, all divided by `scale`.
inline Trace run_agent_trace(Desk& desk, int64_t scale) {
  Trace trace;
  const auto append = [](Tokens& to, const Tokens& from) {
    to.insert(to.end(), from.begin(), from.end());
  };
  // Most results are short, some are files.
  const auto result = [&] {
    return desk.text(desk.between(0, 9) == 0 ? desk.between(2'000 / scale, 8'000 / scale)
                                             : desk.between(200 / scale, 600 / scale));
  };
  Tokens system = {desk.turn_token()};
  append(system, desk.text(12'000 / scale));
  Tokens main = system;
  desk.add_turn(main, desk.text(13'000 / scale));
  int64_t n_known = 0;
  for (int turn = 0; turn < 30; ++turn) {
    const auto reply = desk.submit(main, desk.between(40 / scale + 1, 160 / scale), 7);
    if (turn == 2) {
      // A title, of the first query without its system turn.
      Tokens title;
      desk.add_turn(title, desk.text(300 / scale));
      trace.add(desk.ask(title, 20), 0);
    }
    if (turn == 10 || turn == 20) {
      Tokens agent = system;
      desk.add_turn(agent, desk.text(2'000 / scale));
      auto known = static_cast<int64_t>(system.size());
      for (int t = 0; t < 6; ++t) {
        const TraceReply answer = desk.ask(agent, desk.between(40 / scale + 1, 200 / scale), 8);
        trace.add(answer, known);
        append(agent, answer.tokens);
        known = static_cast<int64_t>(agent.size()) - 1;
        desk.add_turn(agent, result());
      }
    }
    while (!reply->is_done) desk.step();
    trace.add(*reply, n_known);
    append(main, reply->tokens);
    n_known = static_cast<int64_t>(main.size()) - 1;  // the last token's row has not run
    desk.add_turn(main, result());
  }
  return trace;
}

}  // namespace roost::testing
