// The engine before a seeded crowd: floods, cancels, deadlines, damaged states, little memory.
#include <gtest/gtest.h>

#include <cstdlib>

#include "base/log.h"
#include "tests/sim/engine_sim.h"

namespace roost {
namespace {

using testing::EngineSim;
using testing::SimReport;

constexpr int64_t kRequestsPerSeed = 100;

// ROOST_SIM_REQUESTS: how many in all; ROOST_SIM_SEED: this seed alone, to replay a failure.
int64_t number_of(const char* name, int64_t otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::atoll(text);
}

TEST(EngineSim, a_seeded_crowd_gets_what_each_request_alone_gives) {
  set_log_level(LogLevel::kError);  // thousands of files are skipped
  const int64_t only = number_of("ROOST_SIM_SEED", -1);
  const int64_t n_seeds = number_of("ROOST_SIM_REQUESTS", 10'000) / kRequestsPerSeed;
  SimReport sum;
  for (int64_t seed = std::max<int64_t>(only, 0); seed < (only < 0 ? n_seeds : only + 1); ++seed) {
    const SimReport r = EngineSim(static_cast<uint64_t>(seed)).run(kRequestsPerSeed);
    EXPECT_EQ(r.failure, "") << "replay with ROOST_SIM_SEED=" << seed;
    sum.n_requests += r.n_requests, sum.n_finished += r.n_finished;
    sum.n_cancelled += r.n_cancelled, sum.n_failed += r.n_failed, sum.n_late += r.n_late;
    sum.n_steps += r.n_steps, sum.n_suspended += r.n_suspended;
    sum.n_evicted_pages += r.n_evicted_pages;
    sum.n_restarts += r.n_restarts, sum.n_kills += r.n_kills;
    sum.n_files_written += r.n_files_written, sum.n_files_skipped += r.n_files_skipped;
    sum.n_failed_writes += r.n_failed_writes, sum.n_restored += r.n_restored;
    sum.n_from_host += r.n_from_host;
    sum.n_prompt += r.n_prompt, sum.n_cached += r.n_cached;
  }
  const auto say = [](const char* what, int64_t n) {
    std::printf("  %lld %s\n", static_cast<long long>(n), what);
  };
  say("requests", sum.n_requests), say("cancelled", sum.n_cancelled);
  say("failed", sum.n_failed), say("late", sum.n_late);
  say("steps", sum.n_steps), say("suspensions", sum.n_suspended);
  say("pages evicted", sum.n_evicted_pages), say("prompt tokens", sum.n_prompt);
  say("of them cached", sum.n_cached), say("restarts", sum.n_restarts);
  say("of them kills", sum.n_kills), say("files written", sum.n_files_written);
  say("writes cut by a full disk", sum.n_failed_writes), say("files skipped", sum.n_files_skipped);
  say("prompts that went on from files", sum.n_restored);
  say("states copied back from host memory", sum.n_from_host);
  if (only >= 0) return;
  // The crowd meets everything that it is there to meet.
  EXPECT_GT(sum.n_cancelled, 0);
  EXPECT_GT(sum.n_failed, 0);
  EXPECT_GT(sum.n_late, 0);
  EXPECT_GT(sum.n_suspended, 0);
  EXPECT_GT(sum.n_evicted_pages, 0);
  EXPECT_GT(sum.n_cached, 0);
  EXPECT_GT(sum.n_restarts, 0);
  EXPECT_GT(sum.n_kills, 0);
  EXPECT_GT(sum.n_files_written, 0);
  EXPECT_GT(sum.n_files_skipped, 0);
  EXPECT_GT(sum.n_failed_writes, 0);
  EXPECT_GT(sum.n_restored, 0);
  EXPECT_GT(sum.n_from_host, 0);
}

TEST(EngineSim, sees_every_planted_fault) {
  using Fault = testing::FakeRunner::Fault;
  for (const Fault fault :
       {Fault::kPageNotCopied, Fault::kStateOfAnother, Fault::kReplayLost, Fault::kStateStoredLate,
        Fault::kPageNotRestored, Fault::kStateNotRestored}) {
    int n_seen = 0;
    for (uint64_t seed = 0; seed < 40 && n_seen == 0; ++seed)
      n_seen += !EngineSim(seed, fault).run(kRequestsPerSeed).failure.empty();
    EXPECT_GT(n_seen, 0) << "blind to fault " << static_cast<int>(fault);
  }
}

}  // namespace
}  // namespace roost
