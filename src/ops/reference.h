// What the float64 references share: rounding points, rows of weights as doubles, and the inputs
// of products as the product rule sees them.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <vector>

#include "ops/backend.h"
#include "tensor/quant_layout.h"
#include "tensor/tensor.h"

namespace roost {

// The value rounded once to the activation type: a rounding point inside an op, in front of no
// store. The identity when the rules do not round.
inline double rounded(const ReferenceRules& rules, double value) {
  return rules.rounding ? static_cast<double>(f32_from_bf16(bf16_from_f64(value))) : value;
}

inline double silu(double x) {
  return x / (1 + std::exp(-x));
}

// Row `row` of the matrix as a product reads it: decoded exactly, but for ProductRule::kRounded16.
inline void decode_row(const QuantMatrix& w, int64_t row, std::span<double> out,
                       const ReferenceRules& rules) {
  for (size_t i = 0; i < out.size(); ++i) {
    out[i] = w.decode(row, static_cast<int64_t>(i));
    if (rules.product == ProductRule::kRounded16) {
      if (w.dtype == DType::kF32) out[i] = static_cast<double>(static_cast<float>(out[i]));
      out[i] = static_cast<double>(f32_from_bf16(bf16_from_f64(out[i])));
    }
  }
}

// One row of activations by ProductRule::kAligned16.
inline void align16(std::span<double> row) {
  double largest = 0;
  for (const double value : row) {
    if (!std::isfinite(value)) {
      std::fill(row.begin(), row.end(), std::numeric_limits<double>::quiet_NaN());
      return;
    }
    largest = std::max(largest, std::abs(value));
  }
  int exponent;  // largest = mantissa·2^exponent with mantissa in [1/2, 1)
  std::frexp(largest, &exponent);
  exponent = std::max(exponent, -100);
  for (double& value : row) {
    const double integer = std::nearbyint(std::ldexp(value, 15 - exponent));  // ties to even
    value = std::ldexp(std::clamp(integer, -32767.0, 32767.0), exponent - 15);
  }
}

// x [T, n_in] as a product with w reads it.
inline std::vector<double> product_input(const Tensor& x, const QuantMatrix& w,
                                         const ReferenceRules& rules) {
  std::vector<double> values(static_cast<size_t>(x.n_elements()));
  for (size_t i = 0; i < values.size(); ++i) values[i] = x.get(static_cast<int64_t>(i));
  if (rules.product == ProductRule::kAligned16 && w.format == QuantMatrix::Format::kAffine) {
    const auto n_in = static_cast<size_t>(w.n_in);
    for (size_t at = 0; at < values.size(); at += n_in)
      align16(std::span(values).subspan(at, n_in));
  }
  return values;
}

}  // namespace roost
