// Where the large memory of a model lies, and how bytes get there and back.
#pragma once

#include <cstddef>

#include "base/result.h"
#include "device/arena.h"

namespace roost {

// The host's memory, or a card's behind a queue of work. One thread calls at a time; a call other
// than take() allocates nothing.
class Device {
 public:
  virtual ~Device() = default;

  // Filled with zeros. Aborts when there is none left: large memory is planned and taken at start.
  virtual Buffer take(size_t n_bytes) = 0;

  // In the order of the work queued so far; `from` may change when the call returns.
  virtual void write(std::byte* to, const void* from, size_t n_bytes) = 0;
  virtual void clear(std::byte* to, size_t n_bytes) = 0;
  virtual void copy(std::byte* to, const std::byte* from, size_t n_bytes) = 0;  // both its own

  // Waits for the work queued so far.
  virtual void read(void* to, const std::byte* from, size_t n_bytes) = 0;
  virtual void wait() = 0;

  virtual size_t available_bytes() const = 0;  // that can still be taken; 0: not known

  // device.lost, once the device has failed: what came back since is not true, and what is asked of
  // it is not done. Null: it works.
  virtual const Error* loss() const { return nullptr; }
};

// Memory of this process. It has no state, so everybody may use it.
Device& host_device();

}  // namespace roost
