// Work beside an engine's core that a test drives by hand.
#pragma once

#include <functional>
#include <utility>

#include "engine/side_work.h"

namespace roost::testing {

// Done when it is started.
class SideWorkAtOnce final : public SideWork {
 public:
  void start(std::function<void()> job) override { job(); }
  bool is_busy() const override { return false; }
  void wait() override {}
};

// Done when the test says so; a job that is dropped has not been done.
class SideWorkByHand final : public SideWork {
 public:
  void start(std::function<void()> job) override { job_ = std::move(job); }
  bool is_busy() const override { return static_cast<bool>(job_); }
  void wait() override { finish(); }
  void finish() {
    if (job_) job_();
    job_ = nullptr;
  }

 private:
  std::function<void()> job_;
};

}  // namespace roost::testing
