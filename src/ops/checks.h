// Predicates of the ops' check() functions.
#pragma once

#include "tensor/quant_layout.h"
#include "tensor/tensor.h"

namespace roost {

inline bool has(const Tensor& tensor, DType dtype, const Shape& shape) {
  return tensor.exists() && tensor.dtype == dtype && tensor.shape == shape;
}

// bf16 on every backend; float64 is the exact reference's.
inline bool has_activation(const Tensor& tensor, const Shape& shape) {
  return has(tensor, DType::kBF16, shape) || has(tensor, DType::kF64, shape);
}

inline bool is_sound(const QuantMatrix& w) {
  if (!w.exists() || w.n_out < 1 || w.n_in < 1) return false;
  if (w.dtype != DType::kBF16 && w.dtype != DType::kF32) return false;
  if (w.format == QuantMatrix::Format::kPlain) return true;
  if (w.format == QuantMatrix::Format::kBricks)
    return (w.bits == 4 || w.bits == 8) && w.group == 64 && w.dtype == DType::kBF16 &&
           w.n_in % 64 == 0;
  const bool has_bits = w.bits >= 2 && w.bits <= 8 && w.bits != 7;
  const bool has_group = w.group == 32 || w.group == 64 || w.group == 128;
  return has_bits && has_group && w.n_in % w.group == 0 && w.scales != nullptr &&
         w.biases != nullptr;
}

inline bool is_sound(const QuantMatrix& w, int64_t n_out, int64_t n_in) {
  return is_sound(w) && w.n_out == n_out && w.n_in == n_in;
}

}  // namespace roost
