// Loads for a server: prompts, arrivals, and an agent at work.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "apps/bench_client.h"
#include "base/random.h"

namespace roost {

struct BenchPromptOptions {
  std::vector<std::string> kinds;  // of prose, code, structured, list, real
  std::string real_text;           // for "real"
  int64_t prompt_tokens = 512;     // roughly: words are counted
  int64_t reply_tokens = 128;
};

// Makes request bodies. A cold prompt begins with a number that no other one has; a warm one is one
// of few that come again and again.
class BenchPrompts {
 public:
  BenchPrompts(BenchPromptOptions options, uint64_t seed)
      : options_(std::move(options)), random_(seed) {}
  json::Value cold();
  json::Value warm();
  std::string text(const std::string& kind, int64_t n_tokens);  // about so many tokens

 private:
  json::Value body_of(const std::string& text) const;
  const BenchPromptOptions options_;
  SeededRandom random_;
  uint64_t n_made_ = 0;
};

// So many requests at once until all are done.
std::vector<BenchRecord> run_closed(const BenchTarget& target,
                                    const std::vector<json::Value>& bodies, int64_t n_at_once);
// Arrivals at random times of this mean rate, whatever is still in work.
std::vector<BenchRecord> run_poisson(const BenchTarget& target,
                                     const std::vector<json::Value>& bodies, double per_second,
                                     uint64_t seed);

// An agent: a long first prompt, turns with results of tools, two sub-agents and the request for a
// title beside it. scale: of all lengths; 1 is a first prompt of 25,000 tokens and results of 200
// to 8,000.
struct AgentTrace {
  std::vector<BenchRecord> turns, beside;
  double total_s = 0, largest_silence_s = 0;
  int64_t n_recomputed = 0;
};
AgentTrace run_agent(const BenchTarget& target, BenchPrompts& prompts, double scale,
                     int64_t n_turns, int64_t reply_tokens, uint64_t seed);

}  // namespace roost
