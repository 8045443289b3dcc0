#include "engine/engine.h"

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>

#include "base/memory.h"
#include "cache/id_pool.h"
#include "engine/scheduler.h"
#include "engine/sequence.h"

namespace roost {
namespace {

constexpr int64_t kOtherStreamTokens = 8192;  // K/V planned for each stream beside the first
constexpr int32_t kReplayRowsMax = 0;         // no drafts: nothing is ever replayed

int64_t div_ceil(int64_t n, int64_t d) {
  return (n + d - 1) / d;
}

class EngineImpl final : public Engine {
 public:
  EngineImpl(std::shared_ptr<const ModelWeights> weights, const EngineOptions& options,
             const MemoryPlan& plan, const Clock& clock);
  ~EngineImpl() override;

  Result<RequestId> submit(EngineRequest request, EventSink sink) override;
  void cancel(RequestId id) override;
  void drain() override;
  int64_t context_max() const override { return options_.context_max; }
  const MemoryPlan& memory_plan() const override { return plan_; }
  std::string backend() const override { return ops_->name(); }
  Counts counts() const override;

 private:
  using SequencePtr = std::unique_ptr<Sequence>;

  void run();
  bool take_commands();
  void admit();
  bool reserve(Sequence& sequence);
  void release(Sequence& sequence);
  void grow_pages();
  void suspend_newest();
  void step();
  void build_step();
  void sample_step();
  void keep(Sequence& sequence, int32_t token);
  void finish(Sequence& sequence, Finish how, std::optional<Error> error = std::nullopt);
  void remove_finished();
  void publish_counts();

  const std::shared_ptr<const ModelWeights> weights_;
  const EngineOptions options_;
  const MemoryPlan plan_;
  const Clock& clock_;

  ThreadPool pool_;
  std::unique_ptr<Ops> ops_;
  Qwen35 model_;
  ModelState state_;
  IdPool pages_, slots_;
  Buffer logits_, drawn_;

  // Engine thread only.
  std::vector<SequencePtr> running_;  // in order of admission
  std::deque<SequencePtr> waiting_;
  std::vector<SequenceNeed> needs_;
  std::vector<Chunk> chunks_;
  std::vector<int32_t> step_tokens_, step_positions_, logit_rows_, logit_sequences_;
  std::vector<RowSpan> row_spans_;
  std::vector<DeltaSpan> delta_spans_;
  std::vector<SampleParams> sample_params_;
  std::vector<const uint32_t*> sample_masks_;

  // Between threads.
  mutable std::mutex mutex_;
  std::condition_variable wake_;
  std::vector<SequencePtr> submitted_;
  std::vector<RequestId> cancelled_;
  Counts counts_;
  size_t n_open_ = 0;  // submitted and not yet admitted: what queue_max bounds
  RequestId next_id_ = 1;
  bool is_draining_ = false, is_stopping_ = false;

  std::thread thread_;
};

OpsLimits limits_for(const ModelWeights& weights, const EngineOptions& options) {
  OpsLimits limits = Qwen35::ops_limits(weights.config, options.chunk_rows_max);
  limits.context_max = options.context_max;
  return limits;
}

MemoryPlan plan_memory(const ModelWeights& weights, EngineOptions& options) {
  const ModelConfig& c = weights.config;
  if (options.context_max <= 0) options.context_max = c.context_max;
  if (options.n_threads <= 0) options.n_threads = n_usable_cpus();
  if (options.n_tokens <= 0) options.n_tokens = c.vocabulary;
  options.chunk_rows_max = std::max<int64_t>(options.chunk_rows_max, options.streams_max);

  MemoryPlan plan;
  plan.weights_mapped = weights.bytes_mapped;
  plan.weights_owned = weights.bytes_owned;
  const size_t page_bytes = ModelState::bytes_per_page(c, DType::kBF16);
  const size_t available = available_memory_bytes();
  int64_t n_pages = div_ceil(options.context_max, kPageTokens) +
                    (options.streams_max - 1) *
                        div_ceil(std::min(kOtherStreamTokens, options.context_max), kPageTokens);
  if (page_bytes > 0) {
    size_t kv_bytes = options.kv_bytes;
    if (kv_bytes == 0 && available > 0) kv_bytes = available / 4;
    if (kv_bytes > 0) n_pages = std::min(n_pages, static_cast<int64_t>(kv_bytes / page_bytes));
  }
  plan.n_pages = static_cast<int32_t>(std::max<int64_t>(n_pages, 1));
  plan.n_slots = options.streams_max;
  options.context_max =
      std::min(options.context_max, static_cast<int64_t>(plan.n_pages) * kPageTokens);
  plan.pages = static_cast<size_t>(plan.n_pages) * page_bytes;
  plan.slots = static_cast<size_t>(plan.n_slots) *
               ModelState::bytes_per_slot(c, DType::kBF16, kReplayRowsMax);
  plan.scratch =
      Qwen35::scratch_bytes(c, DType::kBF16, options.chunk_rows_max, options.chunk_rows_max) +
      static_cast<size_t>(options.streams_max * c.vocabulary) * sizeof(float);
  plan.workspace = cpu_workspace_bytes(limits_for(weights, options), options.n_threads);
  return plan;
}

EngineImpl::EngineImpl(std::shared_ptr<const ModelWeights> weights, const EngineOptions& options,
                       const MemoryPlan& plan, const Clock& clock)
    : weights_(std::move(weights)),
      options_(options),
      plan_(plan),
      clock_(clock),
      pool_(options.n_threads),
      ops_(make_cpu_ops(pool_, limits_for(*weights_, options))),
      model_(*weights_, *ops_, options.chunk_rows_max, options.chunk_rows_max),
      state_(ModelState::create(weights_->config, ops_->activation(), plan.n_pages, plan.n_slots,
                                kReplayRowsMax)),
      pages_(plan.n_pages),
      slots_(plan.n_slots),
      logits_(static_cast<size_t>(options.streams_max * weights_->config.vocabulary) *
              sizeof(float)),
      drawn_(static_cast<size_t>(options.streams_max) * sizeof(int32_t)) {
  const auto n_streams = static_cast<size_t>(options.streams_max);
  const auto n_rows = static_cast<size_t>(options.chunk_rows_max);
  running_.reserve(n_streams);
  needs_.reserve(n_streams);
  chunks_.reserve(n_streams);
  step_tokens_.reserve(n_rows);
  step_positions_.reserve(3 * n_rows);
  for (auto* per_stream : {&logit_rows_, &logit_sequences_}) per_stream->reserve(n_streams);
  row_spans_.reserve(n_streams);
  delta_spans_.reserve(n_streams);
  sample_params_.reserve(n_streams);
  sample_masks_.reserve(n_streams);
  counts_.n_free_pages = counts_.n_pages = plan.n_pages;
  counts_.n_free_slots = counts_.n_slots = plan.n_slots;
  thread_ = std::thread([this] { run(); });
}

EngineImpl::~EngineImpl() {
  {
    const std::lock_guard lock(mutex_);
    is_stopping_ = true;
  }
  wake_.notify_all();
  thread_.join();
}

// ------------------------------------------------------------------------------- from any thread

Result<Engine::RequestId> EngineImpl::submit(EngineRequest request, EventSink sink) {
  const auto n_prompt = static_cast<int64_t>(request.prompt.size());
  if (n_prompt == 0) return Error{Refusal::EmptyPrompt, "0 tokens"};
  if (n_prompt > options_.context_max - 1) {
    return Error{Refusal::RequestTooLong, std::to_string(n_prompt) + " tokens > " +
                                              std::to_string(options_.context_max - 1) +
                                              " maximum; this model's maximum context length is " +
                                              std::to_string(options_.context_max) + " tokens"};
  }
  for (const int32_t token : request.prompt) {
    if (token < 0 || token >= weights_->config.vocabulary) {
      return Error{Refusal::FieldRange, "token id " + std::to_string(token) + ", want 0 to " +
                                            std::to_string(weights_->config.vocabulary - 1)};
    }
  }
  auto sequence = std::make_unique<Sequence>();
  const int64_t fits = options_.context_max - n_prompt;
  sequence->is_cut_by_context = request.new_tokens_max > fits;
  sequence->new_tokens_max = std::max<int64_t>(std::min(request.new_tokens_max, fits), 1);
  sequence->n_prompt = n_prompt;
  sequence->tokens.reserve(static_cast<size_t>(n_prompt + sequence->new_tokens_max));
  sequence->tokens = request.prompt;
  sequence->pages.reserve(
      static_cast<size_t>(div_ceil(n_prompt + sequence->new_tokens_max, kPageTokens)));
  sequence->event.n_prompt = n_prompt;
  sequence->event.tokens.reserve(1);
  sequence->event.submitted_ns = clock_.now_ns();
  sequence->request = std::move(request);
  if (sequence->request.grammar) {
    sequence->matcher = std::make_unique<GrammarMatcher>(sequence->request.grammar);
    const int64_t n_text = sequence->request.grammar.grammar->vocabulary().n_tokens();
    sequence->mask.resize(mask_words(std::max(weights_->config.vocabulary, n_text)));
  }
  sequence->sink = std::move(sink);

  const std::lock_guard lock(mutex_);
  if (is_draining_ || is_stopping_) return Error{Refusal::ServerDraining, ""};
  if (n_open_ >= options_.queue_max) {
    return Error{Refusal::QueueFull,
                 std::to_string(n_open_) + " waiting, limit " + std::to_string(options_.queue_max)};
  }
  ++n_open_;
  sequence->id = next_id_++;
  const RequestId id = sequence->id;
  submitted_.push_back(std::move(sequence));
  wake_.notify_one();
  return id;
}

void EngineImpl::cancel(RequestId id) {
  const std::lock_guard lock(mutex_);
  cancelled_.push_back(id);
  wake_.notify_one();
}

void EngineImpl::drain() {
  const std::lock_guard lock(mutex_);
  is_draining_ = true;
}

Engine::Counts EngineImpl::counts() const {
  const std::lock_guard lock(mutex_);
  return counts_;
}

// ------------------------------------------------------------------------------ the engine thread

void EngineImpl::run() {
  while (take_commands()) {
    admit();
    if (!running_.empty()) step();
    publish_counts();
  }
  for (auto& sequence : running_) finish(*sequence, Finish::kCancelled);
  for (auto& sequence : waiting_) finish(*sequence, Finish::kCancelled);
}

// Sleeps while there is nothing to do; false when the engine ends.
bool EngineImpl::take_commands() {
  std::unique_lock lock(mutex_);
  if (running_.empty() && waiting_.empty()) {
    wake_.wait(lock, [&] { return is_stopping_ || !submitted_.empty() || !cancelled_.empty(); });
  }
  for (SequencePtr& sequence : submitted_) waiting_.push_back(std::move(sequence));
  submitted_.clear();
  std::vector<RequestId> cancelled;
  cancelled.swap(cancelled_);
  const bool goes_on = !is_stopping_;
  lock.unlock();

  for (const RequestId id : cancelled) {
    for (auto& s : running_) s->is_cancelled |= s->id == id;
    for (auto& s : waiting_) s->is_cancelled |= s->id == id;
  }
  if (!cancelled.empty()) remove_finished();
  return goes_on;
}

// The first of the queue runs as soon as a slot and its pages are free; nobody overtakes it.
void EngineImpl::admit() {
  while (!waiting_.empty() && static_cast<int32_t>(running_.size()) < options_.streams_max) {
    if (!reserve(*waiting_.front())) return;
    if (waiting_.front()->is_queued) {
      waiting_.front()->is_queued = false;
      const std::lock_guard lock(mutex_);
      --n_open_;
    }
    running_.push_back(std::move(waiting_.front()));
    waiting_.pop_front();
  }
}

bool EngineImpl::reserve(Sequence& s) {
  const int64_t new_left = s.new_tokens_max - s.n_generated();
  const int64_t n_tokens =
      static_cast<int64_t>(s.tokens.size()) + std::min(new_left, options_.reserved_new_tokens);
  const int64_t n_pages = div_ceil(n_tokens, kPageTokens);
  if (slots_.n_free() == 0 || pages_.n_free() < n_pages) return false;
  s.slot = *slots_.take();
  state_.reset_slot(s.slot);
  while (static_cast<int64_t>(s.pages.size()) < n_pages) s.pages.push_back(*pages_.take());
  return true;
}

void EngineImpl::release(Sequence& s) {
  for (const int32_t page : s.pages) pages_.give_back(page);
  s.pages.clear();
  if (s.slot >= 0) slots_.give_back(s.slot);
  s.slot = -1;
  s.n_computed = 0;
}

// Every running sequence gets the page of its next row. When none is free the newest sequence
// waits; its tokens are computed again later and are the same (law 1).
void EngineImpl::grow_pages() {
  for (size_t i = 0; i < running_.size(); ++i) {
    const int64_t n_pages = div_ceil(static_cast<int64_t>(running_[i]->tokens.size()), kPageTokens);
    while (i < running_.size() && static_cast<int64_t>(running_[i]->pages.size()) < n_pages) {
      if (const auto page = pages_.take()) {
        running_[i]->pages.push_back(*page);
      } else {
        suspend_newest();
      }
    }
  }
}

void EngineImpl::suspend_newest() {
  ROOST_CHECK(running_.size() >
              1);  // one sequence alone always fits: the context is bounded by the pages
  release(*running_.back());
  waiting_.push_front(std::move(running_.back()));
  running_.pop_back();
}

void EngineImpl::step() {
  grow_pages();
  build_step();
  const auto n_logits = static_cast<int64_t>(logit_rows_.size());
  const Tensor logits = logits_.tensor(DType::kF32, {n_logits, weights_->config.vocabulary});
  model_.forward({.tokens = step_tokens_,
                  .positions = step_positions_,
                  .rows = row_spans_,
                  .delta_rows = delta_spans_,
                  .logit_rows = logit_rows_,
                  .logits = logits},
                 state_);
  if (n_logits > 0) sample_step();
  remove_finished();
}

void EngineImpl::build_step() {
  needs_.clear();
  for (const auto& s : running_)
    needs_.push_back({static_cast<int64_t>(s->tokens.size()), s->n_computed});
  plan_step(needs_, {options_.chunk_rows_max, options_.prompt_rows_beside_max}, chunks_);

  step_tokens_.clear(), step_positions_.clear(), logit_rows_.clear(), logit_sequences_.clear();
  row_spans_.clear(), delta_spans_.clear(), sample_params_.clear();
  sample_masks_.clear();
  for (const Chunk& chunk : chunks_) {
    Sequence& s = *running_[static_cast<size_t>(chunk.sequence_idx)];
    const auto first_row = static_cast<int32_t>(step_tokens_.size());
    const auto n_rows = static_cast<int32_t>(chunk.n_rows);
    for (int64_t t = s.n_computed; t < s.n_computed + chunk.n_rows; ++t) {
      step_tokens_.push_back(s.tokens[static_cast<size_t>(t)]);
      for (int axis = 0; axis < 3; ++axis) step_positions_.push_back(static_cast<int32_t>(t));
    }
    row_spans_.push_back({first_row, n_rows, static_cast<int32_t>(s.n_computed), s.pages.data()});
    delta_spans_.push_back({.first_row = first_row,
                            .n_new = n_rows,
                            .n_replay = 0,
                            .store_after = n_rows,
                            .first_packed = first_row,
                            .slot = s.slot});
    s.n_computed += chunk.n_rows;
    if (!s.has_started) {
      s.has_started = true;
      s.event.kind = EngineEvent::Kind::kStarted;
      s.event.started_ns = clock_.now_ns();
      s.sink(s.event);
    }
    if (s.n_computed == static_cast<int64_t>(s.tokens.size())) {
      logit_rows_.push_back(first_row + n_rows - 1);
      logit_sequences_.push_back(chunk.sequence_idx);
      sample_params_.push_back(s.request.sampling);
      sample_params_.back().position = s.n_computed;
      sample_masks_.push_back(s.next_mask(weights_->config.end_tokens));
    }
  }
}

void EngineImpl::sample_step() {
  const auto n_logits = static_cast<int64_t>(logit_rows_.size());
  const Tensor drawn = drawn_.tensor(DType::kI32, {n_logits});
  ops_->run(Sample{.logits = logits_.tensor(DType::kF32, {n_logits, weights_->config.vocabulary}),
                   .params = sample_params_,
                   .n_tokens = options_.n_tokens,
                   .tokens = drawn,
                   .masks = sample_masks_});
  for (int64_t i = 0; i < n_logits; ++i) {
    Sequence& s = *running_[static_cast<size_t>(logit_sequences_[static_cast<size_t>(i)])];
    const int32_t token = drawn.as<int32_t>()[i];
    if (token < 0) {
      finish(s, Finish::kError,
             Error{Refusal::EngineNonfinite, "position " + std::to_string(s.n_computed)});
    } else {
      keep(s, token);
    }
  }
}

void EngineImpl::keep(Sequence& s, int32_t token) {
  const std::vector<int32_t>& end_tokens = weights_->config.end_tokens;
  const bool is_end = (!s.request.ignore_end_tokens || s.matcher) &&
                      std::find(end_tokens.begin(), end_tokens.end(), token) != end_tokens.end();
  if (is_end || s.is_stop_token(token)) {
    s.event.end_token = token;
    return finish(s, Finish::kEndToken);
  }
  ROOST_CHECK(!s.matcher || s.matcher->accept(token));  // the mask let it
  s.tokens.push_back(token);
  const int64_t now = clock_.now_ns();
  if (s.n_generated() == 1) {
    s.event.first_token_ns = now;
  } else {
    s.event.gap_max_ns = std::max(s.event.gap_max_ns, now - s.last_tokens_ns);
  }
  s.last_tokens_ns = now;
  s.event.kind = EngineEvent::Kind::kTokens;
  s.event.tokens.assign(1, token);
  s.event.n_generated = s.n_generated();
  s.sink(s.event);
  if (s.n_generated() == s.new_tokens_max)
    finish(s, s.is_cut_by_context ? Finish::kContext : Finish::kLength);
}

void EngineImpl::finish(Sequence& s, Finish how, std::optional<Error> error) {
  if (!s.sink) return;  // it has ended already
  s.event.kind = EngineEvent::Kind::kFinished;
  s.event.tokens.clear();
  s.event.finish = how;
  s.event.error = std::move(error);
  s.event.n_generated = s.n_generated();
  s.event.finished_ns = clock_.now_ns();
  s.sink(s.event);
  s.sink = nullptr;
}

void EngineImpl::remove_finished() {
  for (SequencePtr& s : running_) {
    if (s->is_cancelled) finish(*s, Finish::kCancelled);
    if (!s->sink) release(*s);
  }
  size_t n_left_queue = 0;
  for (SequencePtr& s : waiting_) {
    if (!s->is_cancelled) continue;
    finish(*s, Finish::kCancelled);
    n_left_queue += s->is_queued;
  }
  const auto has_ended = [](const SequencePtr& s) { return !s->sink; };
  const auto n_ended =
      static_cast<int64_t>(std::erase_if(running_, has_ended) + std::erase_if(waiting_, has_ended));
  const std::lock_guard lock(mutex_);
  n_open_ -= n_left_queue;
  counts_.n_requests += n_ended;
}

void EngineImpl::publish_counts() {
  const std::lock_guard lock(mutex_);
  counts_.n_running = static_cast<int32_t>(running_.size());
  counts_.n_waiting = static_cast<int32_t>(waiting_.size() + submitted_.size());
  counts_.n_free_pages = pages_.n_free();
  counts_.n_free_slots = slots_.n_free();
  if (step_tokens_.empty()) return;
  ++counts_.n_steps;
  counts_.n_generated_tokens += static_cast<int64_t>(logit_rows_.size());
  counts_.n_prompt_tokens += static_cast<int64_t>(step_tokens_.size() - logit_rows_.size());
  step_tokens_.clear();
}

}  // namespace

Result<std::unique_ptr<Engine>> Engine::create(std::shared_ptr<const ModelWeights> weights,
                                               const EngineOptions& options, const Clock& clock) {
  EngineOptions chosen = options;
  const MemoryPlan plan = plan_memory(*weights, chosen);
  const size_t available = available_memory_bytes();
  const size_t to_take = plan.pages + plan.slots + plan.scratch + plan.workspace;
  if (available > 0 && to_take > available) {
    return Error{Refusal::MemoryTooSmall, "need " + std::to_string(to_take) +
                                              " bytes beside the weights, have " +
                                              std::to_string(available) +
                                              "; fewer --streams or a smaller --context need less"};
  }
  return std::unique_ptr<Engine>(
      std::make_unique<EngineImpl>(std::move(weights), chosen, plan, clock));
}

}  // namespace roost
