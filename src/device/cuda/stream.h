// The order of work on the card, and the small lists that travel to it beside that work.
// No type of the CUDA runtime shows here, so that ordinary sources may include it.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "device/cuda/device_memory.h"

namespace roost::cuda {

class Stream {
 public:
  Stream();
  void* raw() const { return stream_.get(); }  // a cudaStream_t
  void wait() const;                           // until all that was queued is done
  void copy_to_device(std::byte* to, const std::byte* from, size_t n_bytes) const;
  void copy_to_host(std::byte* to, const std::byte* from, size_t n_bytes) const;
  void fill(std::byte* to, std::byte value, size_t n_bytes) const;

 private:
  struct Destroy {
    void operator()(void* stream) const;
  };
  std::unique_ptr<void, Destroy> stream_;
};

// Lists of an op's call (spans, page tables, places of rows): copied into pinned memory at once, so
// that the caller may change its own, and from there to a twin place on the card in stream order.
// Two halves take turns; one is filled again when the copies out of it are done.
class Staging {
 public:
  Staging(const Stream& stream, size_t half_bytes);

  // Where the list will lie for work queued behind this call. At most half_bytes.
  template <class T>
  const T* push(std::span<const T> items) {
    return reinterpret_cast<const T*>(push_bytes(items.data(), items.size_bytes()));
  }
  // The same to a place of the caller's on the card.
  void send(std::byte* to, const void* from, size_t n_bytes);

 private:
  struct Destroy {
    void operator()(void* event) const;
  };
  const std::byte* push_bytes(const void* from, size_t n_bytes);
  size_t take(size_t n_bytes);  // where, in both twins
  void turn();

  const Stream& stream_;
  size_t half_bytes_;
  PinnedBuffer host_;
  DeviceBuffer device_;
  std::unique_ptr<void, Destroy> emptied_[2];  // recorded when the half was left
  int half_ = 0;
  size_t used_ = 0;
};

std::string card_name();  // "NVIDIA H200, sm_90": the current card's

}  // namespace roost::cuda
