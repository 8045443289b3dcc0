#include "apps/bench.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "apps/card_bench.h"
#include "apps/complain.h"
#include "apps/engine_bench.h"
#include "apps/engine_options.h"
#include "apps/load_weights.h"
#include "apps/machine.h"
#include "apps/random_steps.h"
#include "apps/timed_ops.h"
#include "base/json.h"
#include "base/memory.h"
#include "device/cpu/machine_limits.h"
#include "model/qwen35.h"
#include "ops/attention/attention.h"

namespace roost {
namespace {

double seconds_of(const std::function<void()>& work) {
  const auto begin = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// A model with sequences at a given length, ready for one more row each.
class Subject {
 public:
  Subject(const ModelWeights& weights, const BenchOptions& options)
      : pool_(options.n_threads > 0 ? options.n_threads : n_usable_cpus()),
        rows_max_(std::max(options.chunk_rows, options.decode_rows)),
        ops_(make_cpu_ops(pool_, Qwen35::ops_limits(weights.config, rows_max_))),
        timed_(*ops_),
        model_(weights, timed_, rows_max_, rows_max_),
        n_sequences_(static_cast<int32_t>(options.decode_rows)),
        tokens_max_(std::max(options.prompt_rows, options.context + kMeasuredRowsMax)),
        pages_per_sequence_((tokens_max_ + kPageTokens - 1) / kPageTokens),
        state_(ModelState::create(weights.config, ops_->activation(),
                                  static_cast<int32_t>(pages_per_sequence_ * n_sequences_),
                                  n_sequences_, 0, host_device(), options.kv)),
        steps_(
            weights.config.vocabulary, page_tables(),
            Buffer(static_cast<size_t>(n_sequences_ * weights.config.vocabulary) * sizeof(float))) {
  }

  ThreadPool& pool() { return pool_; }
  const Ops& ops() const { return *ops_; }
  TimedOps& timed_ops() { return timed_; }
  Qwen35& model() { return model_; }

  // The next n_rows of one sequence; random tokens, no logits.
  void prompt_rows(int32_t sequence, int64_t n_rows) {
    const RandomSteps::Rows rows{sequence, n_rows};
    steps_.run(model_, state_, {&rows, 1}, false);
  }
  // One row of every sequence, or of the first n.
  void decode(bool has_logits) { decode(has_logits, n_sequences_); }
  void decode(bool has_logits, int32_t n) {
    std::vector<RandomSteps::Rows> rows;
    for (int32_t s = 0; s < n; ++s) rows.push_back({s, 1});
    steps_.run(model_, state_, rows, has_logits);
  }
  void rewind(int64_t length) {
    for (int32_t s = 0; s < n_sequences_; ++s) steps_.set_length(s, length);
  }

 private:
  std::vector<std::vector<int32_t>> page_tables() const {
    std::vector<std::vector<int32_t>> tables(static_cast<size_t>(n_sequences_));
    int32_t next = 0;
    for (std::vector<int32_t>& table : tables)
      for (int64_t p = 0; p < pages_per_sequence_; ++p) table.push_back(next++);
    return tables;
  }

  ThreadPool pool_;
  int64_t rows_max_;
  std::unique_ptr<Ops> ops_;
  TimedOps timed_;
  Qwen35 model_;
  int32_t n_sequences_;
  int64_t tokens_max_, pages_per_sequence_;
  ModelState state_;
  RandomSteps steps_;
};

// Distinct experts that one decode step touches, over all layers.
int64_t n_touched_experts(Subject& subject) {
  int64_t n = 0;
  subject.model().set_tap([&](std::string_view place, int64_t, const Tensor& ids) {
    if (place != "expert_ids") return;
    n += static_cast<int64_t>(
        std::set<int32_t>(ids.as<int32_t>(), ids.as<int32_t>() + ids.n_elements()).size());
  });
  subject.decode(false);
  subject.model().set_tap({});
  return n;
}

struct Report {
  double read_bandwidth = 0, fma_peak = 0;
  double decode_ms = 0, layers_ms = 0, head_ms = 0, layers_bytes = 0, head_bytes = 0;
  double one_row_ms = 0;               // of a step that has only one of the rows
  double decode_flop = 0;              // of a step
  int64_t n_asked = 0, n_touched = 0;  // experts of a step's rows, over all layers; distinct ones
  double prompt_ms = 0, prompt_flop = 0;
  std::map<std::string, double> decode_ms_by_op, prompt_ms_by_op;  // means
  size_t resident = 0;  // bytes, without the read loop's own buffer
  double layers_share() const { return layers_bytes / (layers_ms / 1e3) / read_bandwidth; }
  double head_share() const { return head_bytes / (head_ms / 1e3) / read_bandwidth; }
  // The step against the larger of what its weights take to read and its products to compute.
  double floor_ms() const {
    return 1e3 * std::max((layers_bytes + head_bytes) / read_bandwidth, decode_flop / fma_peak);
  }
  double prompt_share() const { return prompt_flop / (prompt_ms / 1e3) / fma_peak; }
};

std::map<std::string, double> ms_by_op(const TimedOps& ops, int n_runs) {
  std::map<std::string, double> ms;
  for (const auto& [op, seconds] : ops.seconds()) ms[op] = seconds * 1e3 / n_runs;
  return ms;
}

Report measure(const ModelWeights& weights, Subject& subject, const BenchOptions& options) {
  Report r;
  r.fma_peak = measure_fma_peak(subject.pool());

  const int n_prompts = std::max(1, options.repetitions / 3);
  std::vector<double> prompt;
  subject.timed_ops().reset();
  for (int rep = 0; rep < n_prompts; ++rep) {
    subject.rewind(0);
    prompt.push_back(seconds_of([&] {
      for (int64_t at = 0; at < options.prompt_rows; at += options.chunk_rows) {
        subject.prompt_rows(0, std::min(options.chunk_rows, options.prompt_rows - at));
      }
    }));
  }
  r.prompt_ms = median(prompt) * 1e3;
  r.prompt_ms_by_op = ms_by_op(subject.timed_ops(), n_prompts);
  const ActiveBytes active = active_bytes(weights);
  r.prompt_flop = active.flop_layers_per_row * static_cast<double>(options.prompt_rows);

  r.resident = resident_bytes();
  // With and without the head and the read loop in turn, so that a drift of the machine meets all
  // alike.
  ReadLoop read_loop(subject.pool());
  subject.rewind(options.context);
  const int64_t touched = n_touched_experts(subject);
  std::vector<double> whole, layers, bandwidth, alone;
  for (int rep = 0; rep < options.repetitions; ++rep) {
    subject.rewind(options.context);
    layers.push_back(seconds_of([&] { subject.decode(false); }));
    whole.push_back(seconds_of([&] { subject.decode(true); }));
    alone.push_back(seconds_of([&] { subject.decode(true, 1); }));
    bandwidth.push_back(read_loop.bytes_per_second());
  }
  r.read_bandwidth = median(bandwidth);
  subject.timed_ops().reset();
  for (int rep = 0; rep < options.repetitions; ++rep) {
    subject.rewind(options.context);
    subject.decode(true);
  }
  r.decode_ms_by_op = ms_by_op(subject.timed_ops(), options.repetitions);
  r.layers_ms = median(layers) * 1e3;
  r.decode_ms = median(whole) * 1e3;
  r.head_ms = r.decode_ms - r.layers_ms;
  r.one_row_ms = median(alone) * 1e3;
  r.head_bytes = static_cast<double>(active.head);
  const QuantMatrix& head = weights.head;
  r.decode_flop = static_cast<double>(options.decode_rows) *
                  (active.flop_layers_per_row + 2.0 * static_cast<double>(head.n_out * head.n_in));
  const int64_t one_row = weights.config.n_layers * weights.config.experts_per_token;
  r.n_touched = touched;
  r.n_asked = one_row * options.decode_rows;
  r.layers_bytes = static_cast<double>(active.layers) + static_cast<double>((touched - one_row)) *
                                                            static_cast<double>(active.one_expert);
  return r;
}

void print_by_op(const std::map<std::string, double>& ms_of) {
  std::printf("  ms by op");
  for (const auto& [op, ms] : ms_of) std::printf("  %s %.2f", op.c_str(), ms);
  std::printf("\n");
}

void print(const Report& r, const Subject& subject, const BenchOptions& options) {
  if (options.json) {
    json::Value v = json::Value::object();
    v.set("backend", json::Value::string(subject.ops().name()));
    const auto set = [&](const char* key, double value) { v.set(key, json::Value::real(value)); };
    const auto set_by_op = [&](const char* key, const std::map<std::string, double>& ms_of) {
      json::Value by_op = json::Value::object();
      for (const auto& [op, ms] : ms_of) by_op.set(op, json::Value::real(ms));
      v.set(key, std::move(by_op));
    };
    set("read_bandwidth_gb_s", r.read_bandwidth / 1e9), set("fma_peak_gflop_s", r.fma_peak / 1e9);
    set("decode_rows", static_cast<double>(options.decode_rows)),
        set("context", static_cast<double>(options.context));
    set("decode_ms", r.decode_ms), set("layers_ms", r.layers_ms), set("head_ms", r.head_ms);
    set("floor_ms", r.floor_ms()), set("decode_over_floor", r.decode_ms / r.floor_ms());
    set("one_row_ms", r.one_row_ms);
    set("experts_asked", static_cast<double>(r.n_asked));
    set("experts_touched", static_cast<double>(r.n_touched));
    set("layers_bytes", r.layers_bytes), set("head_bytes", r.head_bytes);
    set("layers_share_of_bandwidth", r.layers_share()),
        set("head_share_of_bandwidth", r.head_share());
    set_by_op("decode_ms_by_op", r.decode_ms_by_op);
    set("prompt_rows", static_cast<double>(options.prompt_rows)), set("prompt_ms", r.prompt_ms);
    set("prompt_share_of_fma_peak", r.prompt_share());
    set_by_op("prompt_ms_by_op", r.prompt_ms_by_op);
    set("resident_bytes", static_cast<double>(r.resident));
    std::printf("%s\n", json::write(v).c_str());
    return;
  }
  std::printf("machine   %s: read loop %.1f GB/s, f32 FMA %.0f GFLOP/s\n",
              subject.ops().name().c_str(), r.read_bandwidth / 1e9, r.fma_peak / 1e9);
  std::printf("decode    %lld row(s) at %lld tokens: %.2f ms, %.1f tokens/s\n",
              static_cast<long long>(options.decode_rows), static_cast<long long>(options.context),
              r.decode_ms, 1e3 * static_cast<double>(options.decode_rows) / r.decode_ms);
  std::printf("  layers  %.2f ms for %.1f MB of weights: %.0f %% of the read loop\n", r.layers_ms,
              r.layers_bytes / 1e6, 100 * r.layers_share());
  std::printf("  head    %.2f ms for %.1f MB of weights: %.0f %% of the read loop\n", r.head_ms,
              r.head_bytes / 1e6, 100 * r.head_share());
  std::printf("  floor   %.2f ms: the step is %.2f times that\n", r.floor_ms(),
              r.decode_ms / r.floor_ms());
  std::printf("  rows    %.2f ms each, %.2f ms alone\n",
              r.decode_ms / static_cast<double>(options.decode_rows), r.one_row_ms);
  if (r.n_asked > 0)
    std::printf("  experts %lld distinct of %lld asked for\n", static_cast<long long>(r.n_touched),
                static_cast<long long>(r.n_asked));
  print_by_op(r.decode_ms_by_op);
  std::printf(
      "prompt    %lld rows in chunks of %lld: %.0f ms, %.0f tokens/s, %.1f GFLOP/s: %.0f %% of the "
      "FMA peak\n",
      static_cast<long long>(options.prompt_rows), static_cast<long long>(options.chunk_rows),
      r.prompt_ms, 1e3 * static_cast<double>(options.prompt_rows) / r.prompt_ms,
      r.prompt_flop / r.prompt_ms / 1e6, 100 * r.prompt_share());
  print_by_op(r.prompt_ms_by_op);
  std::printf("memory    %.0f MB resident\n", static_cast<double>(r.resident) / 1e6);
}

}  // namespace

int run_bench(const BenchOptions& options) {
  if (options.part != "rows" && options.part != "engine")
    return complain(Error{Refusal::FlagValue, "--part: want rows or engine"});
  constexpr int64_t kTokensMax = Attention::kTokensMax - kMeasuredRowsMax;
  for (const auto& [flag, n] :
       {std::pair{"--context", options.context}, std::pair{"--prompt-rows", options.prompt_rows}})
    if (const Result<void> fits = check_range(flag, n, 0, kTokensMax); !fits)
      return complain(fits.error());
  const Result<Machine> machine = Machine::open(options.device, options.n_threads);
  if (!machine) return complain(machine.error());
  Result<LoadedWeights> loaded =
      load_model_weights(options.model, options.n_layers, machine->is_cpu());
  if (!loaded) return complain(loaded.error());
  if (!machine->is_cpu()) {
    const auto placed =
        machine->place(loaded->weights, loaded->synthetic ? &*loaded->synthetic : nullptr);
    if (!placed) return complain(placed.error());
    loaded = LoadedWeights{};  // what lies on the host is not needed any more
    return run_card_bench(**placed, *machine->hardware(), options);
  }
  if (const Result<bool> resident = make_resident(*loaded->weights); !resident)
    return complain(resident.error());
  if (options.part == "engine") return run_engine_bench(loaded->weights, options);
  Subject subject(*loaded->weights, options);
  print(measure(*loaded->weights, subject, options), subject, options);
  return 0;
}

}  // namespace roost
