// The host as a device: work is done when a call returns.
#include "device/device.h"

#include <algorithm>
#include <cstring>

#include "base/memory.h"

namespace roost {
namespace {

class HostDevice final : public Device {
 public:
  Buffer take(size_t n_bytes) override { return Buffer(n_bytes); }
  void write(std::byte* to, const void* from, size_t n_bytes) override {
    if (n_bytes > 0) std::memcpy(to, from, n_bytes);
  }
  void clear(std::byte* to, size_t n_bytes) override { std::fill_n(to, n_bytes, std::byte{0}); }
  void copy(std::byte* to, const std::byte* from, size_t n_bytes) override {
    write(to, from, n_bytes);
  }
  void read(void* to, const std::byte* from, size_t n_bytes) override {
    if (n_bytes > 0) std::memcpy(to, from, n_bytes);
  }
  void wait() override {}
  size_t available_bytes() const override { return available_memory_bytes(); }
};

}  // namespace

Device& host_device() {
  static HostDevice device;
  return device;
}

}  // namespace roost
