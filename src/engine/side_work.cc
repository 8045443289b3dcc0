#include "engine/side_work.h"

#include <utility>

#include "base/check.h"

namespace roost {

SideThread::SideThread(std::function<void()> when_done) : when_done_(std::move(when_done)) {
  thread_ = std::thread([this] {
    pthread_setname_np(pthread_self(), "roost-files");
    run();
  });
}

SideThread::~SideThread() {
  {
    const std::lock_guard lock(mutex_);
    is_stopping_ = true;
  }
  wake_.notify_one();
  thread_.join();
}

void SideThread::start(std::function<void()> job) {
  {
    const std::lock_guard lock(mutex_);
    ROOST_CHECK(!job_);
    job_ = std::move(job);
  }
  wake_.notify_one();
}

bool SideThread::is_busy() const {
  const std::lock_guard lock(mutex_);
  return static_cast<bool>(job_);
}

void SideThread::wait() {
  std::unique_lock lock(mutex_);
  done_.wait(lock, [this] { return !job_; });
}

void SideThread::run() {
  std::unique_lock lock(mutex_);
  while (true) {
    wake_.wait(lock, [this] { return job_ || is_stopping_; });
    if (!job_) return;
    lock.unlock();
    job_();
    lock.lock();
    job_ = nullptr;
    lock.unlock();
    done_.notify_all();
    when_done_();
    lock.lock();
  }
}

}  // namespace roost
