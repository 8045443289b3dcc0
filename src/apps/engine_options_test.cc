#include "apps/engine_options.h"

#include <gtest/gtest.h>

namespace roost {
namespace {

TEST(EngineOptionsOfFlags, flags_without_values_leave_the_plan_to_the_machine) {
  const auto options = engine_options_of({});
  ASSERT_TRUE(options);
  EXPECT_EQ(options->memory_max, 0u);
  EXPECT_FALSE(options->cache_bytes);
  EXPECT_TRUE(options->has_cache);
  EXPECT_EQ(options->gap_ns_max, 250'000'000);
  EXPECT_EQ(options->snapshot_every, 2048);
}

TEST(EngineOptionsOfFlags, sizes_are_mib_and_times_ms) {
  Flags flags;
  flags.max_memory = 3;
  flags.cache_memory = 0;
  flags.kv_mib = 2;
  flags.no_cache = true;
  flags.chunk_ms = 7;
  const auto options = engine_options_of(flags);
  ASSERT_TRUE(options);
  EXPECT_EQ(options->memory_max, 3u << 20);
  EXPECT_EQ(options->cache_bytes, 0u);
  EXPECT_EQ(options->kv_bytes, 2u << 20);
  EXPECT_FALSE(options->has_cache);
  EXPECT_EQ(options->gap_ns_max, 7'000'000);
}

TEST(EngineOptionsOfFlags, pages_of_codes_are_refused_where_no_kernel_reads_them) {
  Flags flags;
  flags.kv = "int8";
  EXPECT_EQ(engine_options_of(flags)->kv, KvFormat::kInt8);
  flags.device = "cuda";
  const auto options = engine_options_of(flags);
  ASSERT_FALSE(options);
  EXPECT_EQ(options.error().refusal, Refusal::FlagValue);
  EXPECT_EQ(options.error().detail, "--kv int8: --device cuda has no kernels for it, cpu has");
  flags.kv = "int4";
  EXPECT_EQ(engine_options_of(flags).error().detail, "--kv: have int4, want bf16 or int8");
}

TEST(EngineOptionsOfFlags, host_memory_below_a_cache_in_host_memory_is_refused) {
  Flags flags;
  EXPECT_FALSE(engine_options_of(flags)->cache_host_bytes);
  flags.cache_host = 5;
  EXPECT_EQ(engine_options_of(flags).error().refusal, Refusal::FlagValue);
  flags.device = "cuda";
  EXPECT_EQ(engine_options_of(flags)->cache_host_bytes, 5u << 20);
}

TEST(EngineOptionsOfFlags, a_value_out_of_range_is_refused_by_name) {
  Flags flags;
  flags.snapshot_every = 63;
  const auto options = engine_options_of(flags);
  ASSERT_FALSE(options);
  EXPECT_EQ(options.error().refusal, Refusal::FlagValue);
  EXPECT_EQ(options.error().detail, "--snapshot-every: have 63, want 64 to 1048576");
}

TEST(EngineOptions, sampling_is_what_the_operator_says_within_its_ranges) {
  EXPECT_FALSE(sampling_of({})->temperature);
  Flags flags;
  flags.temperature = 0.5, flags.top_k = 7, flags.repetition_penalty = 1.1;
  EXPECT_EQ(sampling_of(flags)->temperature, 0.5);
  EXPECT_EQ(sampling_of(flags)->top_k, 7);
  EXPECT_EQ(sampling_of(flags)->repetition_penalty, 1.1);
  EXPECT_FALSE(sampling_of(flags)->presence_penalty);
  flags.presence_penalty = -3;
  EXPECT_EQ(sampling_of(flags).error().detail, "--presence-penalty: have -3, want -2 to 2");
  flags.presence_penalty = 0, flags.top_k = -1;
  EXPECT_EQ(sampling_of(flags).error().refusal, Refusal::FlagValue);
}

}  // namespace
}  // namespace roost
