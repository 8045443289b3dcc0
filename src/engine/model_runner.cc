#include "engine/model_runner.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>
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
        hardware_(options.hardware ? options.hardware : make_cpu_hardware(options.n_threads)),
        device_(hardware_->device()),
        ops_(hardware_->make_ops(step_limits(weights_->config, options))),
        model_(*weights_, *ops_, options.chunk_rows_max, packed_rows_max(options)),
        state_(ModelState::create(weights_->config, ops_->activation(), plan.n_pages, plan.n_slots,
                                  kReplayRowsMax, device_)),
        kept_(ModelState::create(weights_->config, ops_->activation(), 0, plan.n_snapshots, 0,
                                 device_)),
        logits_(
            device_.take(static_cast<size_t>(options.streams_max * weights_->config.vocabulary) *
                         sizeof(float))),
        drawn_(device_.take(static_cast<size_t>(options.streams_max) * sizeof(int32_t))) {
    if (is_on_host() || plan.n_snapshots == 0) return;
    for (const ModelState::Delta& layer : kept_.delta) {
      const size_t n_bytes = std::max(layer.state.at(0).n_bytes(), layer.tail.at(0).n_bytes());
      if (n_bytes > looked_at_.n_bytes()) looked_at_ = Buffer(n_bytes);
    }
  }

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
    const Tensor tokens = drawn_.tensor(DType::kI32, {n_logits});
    if (!is_on_host()) hide_masked(rows, logits);
    ops_->run(Sample{.logits = logits,
                     .params = rows.sampling,
                     .n_tokens = n_tokens_,
                     .tokens = tokens,
                     .masks = is_on_host() ? rows.masks : std::span<const uint32_t* const>()});
    device_.read(drawn.data(), tokens.data, tokens.n_bytes());
  }

  void reset_slot(int32_t slot) override { state_.reset_slot(slot); }

  void save_state(int32_t slot, int32_t snapshot) override {
    for_each_state([&](const ModelState::Delta& live, const ModelState::Delta& kept) {
      copy(kept.state.at(snapshot), live.state.at(slot));
      copy(kept.tail.at(snapshot), live.tail.at(slot));
    });
  }

  bool load_state(int32_t snapshot, int32_t slot) override {
    std::atomic<bool> is_good = true;
    for_each_state([&](const ModelState::Delta& live, const ModelState::Delta& kept) {
      const Tensor state = kept.state.at(snapshot), tail = kept.tail.at(snapshot);
      if (!is_finite(seen(state)) || !is_finite(seen(tail))) is_good = false;
      copy(live.state.at(slot), state);
      copy(live.tail.at(slot), tail);
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
      device_.read(to.data(), part.data, part.n_bytes());
      to = to.subspan(part.n_bytes());
    });
  }
  void write_page(int32_t page, std::span<const std::byte> from) override {
    for_each_part_of_page(page, [&](const Tensor& part) {
      device_.write(part.data, from.data(), part.n_bytes());
      from = from.subspan(part.n_bytes());
    });
  }
  void read_snapshot(int32_t snapshot, std::span<std::byte> to) const override {
    for_each_part_of_snapshot(snapshot, [&](const Tensor& part) {
      device_.read(to.data(), part.data, part.n_bytes());
      to = to.subspan(part.n_bytes());
    });
  }
  void write_snapshot(int32_t snapshot, std::span<const std::byte> from) override {
    for_each_part_of_snapshot(snapshot, [&](const Tensor& part) {
      device_.write(part.data, from.data(), part.n_bytes());
      from = from.subspan(part.n_bytes());
    });
  }

  std::string name() const override { return ops_->name(); }

 private:
  bool is_on_host() const { return &device_ == &host_device(); }

  // The sampler of a card takes no masks: what they hide becomes minus infinity before it, but for
  // values that are not finite, which it must see.
  void hide_masked(const StepRows& rows, const Tensor& logits) {
    const int64_t n = logits.dim(1);
    std::vector<float> row(static_cast<size_t>(n));
    for (size_t i = 0; i < rows.masks.size(); ++i) {
      const uint32_t* mask = rows.masks[i];
      if (mask == nullptr) continue;
      std::byte* at = logits.data + i * row.size() * sizeof(float);
      device_.read(row.data(), at, row.size() * sizeof(float));
      for (size_t id = 0; id < static_cast<size_t>(n_tokens_); ++id)
        if (((mask[id / 32] >> (id % 32)) & 1) == 0 && std::isfinite(row[id]))
          row[id] = -std::numeric_limits<float>::infinity();
      device_.write(at, row.data(), row.size() * sizeof(float));
    }
  }

  // On a card one after the other, in the order of its work.
  template <class Work>
  void for_each_state(const Work& work) {
    const auto n = static_cast<int64_t>(state_.delta.size());
    const auto item = [&](int64_t i) {
      work(state_.delta[static_cast<size_t>(i)], kept_.delta[static_cast<size_t>(i)]);
    };
    if (is_on_host()) return hardware_->pool().parallel_for(n, item);
    for (int64_t i = 0; i < n; ++i) item(i);
  }
  void copy(const Tensor& to, const Tensor& from) {
    device_.copy(to.data, from.data, from.n_bytes());
  }
  // The tensor where the host can look at it, until the next call.
  Tensor seen(const Tensor& tensor) {
    if (is_on_host()) return tensor;
    const Tensor here = looked_at_.tensor(tensor.dtype, tensor.shape);
    device_.read(here.data, tensor.data, tensor.n_bytes());
    return here;
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
  const std::shared_ptr<Hardware> hardware_;
  Device& device_;
  std::unique_ptr<Ops> ops_;
  Qwen35 model_;
  ModelState state_;
  ModelState kept_;  // its slots are the snapshots; it has no pages and no row stores
  Buffer logits_, drawn_;
  Buffer looked_at_;  // of the host, where the states are a card's: one of them
};

}  // namespace

std::unique_ptr<StepRunner> make_model_runner(std::shared_ptr<const ModelWeights> weights,
                                              const EngineOptions& options,
                                              const MemoryPlan& plan) {
  return std::make_unique<ModelRunner>(std::move(weights), options, plan);
}

}  // namespace roost
