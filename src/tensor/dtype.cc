// Names of the tensor types, and the conversions that are not one line.
#include "tensor/dtype.h"

#include <cmath>

#include "base/check.h"

namespace roost {

std::string_view name_of(DType dtype) {
  switch (dtype) {
    case DType::kBF16:
      return "bf16";
    case DType::kF16:
      return "f16";
    case DType::kF32:
      return "f32";
    case DType::kF64:
      return "f64";
    case DType::kI8:
      return "i8";
    case DType::kU8:
      return "u8";
    case DType::kI16:
      return "i16";
    case DType::kI32:
      return "i32";
    case DType::kU32:
      return "u32";
    case DType::kI64:
      return "i64";
  }
  ROOST_CHECK(false);
}

namespace {

// Rounds to odd: towards zero, with the last bit set when anything was lost. A second rounding to
// fewer bits then sees that the value lay off the grid, so the two together round once.
float f32_to_odd(double value) {
  const float nearest = static_cast<float>(value);
  const double back = nearest;
  if (back == value || std::isnan(value)) return nearest;
  uint32_t bits = std::bit_cast<uint32_t>(nearest);
  if (std::fabs(back) > std::fabs(value)) bits -= 1;  // infinity becomes the largest finite number
  return std::bit_cast<float>(bits | 1u);
}

}  // namespace

uint16_t bf16_from_f64(double value) {
  return bf16_from_f32(f32_to_odd(value));
}

float f32_from_f16(uint16_t bits) {
  const uint32_t sign = uint32_t{bits & 0x8000u} << 16;
  const uint32_t exponent = (bits >> 10) & 31u;
  const uint32_t mantissa = bits & 0x3FFu;
  if (exponent == 0) {  // zero or subnormal: mantissa · 2^-24
    const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
    return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(magnitude));
  }
  if (exponent == 31) return std::bit_cast<float>(sign | 0x7F800000u | (mantissa << 13));
  return std::bit_cast<float>(sign | ((exponent + 112u) << 23) | (mantissa << 13));
}

uint16_t f16_from_f64(double value) {
  const uint16_t sign = std::signbit(value) ? 0x8000u : 0u;
  if (std::isnan(value)) return sign | 0x7E00u;
  if (value == 0) return sign;
  const double magnitude = std::fabs(value);
  // 65520 is half a step above the largest finite number, and ties go to the even side: infinity.
  if (magnitude >= 65520.0) return sign | 0x7C00u;
  // Steps of 2^-24 below the smallest normal number, of 2^(e-10) above. Scaling by powers of two is
  // exact, so nearbyint is the only rounding.
  int exponent = 0;
  std::frexp(magnitude, &exponent);  // magnitude = m · 2^exponent, m in [0.5, 1)
  const int step = exponent - 11 < -24 ? -24 : exponent - 11;
  const auto n_steps = static_cast<uint32_t>(std::nearbyint(std::ldexp(magnitude, -step)));
  // A subnormal is its number of steps. Otherwise n_steps is 1024..2048: the hidden bit and a
  // possible carry add themselves to the exponent field.
  return static_cast<uint16_t>(sign + (static_cast<uint32_t>(step + 24) << 10) + n_steps);
}

}  // namespace roost
