#include "engine/memory_plan.h"

#include <gtest/gtest.h>

namespace roost {
namespace {

constexpr size_t kMiB = size_t{1} << 20;

// A model of 4 layers: pages of 128 KiB, states of 3 · (64 KiB + tails).
ModelWeights weights() {
  ModelWeights w;
  ModelConfig& c = w.config;
  c.hidden = 256;
  c.vocabulary = 1000;
  c.n_layers = 4;
  c.is_full_attention = {false, false, false, true};
  c.context_max = 32'768;
  c.n_heads = 8, c.n_kv_heads = 2, c.head_dim = 256, c.rotary_dims = 64;
  c.n_key_heads = 2, c.n_value_heads = 4, c.key_dim = 64, c.value_dim = 64;
  c.intermediate = 512;
  w.bytes_mapped = 100 * kMiB;
  w.bytes_owned = kMiB;
  return w;
}

MemoryPlan plan(EngineOptions& options, size_t available) {
  const auto planned = plan_memory(weights(), options, available);
  EXPECT_TRUE(planned) << to_string(planned.error());
  return planned ? *planned : MemoryPlan{};
}

TEST(MemoryPlan, with_memory_to_spare_every_stream_and_the_cache_get_what_they_can_use) {
  EngineOptions options;
  options.streams_max = 4;
  const MemoryPlan p = plan(options, 64'000 * kMiB);
  EXPECT_EQ(p.context_max, 32'768);
  EXPECT_EQ(p.n_pages_of_streams, 512 + 3 * 128);
  EXPECT_EQ(p.n_pages, 2 * p.n_pages_of_streams);
  EXPECT_EQ(p.n_snapshots, 4 * 8 + 16);
  EXPECT_EQ(p.n_slots, 4);
  EXPECT_EQ(p.pages, static_cast<size_t>(p.n_pages) * 128 * 1024);
  EXPECT_EQ(p.total(), p.weights_mapped + p.weights_owned + p.pages + p.slots + p.snapshots +
                           p.scratch + p.workspace);
}

TEST(MemoryPlan, a_card_gets_host_memory_below_its_cache_and_the_cpu_none) {
  EngineOptions options;
  options.streams_max = 4;
  const size_t here = 64'000 * kMiB, host = 800 * kMiB;
  EXPECT_EQ(plan(options, here).host, 0u);
  const auto below = [&](EngineOptions of_card) {
    return plan_memory(weights(), of_card, here, host).value();
  };
  const MemoryPlan p = below(options);
  EXPECT_LE(p.host, 200 * kMiB);
  EXPECT_EQ(p.n_host_pages, 800);
  EXPECT_GT(p.n_host_snapshots, p.n_snapshots);
  EXPECT_EQ(p.total(), plan(options, here).total());  // nothing of the card
  options.cache_host_bytes = 10 * kMiB;
  EXPECT_EQ(below(options).n_host_pages, 40);
  options.cache_host_bytes = 0;
  EXPECT_EQ(below(options).host, 0u);
  options.cache_host_bytes.reset();
  options.has_cache = false;
  EXPECT_EQ(below(options).host, 0u);
}

TEST(MemoryPlan, a_context_is_no_longer_than_the_ops_can_read) {
  EngineOptions options;
  options.context_max = 400'000;
  EXPECT_EQ(plan(options, 64'000 * kMiB).context_max, 262'144);
}

TEST(MemoryPlan, never_takes_more_than_it_may) {
  for (const size_t max : {150 * kMiB, 180 * kMiB, 300 * kMiB, 1000 * kMiB}) {
    EngineOptions options;
    options.n_threads = 2;
    options.memory_max = max;
    EXPECT_LE(plan(options, 0).total(), max);
    EngineOptions of_machine;
    of_machine.n_threads = 2;
    EXPECT_LE(plan(of_machine, max).total() - kMiB, max);  // owned weights are taken already
  }
}

TEST(MemoryPlan, little_memory_shortens_the_context_and_too_little_is_refused_with_the_numbers) {
  EngineOptions options;
  options.streams_max = 1;
  options.chunk_rows_max = 64;
  options.n_threads = 1;
  options.memory_max = 140 * kMiB;
  const MemoryPlan p = plan(options, 0);
  EXPECT_LT(p.context_max, 32'768);
  EXPECT_EQ(p.context_max, p.n_pages * 64);
  EngineOptions tiny;
  tiny.memory_max = 50 * kMiB;
  const auto refused = plan_memory(weights(), tiny, 0);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().refusal, Refusal::MemoryTooSmall);
  EXPECT_NE(refused.error().detail.find("bytes beside the weights"), std::string::npos);
}

TEST(MemoryPlan, flags_of_the_cache_are_followed) {
  EngineOptions without;
  without.has_cache = false;
  const MemoryPlan none = plan(without, 64'000 * kMiB);
  EXPECT_EQ(none.n_snapshots, 0);
  EXPECT_EQ(none.n_pages, none.n_pages_of_streams);
  EngineOptions given;
  given.cache_bytes = 40 * kMiB;
  const MemoryPlan p = plan(given, 64'000 * kMiB);
  const size_t cached =
      p.snapshots + static_cast<size_t>(p.n_pages - p.n_pages_of_streams) * 128 * 1024;
  EXPECT_LE(cached, 40 * kMiB);
  EXPECT_GE(cached, 39 * kMiB);
  EngineOptions fixed;
  fixed.kv_bytes = 10 * 128 * 1024;
  EXPECT_EQ(plan(fixed, 64'000 * kMiB).n_pages, 10);
}

}  // namespace
}  // namespace roost
