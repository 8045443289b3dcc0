// Vector functions of the kernels: exponentials and what is made of them, one definition for all,
// so that two kernels that must agree do. Included once per instruction set, inside the kernels'
// foreach_target section, after <hwy/highway.h>.
#if defined(ROOST_OPS_SIMD_MATH_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ROOST_OPS_SIMD_MATH_H_
#undef ROOST_OPS_SIMD_MATH_H_
#else
#define ROOST_OPS_SIMD_MATH_H_
#endif

#include <hwy/highway.h>

#include "device/cpu/simd.h"

HWY_BEFORE_NAMESPACE();
namespace roost {
namespace HWY_NAMESPACE {

// 2^n for integers -127 <= n <= 128, given as f32; 0 at -127 and infinity at 128.
template <class DF, class V>
HWY_INLINE V power_of_two(DF df, V n) {
  namespace hn = hwy::HWY_NAMESPACE;
  const hn::RebindToSigned<DF> di;
  return hn::BitCast(df, hn::ShiftLeft<23>(hn::Add(hn::ConvertTo(di, n), hn::Set(di, 127))));
}

// e^f for |f| <= 0.3469: 1 + f + f²·q(f), q minimax of degree 4; the polynomial is within 3.1e-9.
template <class DF, class V>
HWY_INLINE V exp_near_zero(DF df, V f) {
  namespace hn = hwy::HWY_NAMESPACE;
  V q = hn::MulAdd(hn::Set(df, 0.00138144670593f), f, hn::Set(df, 0.00836878041118f));
  q = hn::MulAdd(q, f, hn::Set(df, 0.0416683942109f));
  q = hn::MulAdd(q, f, hn::Set(df, 0.166665201078f));
  q = hn::MulAdd(q, f, hn::Set(df, 0.499999934125f));
  const V one = hn::Set(df, 1.0f);
  return hn::MulAdd(hn::MulAdd(q, f, one), f, one);
}

// A comparison with NaN is false, so NaN passes, on every target.
template <class DF, class V>
HWY_INLINE V clamped(DF df, V x, float low, float high) {
  namespace hn = hwy::HWY_NAMESPACE;
  const V lo = hn::Set(df, low), hi = hn::Set(df, high);
  x = hn::IfThenElse(hn::Lt(x, lo), lo, x);
  return hn::IfThenElse(hn::Gt(x, hi), hi, x);
}

// 2^x within 2^-22 relative; exactly 1 at 0; 0 below -126.5, infinity above 127.5; NaN stays NaN.
template <class DF, class V>
HWY_INLINE V exp2(DF df, V x) {
  namespace hn = hwy::HWY_NAMESPACE;
  x = clamped(df, x, -127.0f, 128.0f);
  const V n = hn::Round(x);
  const V f = hn::Mul(hn::Sub(x, n), hn::Set(df, 0.693147180559945f));
  return hn::Mul(exp_near_zero(df, f), power_of_two(df, n));
}

// e^x within 2^-22 relative; 0 below -87.7, infinity above 88.4; NaN stays NaN.
template <class DF, class V>
HWY_INLINE V exp(DF df, V x) {
  namespace hn = hwy::HWY_NAMESPACE;
  x = clamped(df, x, -88.02f, 88.7f);  // times log2(e): -126.99 and 127.97
  const V n = hn::Round(hn::Mul(x, hn::Set(df, 1.44269504088896f)));
  // ln 2 in two parts, the upper one of few enough bits that its multiples are exact.
  V f = hn::NegMulAdd(n, hn::Set(df, 0.693359375f), x);
  f = hn::NegMulAdd(n, hn::Set(df, -2.12194440054691e-4f), f);
  return hn::Mul(exp_near_zero(df, f), power_of_two(df, n));
}

// 1 / (1 + e^-x) within 2^-21 relative for x >= -88; 0 below.
template <class DF, class V>
HWY_INLINE V sigmoid(DF df, V x) {
  namespace hn = hwy::HWY_NAMESPACE;
  const V one = hn::Set(df, 1.0f);
  return hn::Div(one, hn::Add(one, exp(df, hn::Neg(x))));
}

// ln(1 + e^x) within 2^-20 relative: max(x, 0) + log1p(y), y = e^-|x|, where
// log1p(y) = 2·atanh(y / (2 + y)) and the argument of atanh is at most 1/3.
template <class DF, class V>
HWY_INLINE V softplus(DF df, V x) {
  namespace hn = hwy::HWY_NAMESPACE;
  const V y = exp(df, hn::Neg(hn::Abs(x)));
  const V z = hn::Div(y, hn::Add(hn::Set(df, 2.0f), y));
  const V w = hn::Mul(z, z);
  V q = hn::MulAdd(hn::Set(df, 0.121504670583f), w, hn::Set(df, 0.107138290761f));
  q = hn::MulAdd(q, w, hn::Set(df, 0.143084423745f));
  q = hn::MulAdd(q, w, hn::Set(df, 0.19999438873f));
  q = hn::MulAdd(q, w, hn::Set(df, 0.33333337811f));
  const V z2 = hn::Add(z, z);
  const V log1p = hn::MulAdd(hn::Mul(q, w), z2, z2);
  return hn::Add(hn::IfThenElse(hn::Lt(x, hn::Zero(df)), hn::Zero(df), x), log1p);
}

// Calls body(tag, i) over [0, n): whole vectors first, the rest one by one with a one-lane tag, so
// that an element's arithmetic depends on its index alone.
template <class DF, class Body>
HWY_INLINE void for_lanes(DF df, size_t n, const Body& body) {
  namespace hn = hwy::HWY_NAMESPACE;
  const size_t step = hn::Lanes(df);
  size_t i = 0;
  for (; i + step <= n; i += step) body(df, i);
  const hn::CappedTag<float, 1> d1;
  for (; i < n; ++i) body(d1, i);
}

// Σ over [0, n), in a fixed order: body(tag, i, sum) adds the products of its lanes to `sum`. Whole
// vectors into one accumulator, its lanes together, then the rest one by one.
template <class DF, class Body>
HWY_INLINE float sum_of_lanes(DF df, size_t n, const Body& body) {
  namespace hn = hwy::HWY_NAMESPACE;
  const size_t step = hn::Lanes(df);
  size_t i = 0;
  auto sum = hn::Zero(df);
  for (; i + step <= n; i += step) sum = body(df, i, sum);
  const hn::CappedTag<float, 1> d1;
  auto rest = hn::Set(d1, hn::GetLane(hn::SumOfLanes(df, sum)));
  for (; i < n; ++i) rest = body(d1, i, rest);
  return hn::GetLane(rest);
}

template <class DF>
HWY_INLINE hwy::HWY_NAMESPACE::Vec<DF> load_bf16(DF df, const uint16_t* bits) {
  return load_bf16(df, reinterpret_cast<const uint8_t*>(bits));
}

}  // namespace HWY_NAMESPACE
}  // namespace roost
HWY_AFTER_NAMESPACE();

#endif  // per target
