// Accumulators of the product kernels. Included once per instruction set, inside the kernels'
// foreach_target section, after <hwy/highway.h>.
#if defined(ROOST_OPS_QUANT_LINEAR_ACCUMULATORS_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ROOST_OPS_QUANT_LINEAR_ACCUMULATORS_H_
#undef ROOST_OPS_QUANT_LINEAR_ACCUMULATORS_H_
#else
#define ROOST_OPS_QUANT_LINEAR_ACCUMULATORS_H_
#endif

#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace roost {
namespace HWY_NAMESPACE {

// f32 accumulators. Arrays of vectors are not allowed for sizeless types, so sixteen names stand
// for them; unused ones cost nothing.
template <int kN>
struct Accumulators {
  using Vector = hwy::HWY_NAMESPACE::Vec<hwy::HWY_NAMESPACE::ScalableTag<float>>;
  Vector a0, a1, a2, a3, a4, a5, a6, a7, a8, a9, a10, a11, a12, a13, a14, a15;

  template <class Function>
  HWY_INLINE void each(const Function& f) {
    f(0, a0);
    if constexpr (kN > 1) f(1, a1);
    if constexpr (kN > 2) f(2, a2), f(3, a3);
    if constexpr (kN > 4) f(4, a4), f(5, a5), f(6, a6), f(7, a7);
    if constexpr (kN > 8) f(8, a8), f(9, a9), f(10, a10), f(11, a11);
    if constexpr (kN > 8) f(12, a12), f(13, a13), f(14, a14), f(15, a15);
  }
};

// Rows that share one reading of the weights.
constexpr int kRowsPerPass = 8;

}  // namespace HWY_NAMESPACE
}  // namespace roost
HWY_AFTER_NAMESPACE();

#endif  // per target
