// An engine without its thread over the bundled model and its drafter, for the laws of drafts.
#pragma once

#include <algorithm>
#include <functional>

#include "base/file.h"
#include "base/json.h"
#include "engine/engine_core.h"
#include "engine/model_runner.h"
#include "engine/runner_around.h"
#include "tests/model_machine.h"
#include "tests/model_run.h"
#include "weights/drafter.h"

namespace roost::testing {

using Tokens = std::vector<int32_t>;

// Fledgling and its drafter where host_device() reads them, and where engines do.
inline const std::shared_ptr<const ModelWeights>& target_on_host() {
  static const auto weights = load_model(ROOST_SOURCE_DIR "/models/fledgling");
  return weights;
}
inline const std::shared_ptr<const ModelWeights>& target() {
  static const auto weights = placed(target_on_host());
  return weights;
}

inline const std::shared_ptr<const DrafterWeights>& drafter_on_host() {
  static const auto weights = std::make_shared<const DrafterWeights>(
      load_drafter(ROOST_SOURCE_DIR "/models/fledgling/drafter", *target_on_host()).value());
  return weights;
}
inline const std::shared_ptr<const DrafterWeights>& fledgling_drafter() {
  static const auto weights = placed(drafter_on_host());
  return weights;
}

struct Prompt {
  std::string kind;
  Tokens ids;
};

// 200 conversations, each without thinking and with it.
inline std::vector<Prompt> prompts() {
  const auto text = read_file(ROOST_SOURCE_DIR "/tests/golden/draft_prompts.json", 1 << 22).value();
  std::vector<Prompt> all;
  const json::Value list = json::parse(text).value();
  for (const json::Value& entry : list.items()) {
    for (const char* which : {"plain", "thinking"}) {
      Prompt prompt{entry.find("kind")->as_string(), {}};
      for (const json::Value& id : entry.find(which)->items())
        prompt.ids.push_back(static_cast<int32_t>(*id.as_int64()));
      all.push_back(std::move(prompt));
    }
  }
  return all;
}

// Every reading of it is a millisecond after the one before: a step costs the same whatever it
// holds, and more than its drafts (TestRunner::run), so drafts always pay and blocks are as deep as
// acceptance allows.
class TickingClock final : public Clock {
 public:
  int64_t now_ns() const override { return now_ += 1'000'000; }
  int64_t unix_seconds() const override { return 0; }

 private:
  mutable int64_t now_ = 0;
};

// What a test does to the model's runner.
class TestRunner : public RunnerAround {
 public:
  using RunnerAround::RunnerAround;

  void run(const StepRows& rows, std::span<int32_t> drawn) override {
    if (clock_ != nullptr) clock_->now_ns();
    if (on_step_) on_step_();
    if (!leaks_rejected_) return RunnerAround::run(rows, drawn);
    std::vector<DeltaSpan> spans(rows.delta_rows.begin(), rows.delta_rows.end());
    for (DeltaSpan& span : spans) span.store_after = span.n_packed();
    StepRows leaky = rows;
    leaky.delta_rows = spans;
    RunnerAround::run(leaky, drawn);
  }
  int32_t draft_rows_max() const override {
    return has_own_drafts_ ? 16 : RunnerAround::draft_rows_max();
  }
  void absorb(std::span<const TapRows> rows) override {
    for (const TapRows& taken : rows) {
      if (taken.rows.n_rows == 0) continue;  // what had to wait
      absorbed_.push_back({n_drafted_, taken.rows.n_rows});
      n_drafted_ = 0;
    }
    RunnerAround::absorb(rows);
  }
  void draft(std::span<const DraftBlock> blocks, std::span<int32_t> tokens) override {
    if (blocks[0].position > 0) n_drafted_ = blocks[0].n_rows - 1;
    if (!own_drafts_) return RunnerAround::draft(blocks, tokens);
    for (const DraftBlock& block : blocks) {
      const auto n = static_cast<size_t>(block.n_rows) - 1;
      own_drafts_(block, tokens.first(n));
      tokens = tokens.subspan(n);
    }
  }
  void save_state(int32_t slot, int32_t snapshot) override {
    last_saved_ = snapshot;
    RunnerAround::save_state(slot, snapshot);
  }
  // The state that was kept last.
  std::vector<std::byte> last_state() const {
    std::vector<std::byte> state(snapshot_bytes());
    read_snapshot(last_saved_, state);
    return state;
  }
  void replay(int32_t slot, int32_t n_rows) override {
    if (!loses_replays_) RunnerAround::replay(slot, n_rows);
  }
  using OwnDrafts = std::function<void(const DraftBlock&, std::span<int32_t>)>;
  void set_own_drafts(OwnDrafts drafts) {
    own_drafts_ = std::move(drafts);
    has_own_drafts_ = true;
  }
  void leak_rejected_rows() { leaks_rejected_ = true; }
  void lose_replays() { loses_replays_ = true; }
  void read_in_steps(const Clock& clock) { clock_ = &clock; }
  void on_step(std::function<void()> work) { on_step_ = std::move(work); }
  // What the drafter took in, by chunks and rounds; of a lone sequence also how many drafts its
  // rows began with.
  struct Absorbed {
    int32_t n_drafted, n_rows;
  };
  const std::vector<Absorbed>& absorbed() const { return absorbed_; }

 private:
  OwnDrafts own_drafts_;
  bool has_own_drafts_ = false, leaks_rejected_ = false, loses_replays_ = false;
  const Clock* clock_ = nullptr;
  std::function<void()> on_step_;
  std::vector<Absorbed> absorbed_;
  int32_t n_drafted_ = 0, last_saved_ = 0;
};

struct Reply {
  Tokens tokens;
  std::vector<TokenLogprobs> logprobs;
  EngineEvent end;
};

struct Ask {
  Tokens prompt;
  SampleParams sampling;
  int64_t new_tokens_max = 120;
  Tokens stop_tokens = {};
  std::function<void(EngineRequest&)> change = nullptr;  // what else is asked
};

// An engine without its thread.
class CoreRun {
 public:
  // clock: time is measured by it; null: every step takes as long as any other.
  CoreRun(bool has_drafts, bool has_drafter, int32_t streams_max = 8,
          std::shared_ptr<const ModelWeights> weights = target(), const Clock* clock = nullptr)
      : weights_(std::move(weights)), clock_(clock != nullptr ? *clock : ticking_) {
    options_.context_max = 1024;
    options_.streams_max = streams_max;
    options_.chunk_rows_max = 256;
    options_.n_tokens = weights_ == target() ? 3071 : weights_->config.vocabulary;
    options_.n_threads = clock != nullptr ? 2 : 1;  // one never waits on a busy machine
    options_.hardware = hardware();
    options_.has_drafts = has_drafts;
    if (has_drafter) options_.drafter = fledgling_drafter();
    plan_ = plan_memory(*weights_, options_, 0).value();
    runner_ = std::make_unique<TestRunner>(make_model_runner(weights_, options_, plan_));
    runner_->read_in_steps(clock_);
  }

  TestRunner& runner() { return *runner_; }
  const TestRunner& runner() const { return *runner_; }

  // Replies in the order of the asks, `together` of them at a time.
  std::vector<Reply> replies(const std::vector<Ask>& asks, size_t together) {
    start();
    std::vector<Reply> replies(asks.size());
    for (size_t first = 0; first < asks.size(); first += together) {
      for (size_t i = first; i < std::min(first + together, asks.size()); ++i) {
        EngineRequest request;
        request.prompt = asks[i].prompt;
        request.new_tokens_max = asks[i].new_tokens_max;
        request.sampling = asks[i].sampling;
        request.stop_tokens = asks[i].stop_tokens;
        if (asks[i].change) asks[i].change(request);
        Reply& reply = replies[i];
        auto sequence = EngineCore::make_sequence(
            std::move(request),
            [&reply](const EngineEvent& event) {
              reply.tokens.insert(reply.tokens.end(), event.tokens.begin(), event.tokens.end());
              reply.logprobs.insert(reply.logprobs.end(), event.logprobs.begin(),
                                    event.logprobs.end());
              if (event.kind == EngineEvent::Kind::kFinished) reply.end = event;
            },
            core_->options(), clock_.now_ns());
        sequence->id = next_id_++;
        core_->add(std::move(sequence));
      }
      while (core_->has_work()) {
        core_->admit();
        core_->step();
        if (&clock_ == &ticking_) core_->check_invariants();
      }
    }
    return replies;
  }

  Reply reply(const Ask& ask) { return replies({ask}, 1)[0]; }

  // Of an engine that has replied.
  EngineCore& core() { return *core_; }

 private:
  void start() {
    if (core_) return;
    core_ = std::make_unique<EngineCore>(
        core_options(options_, plan_, weights_->config.end_tokens, weights_->config.vocabulary),
        *runner_, clock_);
    if (&clock_ != &ticking_) core_->measure_costs(300'000'000);
  }

  const std::shared_ptr<const ModelWeights> weights_;
  TickingClock ticking_;
  const Clock& clock_;
  EngineOptions options_;
  MemoryPlan plan_;
  std::unique_ptr<TestRunner> runner_;
  std::unique_ptr<EngineCore> core_;
  Engine::RequestId next_id_ = 1;
};

inline DraftFigures sum_of(const std::vector<Reply>& replies) {
  DraftFigures sum;
  for (const Reply& reply : replies) sum.add(reply.end.drafts);
  return sum;
}

// Every n-th of the prompts, each with its own seed; temperature 0: greedy.
inline std::vector<Ask> asks_of(const std::vector<Prompt>& all, size_t every, double temperature) {
  std::vector<Ask> asks;
  for (size_t i = 0; i < all.size(); i += every) {
    SampleParams sampling;
    if (temperature > 0)
      sampling = {.temperature = temperature, .top_k = 20, .top_p = 0.95, .seed = 1000 + i};
    asks.push_back({all[i].ids, sampling});
  }
  return asks;
}

}  // namespace roost::testing
