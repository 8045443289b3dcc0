// Element access by value and sub-views of a tensor.
#include "tensor/tensor.h"

#include <cmath>
#include <cstring>

namespace roost {

namespace {

template <class T>
void store(std::byte* to, T value) {
  std::memcpy(to, &value, sizeof(T));
}

}  // namespace

double Tensor::get_other(const std::byte* from) const {
  switch (dtype) {
    case DType::kF16:
      return f32_from_f16(load<uint16_t>(from));
    case DType::kI8:
      return load<int8_t>(from);
    case DType::kU8:
      return load<uint8_t>(from);
    case DType::kI16:
      return load<int16_t>(from);
    case DType::kI32:
      return load<int32_t>(from);
    case DType::kU32:
      return load<uint32_t>(from);
    case DType::kI64:
      return static_cast<double>(load<int64_t>(from));
    default:
      break;
  }
  ROOST_CHECK(false);
}

void Tensor::set(int64_t i, double value) const {
  ROOST_CHECK(exists() && i >= 0 && i < n_elements());
  std::byte* to = data + static_cast<size_t>(i) * size_of(dtype);
  switch (dtype) {
    case DType::kBF16:
      return store(to, bf16_from_f64(value));
    case DType::kF16:
      return store(to, f16_from_f64(value));
    case DType::kF32:
      return store(to, static_cast<float>(value));
    case DType::kF64:
      return store(to, value);
    case DType::kI8:
      return store(to, static_cast<int8_t>(std::llrint(value)));
    case DType::kU8:
      return store(to, static_cast<uint8_t>(std::llrint(value)));
    case DType::kI16:
      return store(to, static_cast<int16_t>(std::llrint(value)));
    case DType::kI32:
      return store(to, static_cast<int32_t>(std::llrint(value)));
    case DType::kU32:
      return store(to, static_cast<uint32_t>(std::llrint(value)));
    case DType::kI64:
      return store(to, static_cast<int64_t>(std::llrint(value)));
  }
  ROOST_CHECK(false);
}

Tensor Tensor::at(int64_t i) const {
  ROOST_CHECK(exists() && shape.rank() >= 1 && i >= 0 && i < shape[0]);
  Tensor sub{.data = data, .dtype = dtype, .shape = {}};
  for (int d = 1; d < shape.rank(); ++d) sub.shape.append(shape[d]);
  sub.data += static_cast<size_t>(i) * sub.n_bytes();
  return sub;
}

Tensor Tensor::rows(int64_t begin, int64_t n) const {
  ROOST_CHECK(exists() && shape.rank() >= 1 && begin >= 0 && n >= 0 && n <= shape[0] - begin);
  Tensor sub{.data = data, .dtype = dtype, .shape = {n}};
  size_t row_bytes = size_of(dtype);
  for (int d = 1; d < shape.rank(); ++d) {
    sub.shape.append(shape[d]);
    row_bytes *= static_cast<size_t>(shape[d]);
  }
  sub.data += static_cast<size_t>(begin) * row_bytes;
  return sub;
}

Tensor Tensor::reshaped(const Shape& new_shape) const {
  ROOST_CHECK(new_shape.n_elements() == n_elements());
  return {.data = data, .dtype = dtype, .shape = new_shape};
}

}  // namespace roost
