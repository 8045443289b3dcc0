// The engine's thread, and the hand-over between it and the threads that submit.
#include "engine/engine.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "base/build_id.h"
#include "base/log.h"
#include "base/memory.h"
#include "engine/cache_identity.h"
#include "engine/engine_core.h"
#include "engine/model_runner.h"

namespace roost {
namespace {

constexpr int64_t kCostsBudgetNs = 250'000'000;    // of the start, for timing steps
constexpr int64_t kSaveBudgetNs = 10'000'000'000;  // of the end, for prefixes not yet saved
// Between two looks at those who wait although nobody runs: their deadlines pass.
constexpr int64_t kPollNs = 20'000'000;

class EngineImpl final : public Engine {
 public:
  EngineImpl(const ModelWeights& weights, const EngineOptions& options, const MemoryPlan& plan,
             std::unique_ptr<StepRunner> runner, std::unique_ptr<PrefixFiles> files,
             const Clock& clock);
  ~EngineImpl() override;

  Result<RequestId> submit(EngineRequest request, EventSink sink) override;
  void cancel(RequestId id) override;
  void drain() override;
  void flush_prefixes(std::function<void()> done) override;
  int64_t context_max() const override { return plan_.context_max; }
  const MemoryPlan& memory_plan() const override { return plan_; }
  std::string backend() const override { return runner_->name(); }
  Counts counts() const override;

 private:
  void run();
  bool take_commands(bool is_idle);
  void sleep(std::unique_lock<std::mutex>& lock);
  bool has_commands() const {  // under the lock
    return !submitted_.empty() || !cancelled_.empty() || !flushes_.empty();
  }
  void publish_counts();
  void tell_loss();

  const MemoryPlan plan_;
  const size_t queue_max_;
  const int64_t vocabulary_;
  const Clock& clock_;
  const std::unique_ptr<StepRunner> runner_;
  const std::unique_ptr<PrefixFiles> files_;  // null: prefixes end with the process
  const std::function<void()> when_lost_;
  EngineCore core_;  // engine thread only, but for its options

  // Between threads.
  mutable std::mutex mutex_;
  std::condition_variable wake_;
  std::vector<std::unique_ptr<Sequence>> submitted_;
  std::vector<RequestId> cancelled_;
  std::vector<std::function<void()>> flushes_;  // asked for: what to call when they are done
  Counts counts_;
  size_t n_queued_ = 0;  // of the core, as of its last step
  bool has_side_work_ended_ = false;
  RequestId next_id_ = 1;
  bool is_draining_ = false, is_stopping_ = false;
  std::optional<Error> loss_;  // of the device

  std::unique_ptr<SideThread> side_;  // null: there are no files
  std::thread thread_;
};

EngineImpl::EngineImpl(const ModelWeights& weights, const EngineOptions& options,
                       const MemoryPlan& plan, std::unique_ptr<StepRunner> runner,
                       std::unique_ptr<PrefixFiles> files, const Clock& clock)
    : plan_(plan),
      queue_max_(options.queue_max),
      vocabulary_(weights.config.vocabulary),
      clock_(clock),
      runner_(std::move(runner)),
      files_(std::move(files)),
      when_lost_(options.when_lost),
      core_(core_options(options, plan, weights.config.end_tokens, weights.config.vocabulary),
            *runner_, clock) {
  core_.measure_costs(kCostsBudgetNs);
  if (plan_.n_host_pages > 0) core_.keep_in_host(plan_.n_host_pages, plan_.n_host_snapshots);
  if (files_) {
    side_ = std::make_unique<SideThread>([this] {
      const std::lock_guard lock(mutex_);
      has_side_work_ended_ = true;
      wake_.notify_one();
    });
    core_.keep_in(*files_, *side_, options.cache_write_bytes);
    const PrefixFiles::Counts files_now = files_->counts();
    log(LogLevel::kInfo, "prefix_files",
        {{"entries", std::to_string(files_now.n_entries)},
         {"bytes", std::to_string(files_now.n_bytes)},
         {"skipped", std::to_string(files_now.n_skipped)}});
  }
  counts_ = core_.counts();
  thread_ = std::thread([this] {
    pthread_setname_np(pthread_self(), "roost-engine");
    run();
  });
}

EngineImpl::~EngineImpl() {
  {
    const std::lock_guard lock(mutex_);
    is_stopping_ = true;
  }
  wake_.notify_all();
  thread_.join();
}

// ---- From any thread ----------------------------------------------------------------------------

Result<Engine::RequestId> EngineImpl::submit(EngineRequest request, EventSink sink) {
  const auto n_prompt = static_cast<int64_t>(request.prompt.size());
  if (n_prompt == 0) return Error{Refusal::EmptyPrompt, "0 tokens"};
  if (n_prompt > context_max() - 1) {
    return Error{Refusal::RequestTooLong, std::to_string(n_prompt) + " tokens > " +
                                              std::to_string(context_max() - 1) +
                                              " maximum; this model's maximum context length is " +
                                              std::to_string(context_max()) + " tokens"};
  }
  for (const int32_t token : request.prompt) {
    if (token < 0 || token >= vocabulary_) {
      return Error{Refusal::FieldRange, "token id " + std::to_string(token) + ", want 0 to " +
                                            std::to_string(vocabulary_ - 1)};
    }
  }
  auto sequence = EngineCore::make_sequence(std::move(request), std::move(sink), core_.options(),
                                            clock_.now_ns());
  const std::lock_guard lock(mutex_);
  if (loss_) return *loss_;
  if (is_draining_ || is_stopping_) return Error{Refusal::ServerDraining, ""};
  const size_t n_open = n_queued_ + submitted_.size();
  if (n_open >= queue_max_) {
    return Error{Refusal::QueueFull,
                 std::to_string(n_open) + " waiting, limit " + std::to_string(queue_max_)};
  }
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

void EngineImpl::flush_prefixes(std::function<void()> done) {
  const std::lock_guard lock(mutex_);
  flushes_.push_back(std::move(done));
  wake_.notify_one();
}

Engine::Counts EngineImpl::counts() const {
  const std::lock_guard lock(mutex_);
  Counts counts = counts_;
  counts.n_waiting += static_cast<int32_t>(submitted_.size());
  return counts;
}

// ---- The engine thread --------------------------------------------------------------------------

void EngineImpl::run() {
  bool has_running = false;
  while (take_commands(!has_running)) {
    core_.admit();
    has_running = core_.has_running();
    publish_counts();  // the queue has places again before the step is over
    core_.step();
    publish_counts();
    tell_loss();
  }
  core_.end_all();
  if (core_.disk() == nullptr || runner_->loss() != nullptr) return;
  const int64_t until = clock_.now_ns() + kSaveBudgetNs;
  while (clock_.now_ns() < until && core_.disk()->write_rest()) continue;
}

// Sleeps while there is nothing to do: nobody could start when it was last tried. False when the
// engine ends.
bool EngineImpl::take_commands(bool is_idle) {
  std::vector<std::unique_ptr<Sequence>> submitted;
  std::vector<RequestId> cancelled;
  std::vector<std::function<void()>> flushes;
  bool goes_on;
  {
    std::unique_lock lock(mutex_);
    if (is_idle) sleep(lock);
    has_side_work_ended_ = false;
    submitted.swap(submitted_);
    cancelled.swap(cancelled_);
    flushes.swap(flushes_);
    n_queued_ += submitted.size();
    goes_on = !is_stopping_;
  }
  if (!flushes.empty()) {
    core_.flush_prefixes();
    publish_counts();
  }
  for (const std::function<void()>& done : flushes) done();
  for (auto& sequence : submitted) core_.add(std::move(sequence));
  for (const RequestId id : cancelled) core_.cancel(id);
  return goes_on;
}

// Until something comes, a file is read or written, or the next copy may be made.
void EngineImpl::sleep(std::unique_lock<std::mutex>& lock) {
  const auto has_something = [this] {
    return is_stopping_ || has_side_work_ended_ || has_commands();
  };
  int64_t ns = core_.next_copy_ns();
  if (ns != PrefixDisk::kNever) ns = std::max<int64_t>(ns - clock_.now_ns(), 0);
  if (core_.has_work()) ns = std::min(ns, kPollNs);
  if (ns == PrefixDisk::kNever) {
    wake_.wait(lock, has_something);
  } else {
    wake_.wait_for(lock, std::chrono::nanoseconds(ns), has_something);
  }
}

void EngineImpl::tell_loss() {
  const Error* loss = runner_->loss();
  if (loss == nullptr || loss_) return;
  log(LogLevel::kError, "device_lost", {{"reason", to_string(*loss)}});
  {
    const std::lock_guard lock(mutex_);
    loss_ = *loss;
  }
  if (when_lost_) when_lost_();
}

void EngineImpl::publish_counts() {
  const Counts counts = core_.counts();
  const size_t n_queued = core_.n_queued();
  const std::lock_guard lock(mutex_);
  counts_ = counts;
  n_queued_ = n_queued;
}

}  // namespace

Result<std::unique_ptr<Engine>> Engine::create(std::shared_ptr<const ModelWeights> weights,
                                               const EngineOptions& options, const Clock& clock) {
  EngineOptions chosen = options;
  const Available available = available_to(chosen);
  ROOST_TRY(const MemoryPlan plan, plan_memory(*weights, chosen, available.here, available.host));
  std::unique_ptr<StepRunner> runner = make_model_runner(weights, chosen, plan);
  std::unique_ptr<PrefixFiles> files;
  if (chosen.has_cache && !chosen.cache_folder.empty()) {
    ROOST_TRY(files,
              PrefixFiles::open({.folder = chosen.cache_folder,
                                 .bytes_max = chosen.cache_disk_bytes,
                                 .identity = cache_identity(*weights, chosen.drafter.get(),
                                                            chosen.kv, runner->name(), build_id()),
                                 .page_bytes = runner->page_bytes(),
                                 .snapshot_bytes = runner->snapshot_bytes()}));
  }
  return std::unique_ptr<Engine>(std::make_unique<EngineImpl>(
      *weights, chosen, plan, std::move(runner), std::move(files), clock));
}

}  // namespace roost
