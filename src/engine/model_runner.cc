#include "engine/model_runner.h"

#include <atomic>
#include <cmath>
#include <cstring>
#include <utility>
#include <vector>

namespace roost {
namespace {

bool is_finite(const Tensor& t) {
  if (t.dtype == DType::kF32) {
    const float* x = t.as<float>();
    // An exponent of all ones is an infinity or not a number.
    uint32_t n_bad = 0;
    for (int64_t i = 0; i < t.n_elements(); ++i) n_bad += !std::isfinite(x[i]);
    return n_bad == 0;
  }
  const uint16_t* x = t.as<uint16_t>();  // bf16
  uint32_t n_bad = 0;
  for (int64_t i = 0; i < t.n_elements(); ++i) n_bad += (x[i] & 0x7F80u) == 0x7F80u;
  return n_bad == 0;
}

class ModelRunner final : public StepRunner {
 public:
  ModelRunner(std::shared_ptr<const ModelWeights> weights, const EngineOptions& options,
              const MemoryPlan& plan)
      : weights_(std::move(weights)),
        n_tokens_(options.n_tokens),
        pool_(options.n_threads),
        ops_(make_cpu_ops(pool_, step_limits(weights_->config, options))),
        model_(*weights_, *ops_, options.chunk_rows_max, packed_rows_max(options)),
        state_(ModelState::create(weights_->config, ops_->activation(), plan.n_pages, plan.n_slots,
                                  kReplayRowsMax)),
        kept_(ModelState::create(weights_->config, ops_->activation(), 0, plan.n_snapshots, 0)),
        logits_(static_cast<size_t>(options.streams_max * weights_->config.vocabulary) *
                sizeof(float)),
        drawn_(static_cast<size_t>(options.streams_max) * sizeof(int32_t)) {}

  void run(const StepRows& rows, std::span<int32_t> drawn) override {
    const auto n_logits = static_cast<int64_t>(rows.logit_rows.size());
    const Tensor logits = logits_.tensor(DType::kF32, {n_logits, weights_->config.vocabulary});
    model_.forward({.tokens = rows.tokens,
                    .positions = rows.positions,
                    .rows = rows.rows,
                    .delta_rows = rows.delta_rows,
                    .logit_rows = rows.logit_rows,
                    .logits = logits},
                   state_);
    if (n_logits == 0) return;
    for (size_t i = 0; i < rows.hooks.size(); ++i) {
      if (rows.hooks[i] == nullptr) continue;
      float* row = logits.as<float>() + static_cast<int64_t>(i) * logits.dim(1);
      rows.hooks[i]->before_draw({row, static_cast<size_t>(n_tokens_)});
    }
    const Tensor tokens = drawn_.tensor(DType::kI32, {n_logits});
    ops_->run(
        Sample{.logits = logits, .params = rows.sampling, .n_tokens = n_tokens_, .tokens = tokens});
    std::memcpy(drawn.data(), tokens.data, tokens.n_bytes());
  }

  void reset_slot(int32_t slot) override { state_.reset_slot(slot); }

  void save_state(int32_t slot, int32_t snapshot) override {
    for_each_state([&](const ModelState::Delta& live, const ModelState::Delta& kept) {
      std::memcpy(kept.state.at(snapshot).data, live.state.at(slot).data,
                  live.state.at(slot).n_bytes());
      std::memcpy(kept.tail.at(snapshot).data, live.tail.at(slot).data,
                  live.tail.at(slot).n_bytes());
    });
  }

  bool load_state(int32_t snapshot, int32_t slot) override {
    std::atomic<bool> is_good = true;
    for_each_state([&](const ModelState::Delta& live, const ModelState::Delta& kept) {
      const Tensor state = kept.state.at(snapshot), tail = kept.tail.at(snapshot);
      if (!is_finite(state) || !is_finite(tail)) is_good = false;
      std::memcpy(live.state.at(slot).data, state.data, state.n_bytes());
      std::memcpy(live.tail.at(slot).data, tail.data, tail.n_bytes());
    });
    return is_good;
  }

  void copy_page(int32_t from, int32_t to) override {
    const PageCopy copies[] = {{from, to}};
    for (const ModelState::Pages& layer : state_.pages) {
      ops_->run(CopyPages{.pool = layer.k, .copies = copies});
      ops_->run(CopyPages{.pool = layer.v, .copies = copies});
    }
  }

  size_t page_bytes() const override {
    return ModelState::bytes_per_page(weights_->config, ops_->activation());
  }
  size_t snapshot_bytes() const override {
    return ModelState::bytes_per_slot(weights_->config, ops_->activation(), 0);
  }

  void read_page(int32_t page, std::span<std::byte> to) const override {
    for_each_part_of_page(page, [&](const Tensor& part) {
      std::memcpy(to.data(), part.data, part.n_bytes());
      to = to.subspan(part.n_bytes());
    });
  }
  void write_page(int32_t page, std::span<const std::byte> from) override {
    for_each_part_of_page(page, [&](const Tensor& part) {
      std::memcpy(part.data, from.data(), part.n_bytes());
      from = from.subspan(part.n_bytes());
    });
  }
  void read_snapshot(int32_t snapshot, std::span<std::byte> to) const override {
    for_each_part_of_snapshot(snapshot, [&](const Tensor& part) {
      std::memcpy(to.data(), part.data, part.n_bytes());
      to = to.subspan(part.n_bytes());
    });
  }
  void write_snapshot(int32_t snapshot, std::span<const std::byte> from) override {
    for_each_part_of_snapshot(snapshot, [&](const Tensor& part) {
      std::memcpy(part.data, from.data(), part.n_bytes());
      from = from.subspan(part.n_bytes());
    });
  }

  std::string name() const override { return ops_->name(); }

 private:
  template <class Work>
  void for_each_state(const Work& work) {
    pool_.parallel_for(static_cast<int64_t>(state_.delta.size()), [&](int64_t i) {
      work(state_.delta[static_cast<size_t>(i)], kept_.delta[static_cast<size_t>(i)]);
    });
  }
  template <class Work>
  void for_each_part_of_page(int32_t page, const Work& work) const {
    for (const ModelState::Pages& layer : state_.pages)
      work(layer.k.at(page)), work(layer.v.at(page));
  }
  template <class Work>
  void for_each_part_of_snapshot(int32_t snapshot, const Work& work) const {
    for (const ModelState::Delta& layer : kept_.delta)
      work(layer.state.at(snapshot)), work(layer.tail.at(snapshot));
  }

  const std::shared_ptr<const ModelWeights> weights_;
  const int64_t n_tokens_;
  ThreadPool pool_;
  std::unique_ptr<Ops> ops_;
  Qwen35 model_;
  ModelState state_;
  ModelState kept_;  // its slots are the snapshots; it has no pages and no row stores
  Buffer logits_, drawn_;
};

}  // namespace

std::unique_ptr<StepRunner> make_model_runner(std::shared_ptr<const ModelWeights> weights,
                                              const EngineOptions& options,
                                              const MemoryPlan& plan) {
  return std::make_unique<ModelRunner>(std::move(weights), options, plan);
}

}  // namespace roost
