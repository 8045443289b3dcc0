// Accumulators of the product kernels. Included once per instruction set, inside the kernels'
// foreach_target section, after <hwy/highway.h>.
#if defined(ROOST_OPS_QUANT_LINEAR_ACCUMULATORS_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ROOST_OPS_QUANT_LINEAR_ACCUMULATORS_H_
#undef ROOST_OPS_QUANT_LINEAR_ACCUMULATORS_H_
#else
#define ROOST_OPS_QUANT_LINEAR_ACCUMULATORS_H_
#endif

#include <hwy/highway.h>

#include <bit>

// Vectors that a lambda takes or gives must stay in registers.
#define ROOST_INLINE __attribute__((always_inline))

HWY_BEFORE_NAMESPACE();
namespace roost {
namespace HWY_NAMESPACE {

#if HWY_MAX_BYTES == 64
// One step of the sums of two vectors' lanes at once: lane l becomes the sum of lanes l and
// l + kDistance of a, or of b where l has the bit kDistance.
template <int kDistance, class V>
HWY_INLINE V add_lanes(V a, V b) {
  namespace hn = hwy::HWY_NAMESPACE;
  const hn::ScalableTag<float> df;
  const hn::ScalableTag<uint64_t> du64;
  if constexpr (kDistance == 8)
    return hn::Add(hn::ConcatLowerLower(df, b, a), hn::ConcatUpperUpper(df, b, a));
  if constexpr (kDistance == 4)
    return hn::Add(hn::OddEvenBlocks(b, a), hn::SwapAdjacentBlocks(hn::OddEvenBlocks(a, b)));
  if constexpr (kDistance == 2) {
    const auto pairs_a = hn::BitCast(du64, a), pairs_b = hn::BitCast(du64, b);
    return hn::Add(hn::BitCast(df, hn::InterleaveLower(du64, pairs_a, pairs_b)),
                   hn::BitCast(df, hn::InterleaveUpper(du64, pairs_a, pairs_b)));
  }
  return hn::Add(hn::OddEven(b, a), hn::Shuffle2301(hn::OddEven(a, b)));
}
#endif

// f32 accumulators. Arrays of vectors are not allowed for sizeless types, so sixteen names stand
// for them; unused ones cost nothing.
template <int kN>
struct Accumulators {
  using Vector = hwy::HWY_NAMESPACE::Vec<hwy::HWY_NAMESPACE::ScalableTag<float>>;
  // Where sums() leaves the sum of accumulator i, of 16 values: at i · kSumStride.
  static constexpr int kSumStride =
      HWY_MAX_BYTES == 64 ? 16 / static_cast<int>(std::bit_ceil(static_cast<unsigned>(kN))) : 1;
  Vector a0, a1, a2, a3, a4, a5, a6, a7, a8, a9, a10, a11, a12, a13, a14, a15;

  template <class Function>
  HWY_INLINE void each(const Function& f) {
    f(0, a0);
    if constexpr (kN > 1) f(1, a1);
    if constexpr (kN > 2) f(2, a2);
    if constexpr (kN > 3) f(3, a3);
    if constexpr (kN > 4) f(4, a4);
    if constexpr (kN > 5) f(5, a5);
    if constexpr (kN > 6) f(6, a6);
    if constexpr (kN > 7) f(7, a7);
    if constexpr (kN > 8) f(8, a8);
    if constexpr (kN > 9) f(9, a9);
    if constexpr (kN > 10) f(10, a10);
    if constexpr (kN > 11) f(11, a11);
    if constexpr (kN > 12) f(12, a12);
    if constexpr (kN > 13) f(13, a13);
    if constexpr (kN > 14) f(14, a14);
    if constexpr (kN > 15) f(15, a15);
  }

  // The sum of the lanes of each, times its factor. Ends the accumulators.
  HWY_INLINE void sums(const float* HWY_RESTRICT factors, float* HWY_RESTRICT out) {
    namespace hn = hwy::HWY_NAMESPACE;
    const hn::ScalableTag<float> df;
#if HWY_MAX_BYTES == 64
    constexpr int kCount = 16 / kSumStride;
    const auto nothing = hn::Zero(df);
    if constexpr (kN < 16) a15 = nothing;
    if constexpr (kN < 15) a14 = nothing;
    if constexpr (kN < 14) a13 = nothing;
    if constexpr (kN < 13) a12 = nothing;
    if constexpr (kN < 12) a11 = nothing;
    if constexpr (kN < 11) a10 = nothing;
    if constexpr (kN < 8) a7 = nothing;
    if constexpr (kN < 7) a6 = nothing;
    if constexpr (kN < 6) a5 = nothing;
    if constexpr (kN < 4) a3 = nothing;
    add_halves<kCount, 8>();
    hn::StoreU(hn::Mul(a0, hn::LoadU(df, factors)), df, out);
#else
    each([&](int i, Vector& a)
             HWY_ATTR { out[i] = hn::GetLane(hn::SumOfLanes(df, a)) * factors[i]; });
#endif
  }

 private:
#if HWY_MAX_BYTES == 64
  // The first kCount vectors hold all sums. Two by two they become one, until there is one: the
  // additions of SumOfLanes, by a third of its instructions.
  template <int kCount, int kDistance>
  HWY_INLINE void add_halves() {
    if constexpr (kCount == 16) {
      a0 = add_lanes<kDistance>(a0, a8), a1 = add_lanes<kDistance>(a1, a9);
      a2 = add_lanes<kDistance>(a2, a10), a3 = add_lanes<kDistance>(a3, a11);
      a4 = add_lanes<kDistance>(a4, a12), a5 = add_lanes<kDistance>(a5, a13);
      a6 = add_lanes<kDistance>(a6, a14), a7 = add_lanes<kDistance>(a7, a15);
    } else if constexpr (kCount == 8) {
      a0 = add_lanes<kDistance>(a0, a4), a1 = add_lanes<kDistance>(a1, a5);
      a2 = add_lanes<kDistance>(a2, a6), a3 = add_lanes<kDistance>(a3, a7);
    } else if constexpr (kCount == 4) {
      a0 = add_lanes<kDistance>(a0, a2), a1 = add_lanes<kDistance>(a1, a3);
    } else {
      a0 = add_lanes<kDistance>(a0, kCount == 2 ? a1 : a0);
    }
    if constexpr (kDistance > 1) add_halves<(kCount > 1 ? kCount / 2 : 1), kDistance / 2>();
  }
#endif
};

// One value for each of kOut <= 4 outputs, made by f(output).
template <class T, int kOut>
struct PerOutput {
  T t0, t1, t2, t3;

  template <class Function>
  HWY_INLINE explicit PerOutput(const Function& f)
      : t0(f(0)), t1(f(kOut > 1 ? 1 : 0)), t2(f(kOut > 2 ? 2 : 0)), t3(f(kOut > 2 ? 3 : 0)) {}
  HWY_INLINE const T& operator[](int o) const {
    return o == 0 ? t0 : o == 1 ? t1 : o == 2 ? t2 : t3;
  }
};

// Rows that share one reading of the weights.
constexpr int kRowsPerPass = 8;

}  // namespace HWY_NAMESPACE
}  // namespace roost
HWY_AFTER_NAMESPACE();

#endif  // per target
