// A view of contiguous numbers in somebody else's memory; never an owner.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/check.h"
#include "tensor/dtype.h"
#include "tensor/shape.h"

namespace roost {

struct Tensor {
  std::byte* data = nullptr;  // null: no tensor
  DType dtype = DType::kBF16;
  Shape shape;

  bool exists() const { return data != nullptr; }
  int64_t n_elements() const { return shape.n_elements(); }
  size_t n_bytes() const { return static_cast<size_t>(n_elements()) * size_of(dtype); }
  int64_t dim(int i) const { return shape[i]; }

  // Typed access; T must have the size of the dtype.
  template <class T>
  T* as() const {
    ROOST_DCHECK(sizeof(T) == size_of(dtype));
    return reinterpret_cast<T*>(data);
  }

  // Element i in memory order, decoded to or rounded once from float64. For references and tests.
  double get(int64_t i) const {
    ROOST_DCHECK(exists() && i >= 0 && i < n_elements());
    const std::byte* from = data + static_cast<size_t>(i) * size_of(dtype);
    if (dtype == DType::kF64) return load<double>(from);
    if (dtype == DType::kBF16) return static_cast<double>(f32_from_bf16(load<uint16_t>(from)));
    if (dtype == DType::kF32) return static_cast<double>(load<float>(from));
    return get_other(from);
  }
  void set(int64_t i, double value) const;

  // The sub-tensor [i, …] of the outermost dimension, and rows [begin, begin + n) of it.
  Tensor at(int64_t i) const;
  Tensor rows(int64_t begin, int64_t n) const;
  Tensor reshaped(const Shape& new_shape) const;  // same number of elements

 private:
  template <class T>
  static T load(const std::byte* from) {
    T value;
    std::memcpy(&value, from, sizeof(T));
    return value;
  }
  double get_other(const std::byte* from) const;  // the types that no inner loop reads
};

}  // namespace roost
