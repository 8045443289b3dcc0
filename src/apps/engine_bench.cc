#include "apps/engine_bench.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>
#include <vector>

#include "apps/complain.h"
#include "base/json.h"
#include "base/random.h"
#include "engine/engine_core.h"
#include "engine/model_runner.h"
#include "engine/runner_around.h"

namespace roost {
namespace {

constexpr int32_t kManyStreams = 64;
constexpr int64_t kLookedUpTokens = 200'000;

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

double ms_since(int64_t from_ns) {
  return static_cast<double>(system_clock().now_ns() - from_ns) * 1e-6;
}

// Keeps the time that the model takes.
class ClockedRunner final : public RunnerAround {
 public:
  using RunnerAround::RunnerAround;
  double ms = 0;

  void run(const StepRows& rows, std::span<int32_t> drawn) override {
    const int64_t from = system_clock().now_ns();
    RunnerAround::run(rows, drawn);
    ms += ms_since(from);
  }
};

struct Reply {
  int64_t n_tokens = 0;
  bool is_done = false;
  EngineEvent end;
};

// The engine's core over the model, driven step by step.
class Driver {
 public:
  Driver(std::shared_ptr<const ModelWeights> weights, EngineOptions options, MemoryPlan plan)
      : vocabulary_(weights->config.vocabulary),
        runner_(make_model_runner(weights, options, plan)),
        core_(core_options(options, plan, {}, vocabulary_), runner_, system_clock()) {
    core_.measure_costs(250'000'000);
  }

  std::vector<int32_t> tokens(int64_t n) {
    std::vector<int32_t> out(static_cast<size_t>(n));
    for (int32_t& t : out)
      t = static_cast<int32_t>(random_.next_u64() % static_cast<uint64_t>(vocabulary_));
    return out;
  }
  std::shared_ptr<Reply> submit(std::vector<int32_t> prompt, int64_t n_new) {
    EngineRequest request;
    request.prompt = std::move(prompt);
    request.new_tokens_max = n_new;
    auto reply = std::make_shared<Reply>();
    auto sequence = EngineCore::make_sequence(
        std::move(request),
        [reply](const EngineEvent& event) {
          reply->n_tokens += static_cast<int64_t>(event.tokens.size());
          if (event.kind != EngineEvent::Kind::kFinished) return;
          reply->is_done = true;
          reply->end = event;
        },
        core_.options(), system_clock().now_ns());
    sequence->id = ++n_requests_;
    core_.add(std::move(sequence));
    return reply;
  }
  void step() {
    core_.admit();
    core_.step();
  }
  void until(const std::function<bool()>& is_done) {
    while (!is_done()) step();
  }
  // Of n steps: the median time, and what of it is not the model's.
  struct StepTimes {
    double ms = 0, overhead_us = 0;
  };
  StepTimes time_steps(int n) {
    std::vector<double> ms, overhead_us;
    for (int i = 0; i < n; ++i) {
      runner_.ms = 0;
      const int64_t from = system_clock().now_ns();
      step();
      ms.push_back(ms_since(from));
      overhead_us.push_back(1e3 * (ms.back() - runner_.ms));
    }
    return {median(ms), median(overhead_us)};
  }
  // One step's time of so many streams that decode.
  StepTimes time_streams(int32_t n_streams, int n_steps) {
    std::vector<std::shared_ptr<Reply>> replies;
    for (int32_t i = 0; i < n_streams; ++i) replies.push_back(submit(tokens(32), 4 * n_steps + 64));
    until([&] {
      return std::all_of(replies.begin(), replies.end(),
                         [](const auto& reply) { return reply->n_tokens > 0; });
    });
    const StepTimes times = time_steps(n_steps);
    cancel_all();
    return times;
  }
  void cancel_all() {
    for (uint64_t id = 1; id <= n_requests_; ++id) core_.cancel(id);
    core_.admit();
  }

 private:
  const int64_t vocabulary_;
  ClockedRunner runner_;
  EngineCore core_;
  SeededRandom random_{1};
  uint64_t n_requests_ = 0;
};

// ms of finding a known prompt of 200,000 tokens.
double time_lookup(int repetitions) {
  constexpr int32_t kPages = kLookedUpTokens / kTreePageTokens;
  PrefixTree tree(kPages, 1);
  std::vector<int32_t> keys(kLookedUpTokens), pages;
  for (size_t i = 0; i < keys.size(); ++i) keys[i] = static_cast<int32_t>(i * 7919 % 248'320);
  pages.reserve(kPages);
  int32_t parent = -1;
  for (int32_t p = 0; p < kPages; ++p)
    parent = tree.publish(
        {}, parent, *tree.take_page(),
        std::span(keys).subspan(static_cast<size_t>(p) * kTreePageTokens, kTreePageTokens));
  tree.add_snapshot(parent, kLookedUpTokens, SnapshotKind::kTurn, 0);
  std::vector<double> ms;
  for (int i = 0; i < repetitions; ++i) {
    const int64_t from = system_clock().now_ns();
    const bool is_found = tree.find({}, keys, kLookedUpTokens, pages).n_tokens == kLookedUpTokens;
    ms.push_back(ms_since(from));
    ROOST_CHECK(is_found);
  }
  return median(ms);
}

struct Report {
  Driver::StepTimes one, many;
  double lookup_ms = 0;
  int64_t n_prompt = 0;
  double cold_ms = 0, gap_ms = 0;                    // the prompt, and a stream beside it
  double first_token_ms = 0, one_row_at_end_ms = 0;  // the prompt again, and a row behind it
  int64_t n_cached = 0;

  double overhead_share() const { return one.overhead_us / 1e3 / one.ms; }
  double resume_steps() const { return first_token_ms / one_row_at_end_ms; }
};

Report measure(Driver& driver, const BenchOptions& options) {
  Report r;
  r.one = driver.time_streams(1, 4 * options.repetitions);
  r.many = driver.time_streams(kManyStreams, options.repetitions);
  r.lookup_ms = time_lookup(options.repetitions);
  r.n_prompt = options.prompt_rows;
  const std::vector<int32_t> prompt = driver.tokens(options.prompt_rows);
  const auto stream = driver.submit(driver.tokens(32), options.prompt_rows);
  driver.until([&] { return stream->n_tokens > 0; });
  int64_t from = system_clock().now_ns();
  const auto cold = driver.submit(prompt, 2);
  driver.until([&] { return cold->n_tokens > 0; });
  r.cold_ms = ms_since(from);
  driver.cancel_all();
  r.gap_ms = static_cast<double>(stream->end.gap_max_ns) * 1e-6;
  std::vector<double> first, row;
  for (int i = 0; i < options.repetitions; ++i) {
    from = system_clock().now_ns();
    const auto again = driver.submit(prompt, 64);
    driver.until([&] { return again->n_tokens > 0; });
    first.push_back(ms_since(from));
    row.push_back(driver.time_steps(3).ms);
    driver.cancel_all();
    r.n_cached = again->end.n_cached;
  }
  r.first_token_ms = median(first);
  r.one_row_at_end_ms = median(row);
  return r;
}

void print(const Report& r, bool as_json) {
  if (as_json) {
    json::Value v = json::Value::object();
    const auto set = [&](const char* key, double value) { v.set(key, json::Value::real(value)); };
    set("one_row_ms", r.one.ms), set("overhead_us_1_stream", r.one.overhead_us);
    set("overhead_share_1_stream", r.overhead_share());
    set("step_ms_64_streams", r.many.ms), set("overhead_us_64_streams", r.many.overhead_us);
    set("lookup_ms_200000_tokens", r.lookup_ms);
    set("prompt_rows", static_cast<double>(r.n_prompt)), set("cold_ms", r.cold_ms);
    set("stream_gap_ms", r.gap_ms);
    set("cached_tokens", static_cast<double>(r.n_cached)), set("first_token_ms", r.first_token_ms);
    set("one_row_behind_prompt_ms", r.one_row_at_end_ms), set("resume_steps", r.resume_steps());
    std::printf("%s\n", json::write(v).c_str());
    return;
  }
  std::printf("1 stream    %.2f ms a step, %.1f us of it the engine's: %.2f %%\n", r.one.ms,
              r.one.overhead_us, 100 * r.overhead_share());
  std::printf("%d streams  %.2f ms a step, %.1f us of it the engine's\n", kManyStreams, r.many.ms,
              r.many.overhead_us);
  std::printf("lookup      %.3f ms for %lld tokens\n", r.lookup_ms,
              static_cast<long long>(kLookedUpTokens));
  std::printf(
      "prompt      %lld rows cold: %.0f ms; longest silence of a stream beside it %.0f ms\n",
      static_cast<long long>(r.n_prompt), r.cold_ms, r.gap_ms);
  std::printf(
      "again       %lld of them cached: first token after %.2f ms, %.2f steps of one row (%.2f "
      "ms)\n",
      static_cast<long long>(r.n_cached), r.first_token_ms, r.resume_steps(), r.one_row_at_end_ms);
}

}  // namespace

int run_engine_bench(std::shared_ptr<const ModelWeights> weights, const BenchOptions& options) {
  EngineOptions engine;
  engine.n_threads = options.n_threads;
  engine.streams_max = kManyStreams;
  engine.chunk_rows_max = options.chunk_rows;
  engine.context_max = options.prompt_rows + 256;
  engine.has_drafts = false;
  engine.kv = options.kv;
  engine.reserved_new_tokens = 64;
  Result<MemoryPlan> plan = plan_memory(*weights, engine, 0);
  if (!plan) return complain(plan.error());
  // Of one long prompt and many short streams; a few kept states.
  plan->n_pages = static_cast<int32_t>(2 * engine.context_max / kPageTokens + 8 * kManyStreams);
  plan->n_snapshots = 24;
  Driver driver(std::move(weights), engine, *plan);
  print(measure(driver, options), options.json);
  return 0;
}

}  // namespace roost
