// K/V pages of 8-bit codes: one f32 scale for each token and head, value = code·scale. Codes of
// values lie transposed in their page, [D][64], as products over the tokens read them.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "ops/checks.h"

namespace roost {

inline constexpr int64_t kCodedHeadDimMax = 512;

// Pages of a type of their own, or of codes with their scales. shape: of the keys' pages.
inline bool are_kv_pages(const Tensor& k, const Tensor& v, const Tensor& k_scales,
                         const Tensor& v_scales, const Shape& shape) {
  if (!k_scales.exists())
    return !v_scales.exists() && has_activation(k, shape) && has_activation(v, shape);
  const Shape scales{shape[0], shape[1], shape[2]};
  return has(k, DType::kI8, shape) &&
         has(v, DType::kI8, {shape[0], shape[1], shape[3], shape[2]}) &&
         has(k_scales, DType::kF32, scales) && has(v_scales, DType::kF32, scales);
}

// Writes the codes of u [dim], `stride` apart; returns the scale (see QkNormRopeAppend).
inline float encode_head(const float* u, size_t dim, int8_t* codes, size_t stride) {
  float largest = 0, bad = 0;
  for (size_t i = 0; i < dim; ++i) {
    largest = std::max(largest, std::abs(u[i]));
    bad += 0 * u[i];  // not a number where u is not finite
  }
  const float scale = largest < 0x1p-100f ? bad : largest / 127 + bad;
  const bool is_zero = !(scale > 0) || !std::isfinite(scale);
  for (size_t i = 0; i < dim; ++i)
    codes[i * stride] = is_zero ? int8_t{0} : static_cast<int8_t>(std::nearbyint(u[i] / scale));
  return scale;
}

}  // namespace roost
