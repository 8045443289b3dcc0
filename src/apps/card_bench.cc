#include "apps/card_bench.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "apps/complain.h"
#include "apps/load_weights.h"
#include "apps/random_steps.h"
#include "apps/timed_ops.h"
#include "base/json.h"
#include "model/qwen35.h"

namespace roost {
namespace {

// What this card class reaches: a large copy, bytes read and written, and a large bf16 product.
constexpr double kBytesPerSecond = 4.3e12, kFlopPerSecond = 790e12;
constexpr int64_t kShortContext = 128;  // of the sequences that decode beside each other
constexpr int64_t kDecodeRows[] = {1, 8, 16};
constexpr int64_t kPromptRows[] = {2048, 8192};
constexpr int32_t kSequences = 16;

double now_ms() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration<double, std::milli>(now).count();
}

struct Row {
  std::string kind;  // decode, prompt
  int64_t rows = 0, context = 0;
  double ms = 0, floor_ms = 0, spread = 0;
};

// Sequences on the device, the first with room for the longest prompt.
class CardSubject {
 public:
  CardSubject(const ModelWeights& weights, Hardware& hardware, int64_t chunk_rows)
      : device_(hardware.device()),
        chunk_rows_(chunk_rows),
        ops_(hardware.make_ops(Qwen35::ops_limits(weights.config, chunk_rows))),
        timed_(*ops_),
        model_(weights, *ops_, chunk_rows, chunk_rows),
        timed_model_(weights, timed_, chunk_rows, chunk_rows),
        state_(ModelState::create(weights.config, ops_->activation(), n_pages(), kSequences, 0,
                                  device_)),
        steps_(weights.config.vocabulary, page_tables(),
               device_.take(static_cast<size_t>(kSequences * weights.config.vocabulary) *
                            sizeof(float))) {}

  const Ops& ops() const { return *ops_; }
  std::map<std::string, double> take_times() {
    const std::map<std::string, double> times = timed_.seconds();
    timed_.reset();
    return times;
  }

  // A whole prompt of one sequence from its start, with the logits of its last row.
  double prompt_ms(int32_t sequence, int64_t n_rows, bool is_timed = false) {
    steps_.set_length(sequence, 0);
    device_.wait();
    const double begin = now_ms();
    for (int64_t at = 0; at < n_rows; at += chunk_rows_) {
      const int64_t n = std::min(chunk_rows_, n_rows - at);
      const RandomSteps::Rows rows{sequence, n};
      steps_.run(model(is_timed), state_, {&rows, 1}, at + n == n_rows);
    }
    device_.wait();
    return now_ms() - begin;
  }
  // One row of each of the first n sequences, as a server does: the next waits for the logits.
  double decode_ms(int64_t n_sequences, bool is_timed = false) {
    std::vector<RandomSteps::Rows> rows;
    for (int32_t s = 0; s < n_sequences; ++s) rows.push_back({s, 1});
    device_.wait();
    const double begin = now_ms();
    steps_.run(model(is_timed), state_, rows, true);
    device_.wait();
    return now_ms() - begin;
  }
  // Distinct experts of such a step, over all layers.
  int64_t n_touched(int64_t n_sequences) {
    int64_t n = 0;
    model_.set_tap([&](std::string_view place, int64_t, const Tensor& ids) {
      if (place != "expert_ids") return;
      std::vector<int32_t> all(static_cast<size_t>(ids.n_elements()));
      device_.read(all.data(), ids.data, ids.n_bytes());
      n += static_cast<int64_t>(std::set<int32_t>(all.begin(), all.end()).size());
    });
    decode_ms(n_sequences);
    model_.set_tap({});
    return n;
  }

 private:
  Qwen35& model(bool is_timed) { return is_timed ? timed_model_ : model_; }
  static int64_t pages_of(int32_t sequence) {
    const int64_t n_tokens = sequence == 0 ? kPromptRows[1] + 1024 : kShortContext + 1024;
    return (n_tokens + kPageTokens - 1) / kPageTokens;
  }
  static int32_t n_pages() {
    int64_t n = 0;
    for (int32_t s = 0; s < kSequences; ++s) n += pages_of(s);
    return static_cast<int32_t>(n);
  }
  static std::vector<std::vector<int32_t>> page_tables() {
    std::vector<std::vector<int32_t>> tables(kSequences);
    int32_t next = 0;
    for (int32_t s = 0; s < kSequences; ++s)
      for (int64_t p = 0; p < pages_of(s); ++p) tables[static_cast<size_t>(s)].push_back(next++);
    return tables;
  }

  Device& device_;
  int64_t chunk_rows_;
  std::unique_ptr<Ops> ops_;
  TimedOps timed_;
  Qwen35 model_, timed_model_;
  ModelState state_;
  RandomSteps steps_;
};

// Median, and (largest - smallest) / median.
void summarize(std::vector<double> ms, Row& row) {
  std::sort(ms.begin(), ms.end());
  row.ms = ms[ms.size() / 2];
  row.spread = (ms.back() - ms.front()) / row.ms;
}

double kv_bytes(const ModelConfig& c, double n_tokens) {
  return n_tokens * static_cast<double>(c.n_full_layers() * 2 * c.n_kv_heads * c.head_dim) * 2;
}

double decode_floor_ms(const ModelWeights& weights, int64_t rows, int64_t context,
                       int64_t n_touched) {
  const ModelConfig& c = weights.config;
  const ActiveBytes active = active_bytes(weights);
  const int64_t of_one_row = c.n_layers * c.experts_per_token;
  double n_bytes = static_cast<double>(active.layers + active.head);
  if (c.is_moe())
    n_bytes += static_cast<double>(n_touched - of_one_row) * static_cast<double>(active.one_expert);
  const double state =
      2.0 * 4 * static_cast<double>(c.n_delta_layers() * c.n_value_heads * c.key_dim * c.value_dim);
  n_bytes += static_cast<double>(rows) * (state + kv_bytes(c, static_cast<double>(context)));
  return n_bytes / kBytesPerSecond * 1e3;
}

double prompt_floor_ms(const ModelWeights& weights, int64_t rows) {
  const ModelConfig& c = weights.config;
  const double n = static_cast<double>(rows);
  // Scores and sums, of all pairs of a row and a key at or in front of it.
  const double attention =
      4 * static_cast<double>(c.n_full_layers() * c.n_heads * c.head_dim) * n * (n + 1) / 2;
  return (active_bytes(weights).flop_layers_per_row * n + attention) / kFlopPerSecond * 1e3;
}

std::vector<Row> measure(const ModelWeights& weights, CardSubject& subject, int repetitions) {
  std::vector<Row> rows;
  for (int32_t s = 0; s < kSequences; ++s) subject.prompt_ms(s, kShortContext);
  for (const int64_t n : kDecodeRows) {
    Row row{.kind = "decode", .rows = n, .context = kShortContext};
    row.floor_ms = decode_floor_ms(weights, n, kShortContext, subject.n_touched(n));
    for (int i = 0; i < 3; ++i) subject.decode_ms(n);
    std::vector<double> ms;
    for (int i = 0; i < repetitions; ++i) ms.push_back(subject.decode_ms(n));
    summarize(ms, row);
    rows.push_back(row);
  }
  for (const int64_t n : kPromptRows) {
    Row row{.kind = "prompt", .rows = n};
    row.floor_ms = prompt_floor_ms(weights, n);
    std::vector<double> ms;
    for (int i = 0; i < std::max(1, repetitions / 8); ++i) ms.push_back(subject.prompt_ms(0, n));
    summarize(ms, row);
    rows.push_back(row);
  }
  Row row{.kind = "decode", .rows = 1, .context = kPromptRows[1]};
  row.floor_ms = decode_floor_ms(weights, 1, kPromptRows[1], subject.n_touched(1));
  for (int i = 0; i < 3; ++i) subject.decode_ms(1);
  std::vector<double> ms;
  for (int i = 0; i < repetitions; ++i) ms.push_back(subject.decode_ms(1));
  summarize(ms, row);
  rows.push_back(row);
  return rows;
}

void print_times(const char* what, const std::map<std::string, double>& times) {
  std::printf("%s:", what);
  for (const auto& [op, seconds] : times) std::printf(" %s %.3f", op.c_str(), seconds * 1e3);
  std::printf("\n");
}

void print_json(const std::vector<Row>& rows, const std::string& card,
                const BenchOptions& options) {
  const std::string shape = synthetic_shape_of(options.model).value_or(options.model);
  json::Value list = json::Value::array();
  for (const Row& r : rows) {
    json::Value v = json::Value::object();
    v.set("shape", json::Value::string(shape));
    v.set("kind", json::Value::string(r.kind));
    v.set("rows", json::Value::integer(r.rows));
    v.set("context", json::Value::integer(r.context));
    v.set("ms", json::Value::real(r.ms));
    v.set("floor_ms", json::Value::real(r.floor_ms));
    v.set("share_of_floor", json::Value::real(r.floor_ms / r.ms));
    v.set("spread", json::Value::real(r.spread));
    list.push(std::move(v));
  }
  json::Value out = json::Value::object();
  out.set("card", json::Value::string(card));
  out.set("rows", std::move(list));
  std::printf("%s\n", json::write(out).c_str());
}

}  // namespace

int run_card_bench(const ModelWeights& weights, Hardware& hardware, const BenchOptions& options) {
  CardSubject subject(weights, hardware, options.chunk_rows);
  const std::vector<Row> rows = measure(weights, subject, options.repetitions);
  if (const Error* loss = hardware.device().loss()) return complain(*loss);
  if (options.json) {
    print_json(rows, subject.ops().name(), options);
    return 0;
  }
  for (const Row& r : rows)
    std::printf("%-6s %5lld row(s) at %5lld: %9.3f ms, floor %8.3f ms: %5.1f %%, spread %.1f %%\n",
                r.kind.c_str(), static_cast<long long>(r.rows), static_cast<long long>(r.context),
                r.ms, r.floor_ms, 100 * r.floor_ms / r.ms, 100 * r.spread);
  subject.take_times();
  subject.prompt_ms(0, kPromptRows[0], true);
  print_times("a prompt of 2048 rows, op by op, ms", subject.take_times());
  subject.decode_ms(1, true);
  print_times("a decode step of 1 row, op by op, ms", subject.take_times());
  subject.decode_ms(kSequences, true);
  print_times("a decode step of 16 rows, op by op, ms", subject.take_times());
  return 0;
}

}  // namespace roost
