// Vector helpers that Highway 1.0.3 lacks. Included once per instruction set, inside the kernels'
// foreach_target section, after <hwy/highway.h>.
#if defined(ROOST_DEVICE_CPU_SIMD_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ROOST_DEVICE_CPU_SIMD_H_
#undef ROOST_DEVICE_CPU_SIMD_H_
#else
#define ROOST_DEVICE_CPU_SIMD_H_
#endif

#include <hwy/highway.h>
HWY_BEFORE_NAMESPACE();
namespace roost {
namespace HWY_NAMESPACE {

// sum[l] + a[2l]·b[2l] + a[2l+1]·b[2l+1], exact while it fits 32 bits.
template <class D32, class V16, class V32>
HWY_INLINE V32 multiply_pairs_add(D32 d32, V16 a, V16 b, V32 sum) {
  namespace hn = hwy::HWY_NAMESPACE;
#if HWY_TARGET == HWY_AVX3_DL
  // Highway 1.0.3 finds this instruction at run time but does not tell the compiler of it.
  (void)d32;
  asm("vpdpwssd %2, %1, %0" : "+v"(sum.raw) : "v"(a.raw), "vm"(b.raw));
  return sum;
#else
  V32 upper = hn::Zero(d32);
  const V32 lower = hn::ReorderWidenMulAccumulate(d32, a, b, hn::Zero(d32), upper);
  return hn::Add(sum, hn::RearrangeToOddPlusEven(lower, upper));
#endif
}

#if HWY_TARGET == HWY_AVX3_DL
// sum[l] + Σ_j a[4l + j]·b[4l + j] for j < 4, bytes without sign times bytes with sign, exact while
// it fits 32 bits. One instruction here; elsewhere products of 16 bits are quicker.
template <class VU8, class V8, class V32>
HWY_INLINE V32 multiply_quads_add(VU8 a, V8 b, V32 sum) {
  asm("vpdpbusd %2, %1, %0" : "+v"(sum.raw) : "v"(a.raw), "vm"(b.raw));
  return sum;
}
#endif

// bf16 bits to f32, any alignment.
template <class DF>
HWY_INLINE hwy::HWY_NAMESPACE::Vec<DF> load_bf16(DF df, const uint8_t* bytes) {
  namespace hn = hwy::HWY_NAMESPACE;
  const hn::RebindToUnsigned<DF> du32;
  const hn::Rebind<uint16_t, DF> du16;
  const auto bits = hn::LoadU(du16, reinterpret_cast<const uint16_t*>(bytes));
  return hn::BitCast(df, hn::ShiftLeft<16>(hn::PromoteTo(du32, bits)));
}

// f32 to bf16 bits, nearest, ties to even, as bf16_from_f32 does.
template <class DF>
HWY_INLINE void store_bf16(DF, hwy::HWY_NAMESPACE::Vec<DF> value, uint16_t* out) {
  namespace hn = hwy::HWY_NAMESPACE;
  const hn::RebindToUnsigned<DF> du32;
  const hn::Rebind<uint16_t, DF> du16;
  const auto bits = hn::BitCast(du32, value);
  const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(du32, 1u));
  const auto rounded = hn::ShiftRight<16>(hn::Add(bits, hn::Add(odd, hn::Set(du32, 0x7FFFu))));
  const auto quiet_nan = hn::Or(hn::ShiftRight<16>(bits), hn::Set(du32, 0x40u));
  const auto is_nan = hn::Gt(hn::And(bits, hn::Set(du32, 0x7FFFFFFFu)), hn::Set(du32, 0x7F800000u));
  const hn::RebindToSigned<decltype(du32)> di32;
  const auto chosen =
      hn::IfThenElse(is_nan, quiet_nan, rounded);  // at most 0xFFFF: nothing saturates
  hn::StoreU(hn::DemoteTo(du16, hn::BitCast(di32, chosen)), du16, out);
}

}  // namespace HWY_NAMESPACE
}  // namespace roost
HWY_AFTER_NAMESPACE();

#endif  // per target
