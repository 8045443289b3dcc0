// A connection without a socket: keeps what it is told to send. Its executor is a thread of its
// own.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/json.h"
#include "server/http_server.h"

namespace roost {

class FakeExchange final : public HttpExchange {
 public:
  FakeExchange() : executor_(std::make_shared<Executor>()) {
    std::thread([executor = executor_] { executor->run(); }).detach();
  }
  ~FakeExchange() override { executor_->end(); }

  void post(std::function<void()> work) override { executor_->add(std::move(work)); }
  void respond(HttpResponse response) override {
    const std::lock_guard lock(mutex_);
    response_ = std::move(response);
    finish();
  }
  void begin_stream(HttpHeaders headers, std::function<std::string()> idle) override {
    const std::lock_guard lock(mutex_);
    response_.headers = std::move(headers);
    idle_ = std::move(idle);
  }
  void write(std::string bytes) override {
    const std::lock_guard lock(mutex_);
    response_.body += bytes;
  }
  void end_stream(bool keeps_connection) override {
    const std::lock_guard lock(mutex_);
    keeps_connection_ = keeps_connection;
    finish();
  }
  void on_gone(std::function<void()> callback) override {
    const std::lock_guard lock(mutex_);
    gone_ = std::move(callback);
  }

  size_t n_unsent() const override {
    const std::lock_guard lock(mutex_);
    return n_unsent_;
  }
  void on_sent(std::function<void()> callback) override {
    const std::lock_guard lock(mutex_);
    sent_ = std::move(callback);
  }

  // The client reads so slowly that this much waits; 0: everything has been sent.
  void set_unsent(size_t n) {
    std::function<void()> callback;
    {
      const std::lock_guard lock(mutex_);
      n_unsent_ = n;
      if (n == 0) callback = std::exchange(sent_, nullptr);
    }
    if (callback) post(std::move(callback));
  }

  // The client goes.
  void go() {
    post([this] {
      std::function<void()> callback;
      {
        const std::lock_guard lock(mutex_);
        callback = std::exchange(gone_, nullptr);
      }
      if (callback) callback();
    });
  }

  // Called as the client learns that the answer is complete.
  void at_end(std::function<void()> callback) {
    const std::lock_guard lock(mutex_);
    at_end_ = std::move(callback);
  }

  // Blocks until the answer is complete.
  const HttpResponse& wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return is_complete_; });
    return response_;
  }
  // Blocks until everything posted before has run.
  void settle() {
    auto done = std::make_shared<std::pair<std::mutex, std::condition_variable>>();
    auto is_done = std::make_shared<bool>(false);
    post([done, is_done] {
      const std::lock_guard lock(done->first);
      *is_done = true;
      done->second.notify_all();
    });
    std::unique_lock lock(done->first);
    done->second.wait(lock, [&] { return *is_done; });
  }

  std::string bytes() {
    const std::lock_guard lock(mutex_);
    return response_.body;
  }
  std::string idle() {
    std::function<std::string()> idle;
    {
      const std::lock_guard lock(mutex_);
      idle = idle_;
    }
    return idle ? idle() : "";
  }
  bool keeps_connection() {
    const std::lock_guard lock(mutex_);
    return keeps_connection_;
  }
  std::string header(const std::string& name) {
    const std::lock_guard lock(mutex_);
    for (const auto& [key, value] : response_.headers)
      if (key == name) return value;
    return "";
  }

  // The data of every event, and those of them that are JSON.
  std::vector<std::string> data() {
    const std::string text = bytes();
    std::vector<std::string> out;
    for (size_t at = 0; at < text.size();) {
      const size_t end = std::min(text.find("\n\n", at), text.size());
      const std::string record = text.substr(at, end - at);
      if (record.starts_with("data: ")) out.push_back(record.substr(6));
      at = end + 2;
    }
    return out;
  }
  std::vector<json::Value> events() {
    std::vector<json::Value> out;
    for (const std::string& one : data())
      if (one != "[DONE]") out.push_back(std::move(json::parse(one)).value());
    return out;
  }
  std::string last_data() { return data().empty() ? "" : data().back(); }

 private:
  // Lives until its last work is done, which may be after the exchange.
  struct Executor {
    std::mutex mutex;
    std::condition_variable changed;
    std::deque<std::function<void()>> work;
    bool is_ending = false;

    void add(std::function<void()> one) {
      const std::lock_guard lock(mutex);
      work.push_back(std::move(one));
      changed.notify_all();
    }
    void end() {
      const std::lock_guard lock(mutex);
      is_ending = true;
      changed.notify_all();
    }
    void run() {
      for (;;) {
        std::function<void()> one;
        {
          std::unique_lock lock(mutex);
          changed.wait(lock, [this] { return is_ending || !work.empty(); });
          if (work.empty()) return;
          one = std::move(work.front());
          work.pop_front();
        }
        one();
      }
    }
  };

  void finish() {
    if (at_end_) at_end_();
    is_complete_ = true;
    changed_.notify_all();
  }

  const std::shared_ptr<Executor> executor_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  HttpResponse response_;
  std::function<std::string()> idle_;
  bool is_complete_ = false, keeps_connection_ = true;
  std::function<void()> gone_, sent_, at_end_;
  size_t n_unsent_ = 0;
};

}  // namespace roost
