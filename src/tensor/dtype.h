// The types a tensor can have, and the conversions between bf16, f16 and f32.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace roost {

enum class DType : uint8_t { kBF16, kF16, kF32, kF64, kI8, kU8, kI16, kI32, kU32, kI64 };

constexpr size_t size_of(DType dtype) {
  switch (dtype) {
    case DType::kI8:
    case DType::kU8:
      return 1;
    case DType::kBF16:
    case DType::kF16:
    case DType::kI16:
      return 2;
    case DType::kF32:
    case DType::kI32:
    case DType::kU32:
      return 4;
    case DType::kF64:
    case DType::kI64:
      return 8;
  }
  return 0;
}
std::string_view name_of(DType dtype);  // "bf16"

inline float f32_from_bf16(uint16_t bits) {
  return std::bit_cast<float>(uint32_t{bits} << 16);
}

// Nearest, ties to even; NaN stays NaN.
inline uint16_t bf16_from_f32(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7FFFFFFFu) > 0x7F800000u) return static_cast<uint16_t>((bits >> 16) | 0x40u);
  return static_cast<uint16_t>((bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16);
}

// Rounded once, from float64 to the nearest bf16 (not through f32, which could round twice).
uint16_t bf16_from_f64(double value);

float f32_from_f16(uint16_t bits);
uint16_t f16_from_f64(double value);  // rounded once, ties to even; too large becomes infinite

}  // namespace roost
