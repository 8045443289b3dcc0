// Work beside the engine's thread: one job at a time, on a thread of its own.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

namespace roost {

// start and is_busy are the engine's thread's. When is_busy has become false, what the job wrote
// can be read.
class SideWork {
 public:
  virtual ~SideWork() = default;
  virtual void start(std::function<void()> job) = 0;  // while not busy
  virtual bool is_busy() const = 0;
  virtual void wait() = 0;  // until it is not busy
};

class SideThread final : public SideWork {
 public:
  // when_done: called on the side thread behind every job; must not block.
  explicit SideThread(std::function<void()> when_done);
  ~SideThread() override;  // behind the job that runs
  void start(std::function<void()> job) override;
  bool is_busy() const override;
  void wait() override;

 private:
  void run();

  const std::function<void()> when_done_;
  mutable std::mutex mutex_;
  std::condition_variable wake_, done_;
  std::function<void()> job_;  // empty: none
  bool is_stopping_ = false;
  std::thread thread_;
};

}  // namespace roost
