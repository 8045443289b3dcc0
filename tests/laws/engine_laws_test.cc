// The laws of the engine on real models: the tokens of a reply, the logits that they were drawn
// from and the bytes of its state are the same cold, warm, after eviction, after a restart,
// suspended and resumed, and beside streams that come and go.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <map>
#include <random>

#include "engine/cache_identity.h"
#include "engine/engine_core.h"
#include "engine/model_runner.h"
#include "engine/runner_around.h"
#include "tests/model_machine.h"
#include "tests/model_run.h"
#include "tests/side_work.h"
#include "weights/synthetic.h"

namespace roost {
namespace {

using Tokens = std::vector<int32_t>;
constexpr int32_t kTurn = 3;

struct Subject {
  const char* name;
  bool is_fledgling, has_experts;
  int64_t n_heads;
  int bits;
  KvFormat kv = KvFormat::kActivation;
};
const Subject kSubjects[] = {
    {"fledgling", true, true, 0, 0},
    {"routed, 4 bits", false, true, 16, 4},
    {"dense, 8 bits", false, false, 12, 8},
#ifndef ROOST_MODEL_CUDA  // a card has no kernels for codes
    {"fledgling, pages of codes", true, true, 0, 0, KvFormat::kInt8},
#endif
};

struct Model {
  std::shared_ptr<const ModelWeights> weights;
  KvFormat kv = KvFormat::kActivation;
};

std::shared_ptr<const ModelWeights> load_weights_of(const Subject& subject) {
  static std::map<std::string, std::shared_ptr<const ModelWeights>> loaded;
  auto& weights = loaded[subject.name];
  if (weights) return weights;
  const std::string fledgling = ROOST_SOURCE_DIR "/models/fledgling";
  if (subject.is_fledgling) return weights = testing::placed(testing::load_model(fledgling));
  std::string folder = (std::filesystem::temp_directory_path() / "roost-laws-XXXXXX").string();
  ROOST_CHECK(mkdtemp(folder.data()) != nullptr);
  SyntheticOptions options;
  options.shape = "tiny";
  options.has_experts = subject.has_experts;
  options.n_heads = subject.n_heads;
  options.bits = subject.bits;
  ROOST_CHECK(bool(write_synthetic_checkpoint(options, fledgling, folder)));
  weights = testing::placed(testing::load_model(folder));  // the mapping keeps the bytes
  std::filesystem::remove_all(folder);
  return weights;
}

// By position of the token that was drawn.
using Logits = std::map<int64_t, std::vector<float>>;

// A runner whose rows of logits are kept, by the seed of their request.
class HeardRunner final : public RunnerAround {
 public:
  using RunnerAround::RunnerAround;

  void run(const StepRows& rows, std::span<int32_t> drawn) override {
    if (rows.hooks.empty()) return RunnerAround::run(rows, drawn);  // a step that is only timed
    std::vector<Listener> listeners;
    listeners.reserve(rows.logit_rows.size());
    std::vector<RowHook*> hooks;
    for (size_t i = 0; i < rows.logit_rows.size(); ++i) {
      // Rows of one hook are drawn one behind the other: they keep one.
      const bool goes_on = i > 0 && rows.hooks[i] != nullptr && rows.hooks[i] == rows.hooks[i - 1];
      if (!goes_on) listeners.emplace_back(*this, rows.sampling.subspan(i), rows.hooks[i]);
      hooks.push_back(&listeners.back());
    }
    StepRows heard = rows;
    heard.hooks = hooks;
    RunnerAround::run(heard, drawn);
  }
  const Logits& heard(uint64_t seed) { return heard_[seed]; }

 private:
  struct Listener final : RowHook {
    Listener(HeardRunner& to, std::span<const SampleParams> params, RowHook* next)
        : runner(to), sampling(params), behind(next) {}
    bool wants_row() const override { return behind == nullptr || behind->wants_row(); }
    bool wants_logits() const override { return true; }
    void before_draw(std::span<float> logits) override {
      const SampleParams& params = sampling[n_drawn];
      runner.heard_[params.seed][params.position].assign(logits.begin(), logits.end());
      if (behind != nullptr && behind->wants_logits()) behind->before_draw(logits);
    }
    const uint32_t* mask() override { return behind == nullptr ? nullptr : behind->mask(); }
    int32_t after_draw(int32_t drawn) override {
      ++n_drawn;
      return behind == nullptr ? drawn : behind->after_draw(drawn);
    }
    HeardRunner& runner;
    std::span<const SampleParams> sampling;  // of its rows
    RowHook* behind;
    size_t n_drawn = 0;
  };

  std::map<uint64_t, Logits> heard_;
};

struct Reply {
  Tokens tokens;
  EngineEvent end;
  bool is_done = false;
};

// The engine's core over a real model, driven by hand; the clock stands still.
class Bench {
 public:
  Bench(const Model& model, bool has_cache, int32_t n_pages, int32_t n_snapshots = 40,
        const std::string& cache_folder = "") {
    const auto& weights = model.weights;
    EngineOptions options;
    options.kv = model.kv;
    options.streams_max = 4;
    options.chunk_rows_max = 96;
    options.n_threads = 1;
    options.hardware = testing::hardware();
    options.has_cache = has_cache;
    options.has_drafts = false;  // rows behind a draft that does not hold are of no reply
    options.snapshot_every = 128;
    options.turn_token = kTurn;
    options.reserved_new_tokens = 16;
    auto plan = plan_memory(*weights, options, 0);
    ROOST_CHECK(bool(plan));
    plan->n_pages = n_pages;
    plan->n_snapshots = has_cache ? n_snapshots : 0;
    options.context_max = 640;
    runner_ = std::make_unique<HeardRunner>(make_model_runner(weights, options, *plan));
    core_ = std::make_unique<EngineCore>(
        core_options(options, *plan, {}, weights->config.vocabulary), *runner_, system_clock());
    core_->measure_costs(1);
    if (cache_folder.empty()) return;
    auto files = PrefixFiles::open(
        {.folder = cache_folder,
         .bytes_max = uint64_t{1} << 30,
         .free_min = 0,
         .identity = cache_identity(*weights, nullptr, model.kv, runner_->name(), "tested"),
         .page_bytes = runner_->page_bytes(),
         .snapshot_bytes = runner_->snapshot_bytes()});
    ROOST_CHECK(bool(files));
    files_ = std::move(files).value();
    core_->keep_in(*files_, side_, 1);
  }

  std::shared_ptr<Reply> submit(const EngineRequest& request) {
    auto reply = std::make_shared<Reply>();
    auto sequence = EngineCore::make_sequence(
        request,
        [reply](const EngineEvent& event) {
          reply->tokens.insert(reply->tokens.end(), event.tokens.begin(), event.tokens.end());
          if (event.kind != EngineEvent::Kind::kFinished) return;
          reply->end = event;
          reply->is_done = true;
        },
        core_->options(), 0);
    sequence->id = ++n_requests_;
    core_->add(std::move(sequence));
    return reply;
  }
  void step() {
    core_->admit();
    core_->step();
  }
  void save() {
    while (core_->disk()->write_rest()) continue;
  }
  void finish() {
    while (core_->has_work()) step();
  }
  Reply ask(const EngineRequest& request) {
    const auto reply = submit(request);
    while (!reply->is_done) step();
    return *reply;
  }
  // The state that is kept behind exactly these tokens.
  std::vector<std::byte> state_behind(const Tokens& tokens) {
    PrefixTree& tree = const_cast<PrefixTree&>(core_->tree());
    std::vector<int32_t> pages;
    const auto hit = tree.find({}, tokens, static_cast<int64_t>(tokens.size()), pages);
    EXPECT_EQ(hit.n_tokens, static_cast<int64_t>(tokens.size()));
    std::vector<std::byte> bytes(runner_->snapshot_bytes());
    if (hit.snapshot >= 0) runner_->read_snapshot(hit.snapshot, bytes);
    return bytes;
  }
  EngineCore& core() { return *core_; }
  const Logits& logits(uint64_t seed) { return runner_->heard(seed); }

 private:
  std::unique_ptr<HeardRunner> runner_;
  std::unique_ptr<PrefixFiles> files_;
  testing::SideWorkAtOnce side_;
  std::unique_ptr<EngineCore> core_;
  uint64_t n_requests_ = 0;
};

Tokens text(size_t n, uint64_t seed) {
  std::mt19937_64 random(seed);
  Tokens tokens(n);
  for (int32_t& t : tokens) t = 5 + static_cast<int32_t>(random() % 900);
  return tokens;
}

EngineRequest request(Tokens prompt, int64_t n_max, uint64_t seed) {
  EngineRequest r;
  r.prompt = std::move(prompt);
  r.new_tokens_max = n_max;
  r.ignore_end_tokens = true;
  r.sampling = {.temperature = 1.3, .seed = seed};
  return r;
}

// The tokens whose rows have run when a reply of full length ends.
Tokens computed(const EngineRequest& r, const Reply& reply) {
  Tokens all = r.prompt;
  all.insert(all.end(), reply.tokens.begin(), reply.tokens.end() - 1);
  return all;
}

class EngineLaws : public ::testing::TestWithParam<size_t> {
 protected:
  void SetUp() override {
    model_ = {load_weights_of(kSubjects[GetParam()]), kSubjects[GetParam()].kv};
    std::printf("  %s\n", kSubjects[GetParam()].name);
    prompt_ = text(200, 1);
    prompt_[90] = prompt_[150] = prompt_[194] = kTurn;
    first_ = request(prompt_, 20, 5);
    Bench cold(model_, true, 40);
    want_ = cold.ask(first_);
    want_state_ = cold.state_behind(computed(first_, want_));
    want_logits_ = cold.logits(first_.sampling.seed);
    ASSERT_EQ(want_logits_.size(), 20u);
    ASSERT_EQ(want_.tokens.size(), 20u);
  }
  void expect_same(const Reply& have, Bench& bench, const std::string& what) {
    EXPECT_EQ(have.tokens, want_.tokens) << what;
    EXPECT_TRUE(bench.state_behind(computed(first_, have)) == want_state_) << what;
    EXPECT_TRUE(bench.logits(first_.sampling.seed) == want_logits_) << what;
  }
  // A prompt that leaves the first one behind n_shared tokens.
  EngineRequest branch(int64_t n_shared) const {
    EngineRequest other = first_;
    other.prompt.resize(static_cast<size_t>(n_shared));
    other.prompt.push_back((prompt_[static_cast<size_t>(n_shared)] + 1) % 900);
    const Tokens rest = text(30, static_cast<uint64_t>(n_shared));
    other.prompt.insert(other.prompt.end(), rest.begin(), rest.end());
    return other;
  }
  void expect_as_cold(Bench& warm, const EngineRequest& request, int64_t n_cached) {
    Bench cold(model_, true, 40);
    const Reply have = warm.ask(request), want = cold.ask(request);
    EXPECT_EQ(have.end.n_cached, n_cached);
    EXPECT_EQ(have.tokens, want.tokens) << n_cached;
    EXPECT_TRUE(warm.state_behind(computed(request, have)) ==
                cold.state_behind(computed(request, want)))
        << n_cached;
    // Of the first request the warm one holds rows of the same seed, at later positions too.
    for (const auto& [position, row] : cold.logits(request.sampling.seed))
      EXPECT_TRUE(warm.logits(request.sampling.seed).at(position) == row) << n_cached;
  }

  Model model_;
  Tokens prompt_;
  EngineRequest first_;
  Reply want_;
  std::vector<std::byte> want_state_;
  Logits want_logits_;
};

TEST_P(EngineLaws, without_a_prefix_cache_the_tokens_are_the_same) {
  Bench bench(model_, false, 40);
  EXPECT_EQ(bench.ask(first_).tokens, want_.tokens);
  EXPECT_TRUE(bench.logits(first_.sampling.seed) == want_logits_);
}

TEST_P(EngineLaws, warm_equals_cold_at_every_place_where_a_prompt_can_resume) {
  Bench first(model_, true, 40);
  first.ask(first_);
  // Prompts that share 1, 2, … tokens resume at every place that is kept; their own cold runs are
  // the yardstick.
  std::map<int64_t, int> n_resumed_at;
  for (const size_t n_shared : {size_t{95}, size_t{130}, size_t{155}, size_t{196}, size_t{199}}) {
    EngineRequest other = first_;
    other.sampling.seed = 6;
    other.prompt.resize(n_shared);
    const Tokens rest = text(30, n_shared);
    other.prompt.insert(other.prompt.end(), rest.begin(), rest.end());
    Bench warm(model_, true, 40), cold(model_, true, 40);
    warm.ask(first_);
    const Reply have = warm.ask(other), want = cold.ask(other);
    ++n_resumed_at[have.end.n_cached];
    EXPECT_EQ(have.tokens, want.tokens) << n_shared;
    EXPECT_TRUE(warm.state_behind(computed(other, have)) ==
                cold.state_behind(computed(other, want)))
        << n_shared;
  }
  EXPECT_EQ(n_resumed_at, (std::map<int64_t, int>{{90, 1}, {128, 1}, {150, 1}, {194, 2}}));
  const Reply again = first.ask(first_);
  EXPECT_EQ(again.end.n_cached, 194);
  expect_same(again, first, "again");
}

// States are kept at every kind of place relative to pages, steps and ends, in memory and in files.
TEST_P(EngineLaws, warm_equals_cold_wherever_a_state_was_kept) {
  const std::vector<int64_t> places = {1, 13, 63, 64, 65, 95, 96, 97, 127, 128, 129, 191, 192, 198};
  EngineRequest first = first_;
  first.places = places;
  for (const int64_t place : places) {
    Bench warm(model_, true, 40);
    warm.ask(first);
    EngineRequest other = branch(place);
    other.sampling.seed = 6;
    expect_as_cold(warm, other, place);
  }
  std::string folder = (std::filesystem::temp_directory_path() / "roost-cache-XXXXXX").string();
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  {
    Bench bench(model_, true, 40, 40, folder);
    bench.ask(first);
    bench.save();
  }
  // What is nearer than a page is computed sooner than read.
  for (const int64_t place : {64, 97, 128, 198}) {
    Bench restarted(model_, true, 40, 40, folder);
    expect_as_cold(restarted, branch(place), place);
  }
  std::filesystem::remove_all(folder);
}

TEST_P(EngineLaws, after_eviction_the_reply_is_the_same) {
  Bench bench(model_, true, 12);
  bench.ask(first_);
  for (uint64_t seed = 10; seed < 16; ++seed) bench.ask(request(text(300, seed), 4, seed));
  EXPECT_GT(bench.core().counts().n_evicted_pages, 0);
  expect_same(bench.ask(first_), bench, "evicted");
}

// What the prefix tree has no room for is copied to memory below it, as a card's is to the host's.
TEST_P(EngineLaws, from_the_memory_below_the_reply_is_the_same) {
  Bench bench(model_, true, 10);
  bench.core().keep_in_host(80, 40);
  bench.ask(first_);
  bench.ask(request(text(620, 10), 4, 10));  // takes every page
  const Reply have = bench.ask(first_);
  EXPECT_EQ(have.end.n_cached, 194);
  expect_same(have, bench, "from below");
  EXPECT_EQ(bench.core().counts().n_restored_from_host, 1);
  bench.core().check_invariants();
}

TEST_P(EngineLaws, after_a_restart_the_reply_is_the_same) {
  std::string folder = (std::filesystem::temp_directory_path() / "roost-cache-XXXXXX").string();
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  {
    Bench bench(model_, true, 40, 40, folder);
    bench.ask(first_);
    bench.save();
  }
  {
    Bench bench(model_, true, 40, 40, folder);
    const Reply have = bench.ask(first_);
    EXPECT_EQ(have.end.n_cached, 194);
    expect_same(have, bench, "restarted");
    EngineRequest next = first_;  // behind the reply
    next.prompt = computed(first_, want_);
    next.prompt.push_back(9);
    const Reply after = bench.ask(next);
    EXPECT_EQ(after.end.n_cached, static_cast<int64_t>(next.prompt.size()) - 1);
    EXPECT_EQ(after.tokens, Bench(model_, true, 40).ask(next).tokens);
  }
  std::filesystem::remove_all(folder);
}

TEST_P(EngineLaws, suspended_and_resumed_the_reply_is_the_same) {
  Bench bench(model_, true, 11);  // a prompt of 200 tokens, and little beside it
  EngineRequest elder = request(text(280, 30), 200, 31);
  const auto grows = bench.submit(elder);
  while (grows->tokens.empty()) bench.step();
  const auto reply = bench.submit(first_);
  bench.finish();
  EXPECT_TRUE(grows->is_done);
  EXPECT_EQ(reply->tokens, want_.tokens);
  // A foreground prompt takes the place of background work, which goes on afterwards.
  Bench two(model_, true, 40);
  EngineRequest background = first_;
  background.priority = kBackgroundPriority;
  std::vector<std::shared_ptr<Reply>> all;
  for (int i = 0; i < 3; ++i) all.push_back(two.submit(request(text(20, 40 + i), 30, 40 + i)));
  all.push_back(two.submit(background));
  for (int i = 0; i < 8; ++i) two.step();
  all.push_back(two.submit(request(text(20, 50), 5, 50)));
  two.finish();
  EXPECT_GT(two.core().counts().n_suspended, 0);
  expect_same(*all[3], two, "suspended");
}

TEST_P(EngineLaws, beside_streams_that_come_cancel_and_go_the_reply_is_the_same) {
  Bench bench(model_, true, 40);
  std::mt19937_64 random(77);
  const auto reply = bench.submit(first_);
  std::vector<std::shared_ptr<Reply>> others;
  for (uint64_t i = 0; i < 16; ++i) {
    EngineRequest other =
        request(text(1 + random() % 90, i % 5), 1 + static_cast<int64_t>(random() % 12), 100 + i);
    if (i % 4 == 0) other.prompt = first_.prompt;  // the same prompt, another seed
    others.push_back(bench.submit(other));
    if (i % 3 == 2) bench.core().cancel(i);
    bench.step();
  }
  bench.finish();
  expect_same(*reply, bench, "beside others");
  bench.core().check_invariants();
}

INSTANTIATE_TEST_SUITE_P(Subjects, EngineLaws, ::testing::Range(size_t{0}, std::size(kSubjects)));

}  // namespace
}  // namespace roost
