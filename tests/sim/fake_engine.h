// An engine without a model: replies are scripts, time is what the test says. The server's tests
// run on it.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "engine/engine.h"

namespace roost {

struct FakeEngineOptions {
  // The tokens of a reply, without its end token.
  std::function<std::vector<int32_t>(const EngineRequest&)> script;
  bool is_endless = false;  // the script is repeated until something else ends the reply
  int32_t end_token = 0;    // ends a reply whose script is over
  size_t tokens_per_event = 1;
  int64_t context_max = 1000;
  size_t streams_max = 16, queue_max = 64;
  std::chrono::microseconds step{0};  // between events of a request
  std::optional<Error> fails_with;    // instead of the end
  int64_t n_cached = 0;               // prompt tokens of every request that were cached
};

class FakeEngine final : public Engine {
 public:
  FakeEngine(FakeEngineOptions options, const Clock& clock)
      : options_(std::move(options)), clock_(clock), thread_([this] { run(); }) {}

  ~FakeEngine() override {
    {
      const std::lock_guard lock(mutex_);
      is_ending_ = true;
      changed_.notify_all();
    }
    thread_.join();
  }

  Result<RequestId> submit(EngineRequest request, EventSink sink) override {
    const std::lock_guard lock(mutex_);
    if (is_draining_) return Error{Refusal::ServerDraining, ""};
    if (waiting_.size() >= options_.queue_max) return Error{Refusal::QueueFull, "the test's limit"};
    auto work = std::make_unique<Work>();
    work->id = ++n_requests_;
    work->tokens = options_.script ? options_.script(request) : std::vector<int32_t>();
    work->request = std::move(request);
    work->sink = std::move(sink);
    work->end.submitted_ns = clock_.now_ns();
    last_request_ = work->request;
    waiting_.push_back(std::move(work));
    changed_.notify_all();
    return n_requests_;
  }

  void cancel(RequestId id) override {
    const std::lock_guard lock(mutex_);
    cancelled_.push_back(id);
    changed_.notify_all();
  }
  void drain() override {
    const std::lock_guard lock(mutex_);
    is_draining_ = true;
  }

  void flush_prefixes(std::function<void()> done) override {
    ++n_flushes_;
    done();
  }
  int n_flushes() const { return n_flushes_; }

  int64_t context_max() const override { return options_.context_max; }
  const MemoryPlan& memory_plan() const override { return plan_; }
  std::string backend() const override { return "fake"; }
  Counts counts() const override {
    const std::lock_guard lock(mutex_);
    Counts out;
    out.n_running = static_cast<int32_t>(running_.size());
    out.n_waiting = static_cast<int32_t>(waiting_.size());
    return out;
  }

  // Nothing runs while the engine is held: requests wait as in a long prefill.
  void hold() { set_held(true); }
  void release() { set_held(false); }

  EngineRequest last_request() const {
    const std::lock_guard lock(mutex_);
    return last_request_;
  }
  size_t n_cancelled() const {
    const std::lock_guard lock(mutex_);
    return n_ended_by_cancel_;
  }
  // Blocks until that many requests have ended because somebody cancelled them.
  void wait_for_cancelled(size_t n) const {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return n_ended_by_cancel_ >= n; });
  }
  void wait_for_running(size_t n) const {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return running_.size() >= n; });
  }

 private:
  struct Work {
    RequestId id = 0;
    EngineRequest request;
    EventSink sink;
    std::vector<int32_t> tokens;
    size_t n_sent = 0;
    EngineEvent end;  // counts and times as they come to be known
  };

  void set_held(bool is_held) {
    const std::lock_guard lock(mutex_);
    is_held_ = is_held;
    changed_.notify_all();
  }

  void run() {
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [this] {
        const bool has_work = !running_.empty() || !waiting_.empty();
        return is_ending_ || !cancelled_.empty() || (has_work && !is_held_);
      });
      if (is_ending_) {
        end_all();
        return;
      }
      end_cancelled();
      if (is_held_) continue;
      while (running_.size() < options_.streams_max && !waiting_.empty()) start_next();
      changed_.notify_all();
      for (auto it = running_.begin(); it != running_.end();)
        it = step(**it) ? running_.erase(it) : std::next(it);
      if (options_.step.count() > 0) {
        changed_.wait_for(lock, options_.step,
                          [this] { return is_ending_ || !cancelled_.empty(); });
      } else {
        lock.unlock();  // whoever submits or cancels gets its turn
        std::this_thread::yield();
        lock.lock();
      }
    }
  }

  void start_next() {
    running_.push_back(std::move(waiting_.front()));
    waiting_.pop_front();
    EngineEvent event;
    event.kind = EngineEvent::Kind::kStarted;
    event.n_cached = running_.back()->end.n_cached = options_.n_cached;
    running_.back()->end.started_ns = clock_.now_ns();
    running_.back()->sink(event);
    tell_prompt(*running_.back());
    event.kind = EngineEvent::Kind::kProgress;
    event.started_ns = running_.back()->end.started_ns;
    event.n_prompt = static_cast<int64_t>(running_.back()->request.prompt.size());
    for (const int64_t n_done : {(event.n_cached + event.n_prompt) / 2, event.n_prompt}) {
      event.n_prompt_done = n_done;  // two chunks
      running_.back()->sink(event);
    }
  }

  // The n-th token of the prompt has probability e^-n; in two chunks.
  static void tell_prompt(const Work& work) {
    if (!work.request.tells_prompt) return;
    const size_t n_prompt = work.request.prompt.size();
    for (size_t from = 1; from < n_prompt;) {
      EngineEvent event;
      event.kind = EngineEvent::Kind::kPrompt;
      const size_t end = from == 1 ? std::min<size_t>(3, n_prompt) : n_prompt;
      for (; from < end; ++from)
        event.logprobs.push_back(logprobs_of(work, -static_cast<float>(from)));
      work.sink(event);
    }
  }

  // One event of a request; true when it was its last.
  bool step(Work& work) {
    EngineEvent event;
    const auto n_max = static_cast<size_t>(work.request.new_tokens_max);
    while (event.tokens.size() < options_.tokens_per_event && work.n_sent < n_max) {
      if (work.n_sent >= work.tokens.size() && !options_.is_endless) break;
      const int32_t token = work.tokens[work.n_sent % work.tokens.size()];
      const auto& stops = work.request.stop_tokens;
      if (std::find(stops.begin(), stops.end(), token) != stops.end()) {
        send(work, event);
        finish(work, Finish::kEndToken, token);
        return true;
      }
      event.tokens.push_back(token);
      if (work.request.top_logprobs >= 0)
        event.logprobs.push_back(logprobs_of(work, -static_cast<float>(work.n_sent + 1)));
      ++work.n_sent;
    }
    const bool was_empty = event.tokens.empty();
    send(work, event);
    if (work.n_sent >= n_max) return finish(work, Finish::kLength, -1), true;
    if (!was_empty) return false;
    finish(work, options_.fails_with ? Finish::kError : Finish::kEndToken, options_.end_token);
    return true;
  }

  // The n-th token of a reply has probability e^-n; the likeliest ones are tokens 0, 1, ….
  static TokenLogprobs logprobs_of(const Work& work, float logprob) {
    TokenLogprobs out;
    out.logprob = logprob;
    for (int32_t i = 0; i < work.request.top_logprobs; ++i)
      out.top.push_back({i, -static_cast<float>(i) / 8});
    return out;
  }

  void send(Work& work, const EngineEvent& event) {
    if (event.tokens.empty()) return;
    if (work.end.first_token_ns == 0) work.end.first_token_ns = clock_.now_ns();
    work.sink(event);
  }

  void finish(Work& work, Finish finish, int32_t end_token) {
    EngineEvent& event = work.end;
    event.kind = EngineEvent::Kind::kFinished;
    event.finish = finish;
    event.end_token = end_token;
    if (finish == Finish::kError) event.error = options_.fails_with;
    event.n_prompt = static_cast<int64_t>(work.request.prompt.size());
    event.n_generated = static_cast<int64_t>(work.n_sent);
    event.finished_ns = clock_.now_ns();
    work.sink(event);
  }

  void end_cancelled() {
    for (const RequestId id : cancelled_) {
      const auto end_in = [&](auto& list) {
        for (auto it = list.begin(); it != list.end(); ++it) {
          if ((*it)->id != id) continue;
          finish(**it, Finish::kCancelled, -1);
          list.erase(it);
          ++n_ended_by_cancel_;
          return;
        }
      };
      end_in(running_);
      end_in(waiting_);
    }
    cancelled_.clear();
    changed_.notify_all();
  }

  void end_all() {
    for (auto& work : running_) finish(*work, Finish::kCancelled, -1);
    for (auto& work : waiting_) finish(*work, Finish::kCancelled, -1);
    running_.clear();
    waiting_.clear();
  }

  const FakeEngineOptions options_;
  const Clock& clock_;
  const MemoryPlan plan_;
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  std::deque<std::unique_ptr<Work>> waiting_, running_;
  std::vector<RequestId> cancelled_;
  EngineRequest last_request_;
  RequestId n_requests_ = 0;
  size_t n_ended_by_cancel_ = 0;
  std::atomic<int> n_flushes_ = 0;
  bool is_held_ = false, is_draining_ = false, is_ending_ = false;
  std::thread thread_;
};

}  // namespace roost
