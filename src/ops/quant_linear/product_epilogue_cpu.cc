// What follows a product (product_cpu.h), one source for every instruction set. The last values of
// a run that fill no vector go through a padded one: a value's bits do not depend on its place.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/quant_linear/product_epilogue_cpu.cc"
#include <hwy/foreach_target.h>

#include <hwy/highway.h>

#include <algorithm>

#include "device/cpu/simd.h"
#include "ops/quant_linear/product_cpu.h"
#include "ops/simd_math.h"

HWY_BEFORE_NAMESPACE();
namespace roost {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

using DF = hn::ScalableTag<float>;

constexpr int64_t kLanesMax = HWY_MAX_BYTES / 4;

// silu(g)·u, silu(g) = g·σ(g).
HWY_INLINE hn::Vec<DF> swiglu(hn::Vec<DF> gate, hn::Vec<DF> up) {
  return hn::Mul(hn::Mul(gate, sigmoid(DF(), gate)), up);
}

void swiglu_values_target(const float* gate, const float* up, int64_t n, float* out) {
  const DF df;
  const auto n_lanes = static_cast<int64_t>(hn::Lanes(df));
  int64_t i = 0;
  for (; i + n_lanes <= n; i += n_lanes)
    hn::StoreU(swiglu(hn::LoadU(df, gate + i), hn::LoadU(df, up + i)), df, out + i);
  if (i == n) return;
  alignas(HWY_MAX_BYTES) float padded_gate[kLanesMax] = {}, padded_up[kLanesMax] = {};
  std::copy_n(gate + i, n - i, padded_gate);
  std::copy_n(up + i, n - i, padded_up);
  hn::Store(swiglu(hn::Load(df, padded_gate), hn::Load(df, padded_up)), df, padded_gate);
  std::copy_n(padded_gate, n - i, out + i);
}

void round_values_target(const float* values, int64_t n, uint16_t* out) {
  const DF df;
  const auto n_lanes = static_cast<int64_t>(hn::Lanes(df));
  int64_t i = 0;
  for (; i + n_lanes <= n; i += n_lanes) store_bf16(df, hn::LoadU(df, values + i), out + i);
  for (; i < n; ++i) out[i] = bf16_from_f32(values[i]);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace roost
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace roost {

HWY_EXPORT(swiglu_values_target);
HWY_EXPORT(round_values_target);

void swiglu_values(const float* gate, const float* up, int64_t n, float* out) {
  HWY_DYNAMIC_DISPATCH(swiglu_values_target)(gate, up, n, out);
}

void round_values(const float* values, int64_t n, uint16_t* out) {
  HWY_DYNAMIC_DISPATCH(round_values_target)(values, n, out);
}

}  // namespace roost
#endif  // HWY_ONCE
