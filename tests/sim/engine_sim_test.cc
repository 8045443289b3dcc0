// The engine before a seeded crowd: floods, cancels, deadlines, damaged states, little memory.
#include <gtest/gtest.h>

#include <cstdlib>

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
    sum.n_restarts += r.n_restarts, sum.n_files_skipped += r.n_files_skipped;
    sum.n_prompt += r.n_prompt, sum.n_cached += r.n_cached;
  }
  std::printf(
      "  %lld requests: %lld cancelled, %lld failed, %lld late; %lld steps, %lld suspensions, %lld "
      "pages evicted, %lld of %lld prompt tokens cached, %lld restarts, %lld files skipped\n",
      static_cast<long long>(sum.n_requests), static_cast<long long>(sum.n_cancelled),
      static_cast<long long>(sum.n_failed), static_cast<long long>(sum.n_late),
      static_cast<long long>(sum.n_steps), static_cast<long long>(sum.n_suspended),
      static_cast<long long>(sum.n_evicted_pages), static_cast<long long>(sum.n_cached),
      static_cast<long long>(sum.n_prompt), static_cast<long long>(sum.n_restarts),
      static_cast<long long>(sum.n_files_skipped));
  if (only >= 0) return;
  // The crowd meets everything that it is there to meet.
  EXPECT_GT(sum.n_cancelled, 0);
  EXPECT_GT(sum.n_failed, 0);
  EXPECT_GT(sum.n_late, 0);
  EXPECT_GT(sum.n_suspended, 0);
  EXPECT_GT(sum.n_evicted_pages, 0);
  EXPECT_GT(sum.n_cached, 0);
  EXPECT_GT(sum.n_restarts, 0);
  EXPECT_GT(sum.n_files_skipped, 0);
}

}  // namespace
}  // namespace roost
