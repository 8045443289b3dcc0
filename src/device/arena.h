// Owned memory, and arenas over it: scratch of a step, handed out in order, given back by scope.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <utility>

#include "tensor/tensor.h"

namespace roost {

// Memory that starts on a page, filled with zeros. Ends with the object.
class Buffer {
 public:
  using FreeFunction = void (*)(std::byte* data);

  Buffer() = default;
  explicit Buffer(size_t n_bytes);  // of the host; aborts when it has none (house style, errors)
  // Memory of a device, which `free` gives back.
  Buffer(std::byte* data, size_t n_bytes, FreeFunction free)
      : data_(data, Free{free}), n_bytes_(n_bytes) {}
  std::byte* data() const { return data_.get(); }
  size_t n_bytes() const { return n_bytes_; }
  Tensor tensor(DType dtype, const Shape& shape) const;  // a view from the start; must fit

 private:
  struct Free {
    FreeFunction free;
    void operator()(std::byte* data) const { free(data); }
  };
  std::unique_ptr<std::byte, Free> data_;
  size_t n_bytes_ = 0;
};

// Hands out 64-byte aligned pieces of one buffer. Running out is a bug: sizes are planned.
class Arena {
 public:
  static constexpr size_t kAlign = 64;  // a cache line, and the widest vector

  explicit Arena(size_t n_bytes) : buffer_(n_bytes) {}
  explicit Arena(Buffer buffer) : buffer_(std::move(buffer)) {}  // of a device, perhaps
  Tensor tensor(DType dtype, const Shape& shape);
  template <class T>
  std::span<T> span(size_t n) {
    return {reinterpret_cast<T*>(take(n * sizeof(T))), n};
  }
  size_t n_bytes() const { return buffer_.n_bytes(); }
  size_t n_used_max() const { return used_max_; }  // high-water mark, for tests of the plan

  // Everything taken after this object was made is given back when it ends.
  class Scope {
   public:
    explicit Scope(Arena& arena) : arena_(arena), mark_(arena.used_) {}
    ~Scope() { arena_.used_ = mark_; }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    Arena& arena_;
    size_t mark_;
  };

 private:
  std::byte* take(size_t n_bytes);
  Buffer buffer_;
  size_t used_ = 0, used_max_ = 0;
};

}  // namespace roost
