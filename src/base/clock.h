// Time comes in through this interface, so that a run can be replayed.
#pragma once

#include <cstdint>

namespace roost {

class Clock {
 public:
  virtual ~Clock() = default;
  virtual int64_t now_ns() const = 0;        // monotonic
  virtual int64_t unix_seconds() const = 0;  // for `created` and dates in templates
};

const Clock& system_clock();

}  // namespace roost
