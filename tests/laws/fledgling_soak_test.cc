// A real model at work for long: an agent's day, a conversation beside a stream, and many requests
// whose memory must not grow. ./check runs a slice; ROOST_SOAK=full all of it.
#include <gtest/gtest.h>

#include <condition_variable>
#include <cstdlib>
#include <mutex>
#include <random>
#include <string_view>
#include <thread>

#include "base/memory.h"
#include "engine/model_runner.h"
#include "tests/agent_trace.h"
#include "tests/model_run.h"

#ifndef ROOST_MODEL_CUDA  // the engine's own work, which a card does not change

namespace roost {
namespace {

using testing::Desk;
using testing::Tokens;
using testing::Trace;

constexpr int32_t kTurn = 3;

bool is_full() {
  const char* text = std::getenv("ROOST_SOAK");
  return text != nullptr && std::string_view(text) == "full";
}

std::shared_ptr<const ModelWeights> fledgling() {
  static const auto kWeights = testing::load_model(ROOST_SOURCE_DIR "/models/fledgling");
  return kWeights;
}

// The engine's core over Fledgling.
struct Office {
  Office(int64_t context_max, int32_t n_pages, int32_t n_snapshots, uint64_t seed) {
    EngineOptions options;
    options.streams_max = 4;
    options.context_max = context_max;
    options.turn_token = kTurn;
    options.has_drafts = false;
    options.n_threads = is_full() ? 0 : 1;
    auto plan = plan_memory(*fledgling(), options, 0);
    ROOST_CHECK(bool(plan));
    plan->n_pages = n_pages;
    plan->n_snapshots = n_snapshots;
    runner = make_model_runner(fledgling(), options, *plan);
    core = std::make_unique<EngineCore>(
        core_options(options, *plan, {}, fledgling()->config.vocabulary), *runner, system_clock());
    core->measure_costs(250'000'000);
    desk = std::make_unique<Desk>(*core, system_clock(), kTurn, 5, 900, seed);
  }
  std::unique_ptr<StepRunner> runner;
  std::unique_ptr<EngineCore> core;
  std::unique_ptr<Desk> desk;
};

TEST(FledglingSoak, an_agents_day_recomputes_at_most_3_percent_of_what_was_known) {
  const int64_t scale = is_full() ? 1 : 40;
  Office office(262'144 / scale, static_cast<int32_t>(4000 / scale), 64, 1);
  const Trace trace = testing::run_agent_trace(*office.desk, scale);
  std::printf(
      "  %lld prompt tokens, %lld of them known before, %lld of these computed again: %.2f %%\n"
      "  longest silence inside a reply %.0f ms, before one %.0f ms\n",
      static_cast<long long>(trace.n_prompt), static_cast<long long>(trace.n_old),
      static_cast<long long>(trace.n_recomputed), 100 * trace.recomputed_share(),
      static_cast<double>(trace.gap_max_ns) / 1e6,
      static_cast<double>(trace.first_token_max_ns) / 1e6);
  EXPECT_GT(trace.n_old, 1'000'000 / scale);
  EXPECT_LE(trace.recomputed_share(), 0.03);
}

TEST(FledglingSoak, sixty_turns_beside_a_stream_equal_the_same_alone) {
  const auto converse = [](bool has_stream) {
    Office office(8192, 300, 32, 2);
    Desk& desk = *office.desk;
    std::shared_ptr<testing::TraceReply> stream;
    if (has_stream) stream = desk.submit(desk.text(100), 8000, 3);
    std::mt19937_64 random(9);  // the turns are the same with the stream and without
    Tokens conversation = {kTurn};
    std::vector<Tokens> replies;
    for (int turn = 0; turn < (is_full() ? 60 : 12); ++turn) {
      Tokens text(10 + random() % 40);
      for (int32_t& t : text) t = 5 + static_cast<int32_t>(random() % 900);
      desk.add_turn(conversation, text);
      replies.push_back(desk.ask(conversation, 10, 11).tokens);
      conversation.insert(conversation.end(), replies.back().begin(), replies.back().end());
    }
    EXPECT_TRUE(!has_stream || !stream->is_done);
    return replies;
  };
  EXPECT_EQ(converse(true), converse(false));
}

// With threads, cancels and full queues as a server has them.
TEST(FledglingSoak, memory_stays_flat_and_every_page_and_slot_comes_back) {
  const int n_requests = is_full() ? 20'000 : 150, n_warm = n_requests / 5;
  EngineOptions options;
  options.streams_max = 4;
  options.n_threads = 1;
  options.context_max = 2048;
  options.kv_bytes = size_t{24} << 20;
  options.turn_token = kTurn;
  auto created = Engine::create(fledgling(), options, system_clock());
  ASSERT_TRUE(created) << to_string(created.error());
  Engine& engine = **created;
  std::mutex mutex;
  std::condition_variable changed;
  int n_open = 0, n_done = 0;
  std::mt19937_64 random(4);
  Tokens conversation = {kTurn};
  size_t resident_warm = 0;
  const auto wait_for = [&](int n_open_max) {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return n_open <= n_open_max; });
  };
  for (int i = 0; i < n_requests; ++i) {
    EngineRequest r;
    if (i % 3 != 0) r.prompt = conversation;
    r.prompt.push_back(kTurn);
    for (uint64_t n = 1 + random() % 30; n > 0; --n)
      r.prompt.push_back(5 + static_cast<int32_t>(random() % 900));
    if (i % 3 != 0) conversation = r.prompt;
    if (conversation.size() > 600) conversation = {kTurn};
    r.new_tokens_max = 1 + static_cast<int64_t>(random() % 6);
    r.sampling = {.temperature = 1, .seed = random()};
    wait_for(7);
    {
      const std::lock_guard lock(mutex);
      ++n_open;
    }
    const auto id = engine.submit(std::move(r), [&](const EngineEvent& event) {
      if (event.kind != EngineEvent::Kind::kFinished) return;
      const std::lock_guard lock(mutex);
      --n_open, ++n_done;
      changed.notify_all();
    });
    ASSERT_TRUE(id) << to_string(id.error());
    if (random() % 10 == 0) engine.cancel(*id);
    if (i != n_warm) continue;
    wait_for(0);
    resident_warm = resident_bytes();
  }
  wait_for(0);
  const size_t resident = resident_bytes();
  EXPECT_EQ(n_done, n_requests);
  std::printf("  %d requests; resident %.1f MB, %.1f MB after the first %d\n", n_requests,
              static_cast<double>(resident) / 1e6, static_cast<double>(resident_warm) / 1e6,
              n_warm);
  // A page a hundred requests would be more.
  EXPECT_LE(resident, resident_warm + (size_t{4} << 20));
  Engine::Counts counts = engine.counts();
  // The last event leaves before the step is over and counted.
  for (int i = 0; i < 10'000'000 && counts.n_running > 0; ++i) {
    std::this_thread::yield();
    counts = engine.counts();
  }
  EXPECT_EQ(counts.n_free_pages, counts.n_pages);
  EXPECT_EQ(counts.n_free_slots, counts.n_slots);
}

}  // namespace
}  // namespace roost

#endif
