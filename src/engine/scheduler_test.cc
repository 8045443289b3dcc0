#include "engine/scheduler.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

namespace roost {
namespace {

std::map<int32_t, int64_t> plan(const std::vector<SequenceNeed>& needs,
                                const SchedulerLimits& limits = {}) {
  std::vector<Chunk> chunks;
  chunks.reserve(needs.size());
  plan_step(needs, limits, chunks);
  std::map<int32_t, int64_t> rows;
  for (const Chunk& chunk : chunks) {
    EXPECT_EQ(rows.count(chunk.sequence_idx), 0u);
    rows[chunk.sequence_idx] = chunk.n_rows;
  }
  return rows;
}

TEST(Scheduler, every_decoding_sequence_brings_its_row) {
  EXPECT_EQ(plan({{10, 9}, {5, 4}, {7, 6}}), (std::map<int32_t, int64_t>{{0, 1}, {1, 1}, {2, 1}}));
}

TEST(Scheduler, a_lone_prompt_takes_the_whole_step) {
  EXPECT_EQ(plan({{10'000, 0}}).at(0), 512);
  EXPECT_EQ(plan({{10'000, 9'990}}).at(0), 10);
}

TEST(Scheduler, prompts_beside_streams_are_bounded) {
  const auto rows = plan({{10'000, 0}, {5, 4}});
  EXPECT_EQ(rows.at(0), 256);
  EXPECT_EQ(rows.at(1), 1);
}

TEST(Scheduler, a_short_prompt_is_not_held_up_by_a_long_one) {
  const auto rows = plan({{10'000, 0}, {40, 0}});
  EXPECT_EQ(rows.at(1), 40);
  EXPECT_EQ(rows.at(0), 472);
}

TEST(Scheduler, never_plans_more_rows_than_there_are_or_than_a_step_takes) {
  std::mt19937 random(7);
  for (int round = 0; round < 5'000; ++round) {
    std::vector<SequenceNeed> needs(random() % 20);
    for (SequenceNeed& need : needs) {
      need.n_computed = random() % 1000;
      need.n_tokens = need.n_computed + 1 + (random() % 3 == 0 ? random() % 3000 : 0);
    }
    const SchedulerLimits limits{
        .step_rows_max = 1 + static_cast<int64_t>(random() % 600),
        .prompt_rows_beside_max = 1 + static_cast<int64_t>(random() % 300)};
    int64_t n_rows = 0;
    for (const auto& [i, n] : plan(needs, limits)) {
      EXPECT_GE(n, 1);
      EXPECT_LE(n, needs[static_cast<size_t>(i)].n_left());
      n_rows += n;
    }
    EXPECT_LE(n_rows, limits.step_rows_max);
    EXPECT_EQ(n_rows > 0, !needs.empty());
  }
}

}  // namespace
}  // namespace roost
