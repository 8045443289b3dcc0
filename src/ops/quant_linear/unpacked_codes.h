// Packed codes of the product kernels, unpacked and multiplied. Included once per instruction set,
// inside the kernels' foreach_target section, after <hwy/highway.h>.
#if defined(ROOST_OPS_QUANT_LINEAR_UNPACKED_CODES_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ROOST_OPS_QUANT_LINEAR_UNPACKED_CODES_H_
#undef ROOST_OPS_QUANT_LINEAR_UNPACKED_CODES_H_
#else
#define ROOST_OPS_QUANT_LINEAR_UNPACKED_CODES_H_
#endif

#include <hwy/highway.h>

#include "device/cpu/simd.h"

HWY_BEFORE_NAMESPACE();
namespace roost {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using DI32 = hn::ScalableTag<int32_t>;
using DI16 = hn::ScalableTag<int16_t>;
using DU16 = hn::ScalableTag<uint16_t>;

// kC codes in each 16-bit lane, lowest first.
template <int kC, int kSub>
HWY_INLINE hn::Vec<DI16> sub_vector(hn::Vec<DU16> packed) {
  constexpr int kBits = 16 / kC;
  const DU16 du16;
  const DI16 di16;
  if constexpr (kC == 1) return hn::BitCast(di16, packed);
  if constexpr (kSub == kC - 1) return hn::BitCast(di16, hn::ShiftRight<16 - kBits>(packed));
  const auto mask = hn::Set(du16, static_cast<uint16_t>((1u << kBits) - 1u));
  if constexpr (kSub == 0) return hn::BitCast(di16, hn::And(packed, mask));
  return hn::BitCast(di16, hn::And(hn::ShiftRight<kSub * kBits>(packed), mask));
}

// The codes of one vector, unpacked once for all rows.
template <int kC>
struct Unpacked {
  hn::Vec<DI16> w0, w1, w2, w3;

  HWY_INLINE explicit Unpacked(const uint8_t* codes) {
    const auto packed = hn::LoadU(DU16(), reinterpret_cast<const uint16_t*>(codes));
    w0 = sub_vector<kC, 0>(packed);
    w1 = sub_vector<kC, kC >= 2 ? 1 : 0>(packed);
    w2 = sub_vector<kC, kC >= 4 ? 2 : 0>(packed);
    w3 = sub_vector<kC, kC >= 4 ? 3 : 0>(packed);
  }

  HWY_INLINE hn::Vec<DI32> integer_sum(const int16_t* HWY_RESTRICT x) const {
    const DI16 di16;
    const DI32 di32;
    const size_t n = hn::Lanes(di16);
    auto sum = multiply_pairs_add(di32, w0, hn::LoadU(di16, x), hn::Zero(di32));
    if constexpr (kC >= 2) sum = multiply_pairs_add(di32, w1, hn::LoadU(di16, x + n), sum);
    if constexpr (kC >= 4) {
      sum = multiply_pairs_add(di32, w2, hn::LoadU(di16, x + 2 * n), sum);
      sum = multiply_pairs_add(di32, w3, hn::LoadU(di16, x + 3 * n), sum);
    }
    return sum;
  }
};

#if HWY_TARGET == HWY_AVX3_DL
// Four-bit codes as bytes, times the upper and the lower bytes of the integers: the same sums by
// fewer instructions than in 16 bits.
template <>
struct Unpacked<4> {
  using DI8 = hn::ScalableTag<int8_t>;
  using DU8 = hn::ScalableTag<uint8_t>;
  hn::Vec<DU8> even, odd;  // codes

  HWY_INLINE explicit Unpacked(const uint8_t* codes) {
    const auto packed = hn::LoadU(DU8(), codes);
    even = hn::And(packed, hn::Set(DU8(), uint8_t{0x0F}));
    odd = hn::ShiftRight<4>(packed);
  }

  HWY_INLINE hn::Vec<DI32> integer_sum(const int16_t* HWY_RESTRICT x) const {
    const DI8 di8;
    const DU8 du8;
    const size_t n = hn::Lanes(du8);
    const auto* bytes = reinterpret_cast<const uint8_t*>(x);
    const auto* signed_bytes = reinterpret_cast<const int8_t*>(x);
    auto sum = multiply_quads_add(even, hn::LoadU(di8, signed_bytes), hn::Zero(DI32()));
    sum = multiply_quads_add(odd, hn::LoadU(di8, signed_bytes + n), sum);
    sum = hn::ShiftLeft<8>(sum);
    sum = multiply_quads_add(hn::LoadU(du8, bytes + 2 * n), hn::BitCast(di8, even), sum);
    return multiply_quads_add(hn::LoadU(du8, bytes + 3 * n), hn::BitCast(di8, odd), sum);
  }
};
#endif

// Two-bit codes would fill eight vectors: they are unpacked as they are used.
template <>
struct Unpacked<8> {
  hn::Vec<DU16> packed;

  HWY_INLINE explicit Unpacked(const uint8_t* codes)
      : packed(hn::LoadU(DU16(), reinterpret_cast<const uint16_t*>(codes))) {}

  HWY_INLINE hn::Vec<DI32> integer_sum(const int16_t* HWY_RESTRICT x) const {
    const DI16 di16;
    const DI32 di32;
    const size_t n = hn::Lanes(di16);
    auto sum =
        multiply_pairs_add(di32, sub_vector<8, 0>(packed), hn::LoadU(di16, x), hn::Zero(di32));
    sum = multiply_pairs_add(di32, sub_vector<8, 1>(packed), hn::LoadU(di16, x + n), sum);
    sum = multiply_pairs_add(di32, sub_vector<8, 2>(packed), hn::LoadU(di16, x + 2 * n), sum);
    sum = multiply_pairs_add(di32, sub_vector<8, 3>(packed), hn::LoadU(di16, x + 3 * n), sum);
    sum = multiply_pairs_add(di32, sub_vector<8, 4>(packed), hn::LoadU(di16, x + 4 * n), sum);
    sum = multiply_pairs_add(di32, sub_vector<8, 5>(packed), hn::LoadU(di16, x + 5 * n), sum);
    sum = multiply_pairs_add(di32, sub_vector<8, 6>(packed), hn::LoadU(di16, x + 6 * n), sum);
    return multiply_pairs_add(di32, sub_vector<8, 7>(packed), hn::LoadU(di16, x + 7 * n), sum);
  }
};

}  // namespace HWY_NAMESPACE
}  // namespace roost
HWY_AFTER_NAMESPACE();

#endif  // per target
