// Memory of the card and pinned memory of the host: owners, and scratch handed out of an owner.
// No type of the CUDA runtime shows here, so that ordinary sources may include it.
#pragma once

#include <cstddef>
#include <memory>

#include "base/check.h"

namespace roost::cuda {

// Memory of the card, aligned to 256 bytes, not initialized. Aborts when the card has none left:
// all large memory is planned and taken at start.
class DeviceBuffer {
 public:
  DeviceBuffer() = default;
  explicit DeviceBuffer(size_t n_bytes);
  std::byte* data() const { return data_.get(); }
  size_t n_bytes() const { return n_bytes_; }

 private:
  struct Free {
    void operator()(std::byte* data) const;
  };
  std::unique_ptr<std::byte, Free> data_;
  size_t n_bytes_ = 0;
};

// Host memory that the copy engines reach without a detour.
class PinnedBuffer {
 public:
  PinnedBuffer() = default;
  explicit PinnedBuffer(size_t n_bytes);
  std::byte* data() const { return data_.get(); }
  size_t n_bytes() const { return n_bytes_; }

 private:
  struct Free {
    void operator()(std::byte* data) const;
  };
  std::unique_ptr<std::byte, Free> data_;
  size_t n_bytes_ = 0;
};

// Scratch of one op on the card. Taking from it moves a mark on the host; a scope gives back. Ops
// run in the order of one stream, so what one gave back the next may overwrite.
class DeviceArena {
 public:
  static constexpr size_t kAlign = 256;

  explicit DeviceArena(size_t n_bytes) : buffer_(n_bytes) {}
  template <class T>
  T* take(size_t n) {
    return reinterpret_cast<T*>(take_bytes(n * sizeof(T)));
  }
  std::byte* data() const { return buffer_.data(); }
  size_t n_bytes() const { return buffer_.n_bytes(); }
  size_t n_left() const { return buffer_.n_bytes() - used_; }
  size_t n_used_max() const { return used_max_; }

  class Scope {
   public:
    explicit Scope(DeviceArena& arena) : arena_(arena), mark_(arena.used_) {}
    ~Scope() { arena_.used_ = mark_; }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    DeviceArena& arena_;
    size_t mark_;
  };

 private:
  std::byte* take_bytes(size_t n_bytes);
  DeviceBuffer buffer_;
  size_t used_ = 0, used_max_ = 0;
};

}  // namespace roost::cuda
