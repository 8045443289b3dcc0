// Scratch memory of one step: taken once at start, handed out in order, given back by scope.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "tensor/tensor.h"

namespace roost {

// Memory that starts on a page, filled with zeros. Ends with the object.
class Buffer {
 public:
  Buffer() = default;
  explicit Buffer(size_t n_bytes);  // aborts when the machine has no memory (house style, errors)
  std::byte* data() const { return data_.get(); }
  size_t n_bytes() const { return n_bytes_; }
  Tensor tensor(DType dtype, const Shape& shape) const;  // a view from the start; must fit

 private:
  struct Free {
    void operator()(std::byte* data) const;
  };
  std::unique_ptr<std::byte, Free> data_;
  size_t n_bytes_ = 0;
};

// Hands out 64-byte aligned pieces of one buffer. Running out is a bug: sizes are planned.
class Arena {
 public:
  static constexpr size_t kAlign = 64;  // a cache line, and the widest vector

  explicit Arena(size_t n_bytes) : buffer_(n_bytes) {}
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
