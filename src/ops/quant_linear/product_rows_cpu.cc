// Activation rows in kernel form (product_cpu.h), one source for every instruction set.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/quant_linear/product_rows_cpu.cc"
#include <hwy/foreach_target.h>

#include <hwy/highway.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "device/cpu/simd.h"
#include "ops/quant_linear/product_cpu.h"

HWY_BEFORE_NAMESPACE();
namespace roost {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

using DF = hn::ScalableTag<float>;
using DI32 = hn::ScalableTag<int32_t>;
using DU16 = hn::ScalableTag<uint16_t>;

size_t lanes() {
  return hn::Lanes(DF());
}

// Largest magnitude of a row, as bf16 bits without sign (0x7F80 and above: infinity or NaN).
uint16_t largest_magnitude(const uint16_t* x, int64_t n) {
  const DU16 du16;
  const auto n_lanes = static_cast<int64_t>(hn::Lanes(du16));
  auto largest = hn::Zero(du16);
  int64_t i = 0;
  for (; i + n_lanes <= n; i += n_lanes) {
    largest = hn::Max(largest, hn::And(hn::LoadU(du16, x + i), hn::Set(du16, uint16_t{0x7FFF})));
  }
  alignas(HWY_MAX_BYTES) uint16_t lanes_of[HWY_MAX_BYTES / 2];
  hn::Store(largest, du16, lanes_of);
  uint16_t out = 0;
  for (int64_t l = 0; l < n_lanes; ++l) out = std::max(out, lanes_of[l]);
  for (; i < n; ++i) out = std::max<uint16_t>(out, x[i] & 0x7FFF);
  return out;
}

// One group to integers, in order; returns their sum.
int32_t round_group(const uint16_t* x, int group, float to_integer, int16_t* out) {
  const DF df;
  const DI32 di32;
  const hn::Rebind<int16_t, DI32> di16;
  const auto n_lanes = static_cast<int>(lanes());
  const auto factor = hn::Set(df, to_integer);
  auto sum = hn::Zero(di32);
  for (int i = 0; i < group; i += n_lanes) {
    const auto q =
        hn::NearestInt(hn::Mul(load_bf16(df, reinterpret_cast<const uint8_t*>(x + i)), factor));
    sum = hn::Add(sum, q);
    hn::StoreU(hn::DemoteTo(di16, q), di16, out + i);
  }
  return hn::GetLane(hn::SumOfLanes(di32, sum));
}

// Brings a row of integers from order into the kernels' order, in place: in each run of kC vectors,
// vector `sub` takes the integers sub, kC + sub, 2·kC + sub, ….
template <int kC>
void permute_row(int16_t* values, int64_t n) {
  const hn::ScalableTag<int16_t> di16;
  const auto n_lanes = static_cast<int64_t>(hn::Lanes(di16));
  for (int64_t at = 0; at < n; at += n_lanes * kC) {
    int16_t* run = values + at;
    if constexpr (kC == 2) {
      hn::Vec<decltype(di16)> v0, v1;
      hn::LoadInterleaved2(di16, run, v0, v1);
      hn::StoreU(v0, di16, run);
      hn::StoreU(v1, di16, run + n_lanes);
    } else if constexpr (kC == 4) {
      hn::Vec<decltype(di16)> v0, v1, v2, v3;
      hn::LoadInterleaved4(di16, run, v0, v1, v2, v3);
      hn::StoreU(v0, di16, run);
      hn::StoreU(v1, di16, run + n_lanes);
      hn::StoreU(v2, di16, run + 2 * n_lanes);
      hn::StoreU(v3, di16, run + 3 * n_lanes);
    } else {
      int16_t block[HWY_MAX_BYTES / 2 * kC];
      std::copy_n(run, n_lanes * kC, block);
      for (int64_t i = 0; i < n_lanes * kC; ++i) run[i % kC * n_lanes + i / kC] = block[i];
    }
  }
}

#if HWY_TARGET == HWY_AVX3_DL
// The same for four-bit codes, as bytes: of each run of four vectors the upper bytes of the even
// integers, those of the odd ones, then the lower bytes of both.
void split_row(int16_t* values, int64_t n) {
  const hn::ScalableTag<int16_t> di16;
  const hn::ScalableTag<uint8_t> du8;
  const auto n_lanes = static_cast<int64_t>(hn::Lanes(di16));
  for (int64_t at = 0; at < n; at += n_lanes * 4) {
    int16_t* run = values + at;
    hn::Vec<decltype(di16)> even0, odd0, even1, odd1;
    hn::LoadInterleaved2(di16, run, even0, odd0);
    hn::LoadInterleaved2(di16, run + 2 * n_lanes, even1, odd1);
    const auto store = [&](int64_t vector, auto bytes) HWY_ATTR {
      hn::StoreU(hn::BitCast(di16, bytes), di16, run + vector * n_lanes);
    };
    const auto e0 = hn::BitCast(du8, even0), e1 = hn::BitCast(du8, even1);
    const auto o0 = hn::BitCast(du8, odd0), o1 = hn::BitCast(du8, odd1);
    store(0, hn::ConcatOdd(du8, e1, e0));
    store(1, hn::ConcatOdd(du8, o1, o0));
    store(2, hn::ConcatEven(du8, e1, e0));
    store(3, hn::ConcatEven(du8, o1, o0));
  }
}
#endif

// Rounds one row to 16-bit integers in the kernels' order.
void fill_affine_row(const uint16_t* x, const ProductRows& rows, int64_t row) {
  int16_t* values = rows.values + row * rows.stride;
  float* sums = rows.sums + row * rows.sums_stride;
  const uint16_t largest = largest_magnitude(x, rows.n_in);
  if (largest >= 0x7F80) {  // an infinity or NaN: the whole row's outputs are NaN
    std::fill_n(values, rows.stride, int16_t{0});
    std::fill_n(sums, rows.sums_stride, 0.0f);
    rows.scales[row] = std::numeric_limits<float>::quiet_NaN();
    return;
  }
  // 2^(E-127) <= largest < 2^(E-126) for a bf16 with exponent field E.
  const int exponent = std::max((largest >> 7) - 126, -100);
  const float to_integer = std::ldexp(1.0f, 15 - exponent);
  rows.scales[row] = std::ldexp(1.0f, exponent - 15);

  const int64_t n_groups = rows.n_in / rows.group;
  for (int64_t g = 0; g < n_groups; ++g) {
    sums[g] = static_cast<float>(
        round_group(x + g * rows.group, rows.group, to_integer, values + g * rows.group));
  }
  std::fill(values + rows.n_in, values + rows.stride, int16_t{0});
  std::fill(sums + n_groups, sums + rows.sums_stride, 0.0f);
  switch (rows.codes_per_lane) {
    case 8:
      return permute_row<8>(values, rows.n_in);
    case 4:
#if HWY_TARGET == HWY_AVX3_DL
      return split_row(values, rows.n_in);
#else
      return permute_row<4>(values, rows.n_in);
#endif
    case 2:
      return permute_row<2>(values, rows.n_in);
    default:
      return;  // one code a lane: in order
  }
}

int64_t target_lanes() {
  return static_cast<int64_t>(lanes());
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace roost
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace roost {

HWY_EXPORT(fill_affine_row);
HWY_EXPORT(target_lanes);

namespace {

constexpr int64_t kLanesMax = HWY_MAX_BYTES / 4;

// Rows a power of two apart would all fall into the same few sets of the L1 cache.
constexpr int64_t kRowPadding = 32;  // one cache line of 16-bit values

int codes_per_lane_of(const QuantMatrix& w) {
  if (w.format == QuantMatrix::Format::kPlain) return 0;
  return w.bits == 2 ? 8 : w.bits == 4 ? 4 : w.bits == 8 ? 2 : 1;
}

int64_t rounded_up(int64_t n, int64_t unit) {
  return (n + unit - 1) / unit * unit;
}

}  // namespace

bool ProductRows::fits(const QuantMatrix& w) const {
  return n_in == w.n_in && codes_per_lane == codes_per_lane_of(w) &&
         (codes_per_lane == 0 || group == w.group);
}

ProductRows rows_from(const ProductRows& rows, int64_t begin) {
  ProductRows from = rows;
  from.n_rows -= begin;
  if (rows.codes_per_lane == 0) {
    from.plain += begin * rows.stride;
  } else {
    from.values += begin * rows.stride;
    from.sums += begin * rows.sums_stride;
    from.scales += begin;
  }
  return from;
}

ProductRows take_product_rows(const QuantMatrix& w, int64_t n_rows, Arena& arena) {
  const int64_t n_lanes = HWY_DYNAMIC_DISPATCH(target_lanes)();
  ProductRows rows;
  rows.codes_per_lane = codes_per_lane_of(w);
  rows.n_rows = n_rows;
  rows.n_in = w.n_in;
  if (rows.codes_per_lane == 0) {
    rows.stride = rounded_up(w.n_in, n_lanes);
    rows.plain = arena.span<float>(static_cast<size_t>(n_rows * rows.stride)).data();
    return rows;
  }
  rows.group = w.group;
  rows.stride = rounded_up(w.n_in, 2 * n_lanes * rows.codes_per_lane) + kRowPadding;
  rows.sums_stride = rounded_up(w.n_groups(), n_lanes);
  rows.values = arena.span<int16_t>(static_cast<size_t>(n_rows * rows.stride)).data();
  rows.sums = arena.span<float>(static_cast<size_t>(n_rows * rows.sums_stride)).data();
  rows.scales = arena.span<float>(static_cast<size_t>(n_rows)).data();
  return rows;
}

size_t product_rows_bytes(int64_t n_in_max, int64_t n_rows) {
  const int64_t padded = rounded_up(n_in_max, 2 * kLanesMax * 8) + kRowPadding;
  const int64_t affine = padded * 2 + rounded_up(n_in_max / 32 + 1, kLanesMax) * 4 + 4;
  return static_cast<size_t>(n_rows * std::max(affine, padded * 4)) + 4 * Arena::kAlign;
}

void fill_product_row(const uint16_t* x_bf16, const ProductRows& rows, int64_t row) {
  if (rows.codes_per_lane != 0) return HWY_DYNAMIC_DISPATCH(fill_affine_row)(x_bf16, rows, row);
  float* plain = rows.plain + row * rows.stride;
  for (int64_t i = 0; i < rows.n_in; ++i) plain[i] = f32_from_bf16(x_bf16[i]);
  std::fill(plain + rows.n_in, plain + rows.stride, 0.0f);
}

}  // namespace roost
#endif  // HWY_ONCE
