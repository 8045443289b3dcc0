#include "engine/model_runner.h"

#include <algorithm>
#include <atomic>
#include <cmath>
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
        kv_(options.kv),
        hardware_(options.hardware ? options.hardware : make_cpu_hardware(options.n_threads)),
        device_(hardware_->device()),
        ops_(hardware_->make_ops(step_limits(weights_->config, options))),
        model_(*weights_, *ops_, options.chunk_rows_max, packed_rows_max(options)),
        state_(ModelState::create(weights_->config, ops_->activation(), plan.n_pages, plan.n_slots,
                                  kReplayRowsMax, device_, options.kv)),
        kept_(ModelState::create(weights_->config, ops_->activation(), 0, plan.n_snapshots, 0,
                                 device_)),
        logits_(device_.take(
            static_cast<size_t>(drawn_rows_max(options) * weights_->config.vocabulary) *
            sizeof(float))),
        drawn_(device_.take(static_cast<size_t>(drawn_rows_max(options)) * sizeof(int32_t))) {
    masks_.reserve(static_cast<size_t>(drawn_rows_max(options)));
    if (options.drafter) add_drafter(options, plan);
    if (is_on_host()) return;
    size_t n_bytes = static_cast<size_t>(weights_->config.vocabulary) * sizeof(float);
    for (const ModelState::Delta& layer : kept_.delta) {
      if (plan.n_snapshots == 0) break;
      n_bytes = std::max({n_bytes, layer.state.at(0).n_bytes(), layer.tail.at(0).n_bytes()});
    }
    looked_at_ = Buffer(n_bytes);
  }

  void run(const StepRows& rows, std::span<int32_t> drawn) override {
    const auto n_logits = static_cast<int64_t>(rows.logit_rows.size());
    const Tensor logits = logits_.tensor(DType::kF32, {n_logits, weights_->config.vocabulary});
    model_.forward({.tokens = rows.tokens,
                    .positions = rows.positions,
                    .rows = rows.rows,
                    .delta_rows = rows.delta_rows,
                    .logit_rows = rows.logit_rows,
                    .logits = logits,
                    .tap_layers = tap_layers(),
                    .taps = taps_of(rows)},
                   state_);
    if (n_logits == 0) return;
    // Rows behind the first one of a hook wait for the token in front of them; all others are drawn
    // in as few calls as that leaves.
    size_t first = 0;
    for (size_t end = 1; end <= drawn.size(); ++end) {
      const bool waits = end < rows.hooks.size() && rows.hooks[end] != nullptr &&
                         rows.hooks[end] == rows.hooks[end - 1];
      if (end < drawn.size() && !waits) continue;
      draw(rows, logits, first, end, drawn);
      first = end;
    }
  }

  int32_t draft_rows_max() const override {
    return drafter_ ? static_cast<int32_t>(drafter_->config().block_rows_max) : 0;
  }

  // Taking in one row reads all of the drafter's context weights, as taking in many does: rows wait
  // while they can.
  void absorb(std::span<const TapRows> rows) override {
    if (!drafter_) return;
    absorbed_.clear();
    n_gathered_ = 0;
    for (const TapRows& taken : rows) {
      Waiting& waiting = waiting_[static_cast<size_t>(taken.slot)];
      const int32_t n_all = waiting.n_rows + taken.rows.n_rows;
      if (taken.can_wait && n_all <= kWaitingRows) {
        copy_taps(taps_, taken.rows.first_row, taken.rows.n_rows, waiting.taps, waiting.n_rows);
        waiting.n_rows = n_all;
        continue;
      }
      if (n_all == 0) continue;
      absorbed_.push_back(
          {n_gathered_, n_all, taken.rows.first_index - waiting.n_rows, taken.rows.page_table});
      copy_taps(waiting.taps, 0, waiting.n_rows, gathered_, n_gathered_);
      copy_taps(taps_, taken.rows.first_row, taken.rows.n_rows, gathered_,
                n_gathered_ + waiting.n_rows);
      n_gathered_ += n_all;
      waiting.n_rows = 0;
    }
    if (absorbed_.empty()) return;
    const int64_t width = drafter_->config().tap_width();
    drafter_->absorb(gathered_.tensor(ops_->activation(), {n_gathered_, width}), absorbed_,
                     draft_state_);
  }

  void draft(std::span<const DraftBlock> blocks, std::span<int32_t> tokens) override {
    if (drafter_) drafter_->draft(blocks, draft_state_, tokens);
  }

  void reset_slot(int32_t slot) override {
    forget_waiting(slot);
    state_.reset_slot(slot);
  }

  void replay(int32_t slot, int32_t n_rows) override {
    const DeltaSpan span{.n_replay = n_rows, .store_after = n_rows, .slot = slot};
    model_.replay({&span, 1}, state_);
  }

  void save_state(int32_t slot, int32_t snapshot) override {
    for_each_state([&](const ModelState::Delta& live, const ModelState::Delta& kept) {
      copy(kept.state.at(snapshot), live.state.at(slot));
      copy(kept.tail.at(snapshot), live.tail.at(slot));
    });
  }

  bool load_state(int32_t snapshot, int32_t slot) override {
    forget_waiting(slot);
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
      layer.for_each(
          [&](const Tensor& pool) { ops_->run(CopyPages{.pool = pool, .copies = copies}); });
    }
    for (const DrafterState::Pages& layer : draft_state_.pages) {
      ops_->run(CopyPages{.pool = layer.k, .copies = copies});
      ops_->run(CopyPages{.pool = layer.v, .copies = copies});
    }
  }

  size_t page_bytes() const override {
    const size_t target = ModelState::bytes_per_page(weights_->config, ops_->activation(), kv_);
    if (!drafter_) return target;
    return target + DrafterState::bytes_per_page(drafter_->config(), ops_->activation());
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
  const Error* loss() const override { return device_.loss(); }

 private:
  // Rows of a slot that the drafter has not taken in.
  struct Waiting {
    Buffer taps;  // [kWaitingRows, taps·h]
    int32_t n_rows = 0;
  };

  // Draws from rows [first, end) of logits, of which the first one alone may be unwanted.
  void draw(const StepRows& rows, const Tensor& logits, size_t first, size_t end,
            std::span<int32_t> drawn) {
    const auto hook_of = [&](size_t i) { return rows.hooks.empty() ? nullptr : rows.hooks[i]; };
    if (hook_of(first) != nullptr && !hook_of(first)->wants_row()) drawn[first++] = -1;
    if (first == end) return;
    masks_.clear();
    for (size_t i = first; i < end; ++i) {
      RowHook* hook = hook_of(i);
      if (hook != nullptr && hook->wants_logits()) {
        const Tensor row = logits.at(static_cast<int64_t>(i)), here = seen(row);
        hook->before_draw({here.as<float>(), static_cast<size_t>(n_tokens_)});
        if (!is_on_host()) device_.write(row.data, here.data, here.n_bytes());
      }
      masks_.push_back(hook == nullptr ? nullptr : hook->mask());
    }
    const auto n = static_cast<int64_t>(end - first);
    const Tensor tokens = drawn_.tensor(DType::kI32, {n});
    ops_->run(Sample{.logits = logits.rows(static_cast<int64_t>(first), n),
                     .params = rows.sampling.subspan(first, end - first),
                     .n_tokens = n_tokens_,
                     .tokens = tokens,
                     .masks = masks_});
    device_.read(drawn.data() + first, tokens.data, tokens.n_bytes());
    if (device_.loss() != nullptr) return;  // hooks are told what was drawn, and nothing was
    for (size_t i = first; i < end; ++i)
      if (hook_of(i) != nullptr) drawn[i] = hook_of(i)->after_draw(drawn[i]);
  }

  void add_drafter(const EngineOptions& options, const MemoryPlan& plan) {
    drafter_weights_ = options.drafter;
    const DrafterConfig& c = drafter_weights_->config;
    drafter_ =
        std::make_unique<Drafter>(*drafter_weights_, *weights_, *ops_, absorbed_rows_max(options),
                                  drawn_rows_max(options), options.n_tokens);
    draft_state_ = DrafterState::create(c, ops_->activation(), plan.n_pages, device_);
    const size_t row_bytes = static_cast<size_t>(c.tap_width()) * size_of(ops_->activation());
    taps_ = device_.take(static_cast<size_t>(options.chunk_rows_max) * row_bytes);
    gathered_ = device_.take(static_cast<size_t>(absorbed_rows_max(options)) * row_bytes);
    waiting_.resize(static_cast<size_t>(options.streams_max));
    for (Waiting& waiting : waiting_) waiting.taps = device_.take(kWaitingRows * row_bytes);
    absorbed_.reserve(static_cast<size_t>(options.streams_max));
  }

  void forget_waiting(int32_t slot) {
    if (drafter_) waiting_[static_cast<size_t>(slot)].n_rows = 0;
  }

  void copy_taps(const Buffer& from, int32_t from_row, int32_t n_rows, const Buffer& to,
                 int32_t to_row) const {
    const size_t row_bytes =
        static_cast<size_t>(drafter_->config().tap_width()) * size_of(ops_->activation());
    device_.copy(to.data() + static_cast<size_t>(to_row) * row_bytes,
                 from.data() + static_cast<size_t>(from_row) * row_bytes,
                 static_cast<size_t>(n_rows) * row_bytes);
  }

  std::span<const int64_t> tap_layers() const {
    if (!drafter_) return {};
    return drafter_->config().taps;
  }
  // Where the step's rows leave what the drafter takes in.
  Tensor taps_of(const StepRows& rows) const {
    if (!drafter_) return {};
    const auto n_rows = static_cast<int64_t>(rows.tokens.size());
    return taps_.tensor(ops_->activation(), {n_rows, drafter_->config().tap_width()});
  }

  bool is_on_host() const { return &device_ == &host_device(); }

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
      layer.for_each([&](const Tensor& pool) { work(pool.at(page)); });
    for (const DrafterState::Pages& layer : draft_state_.pages)
      work(layer.k.at(page)), work(layer.v.at(page));
  }
  template <class Work>
  void for_each_part_of_snapshot(int32_t snapshot, const Work& work) const {
    for (const ModelState::Delta& layer : kept_.delta)
      work(layer.state.at(snapshot)), work(layer.tail.at(snapshot));
  }

  const std::shared_ptr<const ModelWeights> weights_;
  const int64_t n_tokens_;
  const KvFormat kv_;
  const std::shared_ptr<Hardware> hardware_;
  Device& device_;
  std::unique_ptr<Ops> ops_;
  Qwen35 model_;
  ModelState state_;
  ModelState kept_;  // its slots are the snapshots; it has no pages and no row stores
  Buffer logits_, drawn_;
  std::vector<const uint32_t*> masks_;  // of one call of Sample
  // With a drafter.
  std::shared_ptr<const DrafterWeights> drafter_weights_;
  std::unique_ptr<Drafter> drafter_;
  DrafterState draft_state_;
  Buffer taps_;      // [rows of a step, taps·h]: of the last run
  Buffer gathered_;  // of one absorption
  int32_t n_gathered_ = 0;
  std::vector<Waiting> waiting_;  // by slot
  std::vector<RowSpan> absorbed_;
  Buffer looked_at_;  // of the host, where the model is a card's: one state or row of logits
};

}  // namespace

std::unique_ptr<StepRunner> make_model_runner(std::shared_ptr<const ModelWeights> weights,
                                              const EngineOptions& options,
                                              const MemoryPlan& plan) {
  return std::make_unique<ModelRunner>(std::move(weights), options, plan);
}

}  // namespace roost
