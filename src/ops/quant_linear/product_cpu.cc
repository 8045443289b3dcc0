// Kernels of product_cpu.h, one source for every instruction set.
//
// Affine: a vector of packed codes is masked into c vectors of 16-bit integers (or bytes, where
// they multiply in one instruction), multiplied with the integers of up to eight rows and summed
// exactly in 32 bits; each such sum becomes f32 and is accumulated with its group's scale by one
// fused multiply-add per lane. Biases multiply the rows' group sums. All integer work is exact, so
// the only order that matters is that of the f32 accumulators: vectors ascending, then the biases
// of that run of groups; the same for any number of rows.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/quant_linear/product_cpu.cc"
#include <hwy/foreach_target.h>

#include <hwy/highway.h>

#include <algorithm>
#include <cstring>

#include "device/cpu/simd.h"
#include "ops/quant_linear/accumulators.h"
#include "ops/quant_linear/expand_codes.h"
#include "ops/quant_linear/product_cpu.h"
#include "ops/quant_linear/unpacked_codes.h"

HWY_BEFORE_NAMESPACE();
namespace roost {
namespace HWY_NAMESPACE {
namespace {

using DF = hn::ScalableTag<float>;
using LaneIndices = decltype(hn::SetTableIndices(DF(), static_cast<const int32_t*>(nullptr)));

constexpr int kLanesMax = HWY_MAX_BYTES / 4;  // 32-bit lanes
// Outputs that share the loads of so many rows: the accumulators and the unpacked codes of all must
// fit the registers.
constexpr int outputs_per_pass(int n_rows) {
  if (HWY_MAX_BYTES == 64) return n_rows <= 4 ? 4 : 2;
  if (HWY_ARCH_ARM) return n_rows == 1 ? 4 : n_rows <= 4 ? 2 : 1;
  return n_rows <= 2 ? 2 : 1;
}
// Codes are read once, in order. So far ahead, and into L2 alone: L1 has too few lines in flight to
// keep up with the memory.
constexpr size_t kPrefetchBytes = 8192, kPrefetchFactorBytes = 1024;
constexpr int kVectorsPerRunMax = 64;  // c = 1, groups of 128

size_t lanes() {
  return hn::Lanes(DF());
}

// Asks for the bytes some way behind `bytes`, which may lie outside the matrix.
HWY_INLINE void prefetch(const uint8_t* bytes, size_t distance) {
  __builtin_prefetch(reinterpret_cast<const void*>(reinterpret_cast<uintptr_t>(bytes) + distance),
                     0, 2);
}

// One weight row, seen as runs: a run is as many groups as a vector has 32-bit lanes.
struct WeightRow {
  const uint8_t* codes;
  const uint8_t* scales;
  const uint8_t* biases;
  bool is_bf16;  // scales and biases; else f32
};

template <class D>
HWY_INLINE hn::Vec<D> load_all_factors(D df, const uint8_t* factors, bool is_bf16) {
  return is_bf16 ? load_bf16(df, factors) : hn::LoadU(df, reinterpret_cast<const float*>(factors));
}

// The next n_groups <= lanes scales or biases; absent groups have 0.
HWY_INLINE hn::Vec<DF> load_factors(const uint8_t* factors, bool is_bf16, size_t n_groups) {
  const DF df;
  if (HWY_LIKELY(n_groups == lanes())) return load_all_factors(df, factors, is_bf16);
  const hn::Half<DF> half;
  if (n_groups == lanes() / 2)
    return hn::ZeroExtendVector(df, load_all_factors(half, factors, is_bf16));
  const hn::Half<decltype(half)> quarter;
  if (n_groups == lanes() / 4)
    return hn::ZeroExtendVector(
        df, hn::ZeroExtendVector(half, load_all_factors(quarter, factors, is_bf16)));
#if HWY_MAX_BYTES == 64
  const hn::Half<decltype(quarter)> eighth;
  if (n_groups == lanes() / 8)
    return hn::ZeroExtendVector(
        df, hn::ZeroExtendVector(
                half, hn::ZeroExtendVector(quarter, load_all_factors(eighth, factors, is_bf16))));
#endif
  alignas(HWY_MAX_BYTES) uint8_t padded[HWY_MAX_BYTES] = {};
  std::memcpy(padded, factors, n_groups * (is_bf16 ? 2 : 4));
  return load_all_factors(df, padded, is_bf16);
}

// Which group of a run each lane of its j-th vector belongs to.
struct LaneGroups {
  int n_vectors;  // of a run
  alignas(HWY_MAX_BYTES) int32_t index[kVectorsPerRunMax * kLanesMax];

  LaneGroups(int codes_per_lane, int group) : n_vectors(group / (2 * codes_per_lane)) {
    for (int i = 0; i < n_vectors * static_cast<int>(lanes()); ++i) index[i] = i / n_vectors;
  }
};

// Made once: a tile of a small matrix takes less time than its table.
template <int kC>
const LaneGroups& lane_groups(int group) {
  static const LaneGroups of_32(kC, 32), of_64(kC, 64), of_128(kC, 128);
  return group == 32 ? of_32 : group == 64 ? of_64 : of_128;
}

// y[i·s] = W[o] · x[r] · row_scales[i·s], i = r·kOut + o, s the stride of the accumulators' sums,
// for kOut neighbouring weight rows, which share the loads of x, and kRows rows of x. w: the first
// weight row; the next ones lie row_bytes of codes and factor_row_bytes of factors behind each
// other.
template <int kC, int kOut, int kRows>
void affine_rows(const WeightRow& w, size_t row_bytes, size_t factor_row_bytes, int64_t n_groups,
                 int group, const LaneGroups& groups, const int16_t* const* x,
                 const float* const* sums, const float* row_scales, float* y) {
  const DF df;
  const size_t n_lanes = lanes();
  const int64_t vector_codes = static_cast<int64_t>(2 * n_lanes) * kC;
  const size_t factor_bytes = w.is_bf16 ? 2 : 4;
  using Vectors = PerOutput<hn::Vec<DF>, kOut>;
  Accumulators<kOut * kRows> acc;  // i = r·kOut + o: the outputs of a row follow each other
  acc.each([&](int, hn::Vec<DF>& a) HWY_ATTR { a = hn::Zero(df); });
  // codes: of the first output; the others' lie `stride` bytes behind each other.
  const auto add_vector = [&](const uint8_t* codes, size_t stride, const Vectors& scale,
                              LaneIndices lane, int64_t code) HWY_ATTR ROOST_INLINE {
    const PerOutput<Unpacked<kC>, kOut> unpacked([&](int o) HWY_ATTR ROOST_INLINE {
      return Unpacked<kC>(codes + static_cast<size_t>(o) * stride);
    });
    const Vectors lane_scale(
        [&](int o) HWY_ATTR ROOST_INLINE { return hn::TableLookupLanes(scale[o], lane); });
    acc.each([&](int i, hn::Vec<DF>& a) HWY_ATTR ROOST_INLINE {
      const auto sum = unpacked[i % kOut].integer_sum(x[i / kOut] + code);
      a = hn::MulAdd(hn::ConvertTo(df, sum), lane_scale[i % kOut], a);
    });
  };

  int64_t code = 0;  // index of the next vector's first code
  for (int64_t g = 0; g < n_groups; g += static_cast<int64_t>(n_lanes)) {
    const size_t n_here = std::min(n_lanes, static_cast<size_t>(n_groups - g));
    const auto load = [&](const uint8_t* factors) HWY_ATTR ROOST_INLINE {
      const uint8_t* here = factors + static_cast<size_t>(g) * factor_bytes;
      prefetch(here, kPrefetchFactorBytes);
      return Vectors([&](int o) HWY_ATTR ROOST_INLINE {
        return load_factors(here + static_cast<size_t>(o) * factor_row_bytes, w.is_bf16, n_here);
      });
    };
    const Vectors scale = load(w.scales);
    const int64_t run_end = (g + static_cast<int64_t>(n_here)) * group;
    int j = 0;
    for (; code + vector_codes <= run_end; code += vector_codes, ++j) {
      const uint8_t* codes = w.codes + code * 2 / kC;
      for (int o = 0; o < kOut; ++o)
        prefetch(codes + static_cast<size_t>(o) * row_bytes, kPrefetchBytes);
      add_vector(codes, row_bytes, scale,
                 hn::SetTableIndices(df, groups.index + static_cast<size_t>(j) * n_lanes), code);
    }
    if (code < run_end) {  // the rows' last codes fill no vector
      alignas(HWY_MAX_BYTES) uint8_t padded[kOut][HWY_MAX_BYTES] = {};
      for (size_t o = 0; o < kOut; ++o)
        std::memcpy(padded[o], w.codes + code * 2 / kC + o * row_bytes,
                    static_cast<size_t>((run_end - code) * 2 / kC));
      add_vector(padded[0], HWY_MAX_BYTES, scale,
                 hn::SetTableIndices(df, groups.index + static_cast<size_t>(j) * n_lanes), code);
      code = run_end;
    }
    const Vectors bias = load(w.biases);
    acc.each([&](int i, hn::Vec<DF>& a) HWY_ATTR ROOST_INLINE {
      a = hn::MulAdd(bias[i % kOut], hn::LoadU(df, sums[i / kOut] + g), a);
    });
  }
  acc.sums(row_scales, y);
}

template <int kC, int kRows>
void affine_tile(const QuantMatrix& w, int64_t out_begin, int64_t n_out, const ProductRows& x,
                 const int32_t* row_ids, float* out, int64_t out_stride, std::byte* scratch) {
  // Widths that must be expanded have scratch for one row.
  constexpr int kOut = kC == 1 ? 1 : outputs_per_pass(kRows);
  const int16_t* values[kRows];
  const float* sums[kRows];
  // Of the sums of kOut outputs and of one, where they lie.
  using Sums = Accumulators<kOut * kRows>;
  using SumsOfOne = Accumulators<kRows>;
  float scales[16] = {}, scales_of_one[16] = {}, y[16];
  for (int r = 0; r < kRows; ++r) {
    values[r] = x.values + row_ids[r] * x.stride;
    sums[r] = x.sums + row_ids[r] * x.sums_stride;
    scales_of_one[r * SumsOfOne::kSumStride] = x.scales[row_ids[r]];
    for (int o = 0; o < kOut; ++o) scales[(r * kOut + o) * Sums::kSumStride] = x.scales[row_ids[r]];
  }
  const LaneGroups& groups = lane_groups<kC>(w.group);
  const size_t row_bytes = static_cast<size_t>(w.n_in * w.bits / 8);
  const int64_t n_groups = w.n_groups();
  const size_t factor_row_bytes = static_cast<size_t>(n_groups) * (w.dtype == DType::kBF16 ? 2 : 4);
  for (int64_t o = 0; o < n_out;) {
    const size_t row = static_cast<size_t>(out_begin + o);
    WeightRow weight{reinterpret_cast<const uint8_t*>(w.codes) + row * row_bytes,
                     reinterpret_cast<const uint8_t*>(w.scales) + row * factor_row_bytes,
                     reinterpret_cast<const uint8_t*>(w.biases) + row * factor_row_bytes,
                     w.dtype == DType::kBF16};
    if constexpr (kC == 1) {
      auto* expanded = reinterpret_cast<uint16_t*>(scratch);
      expand_codes(weight.codes, w.bits, w.n_in, expanded);
      weight.codes = reinterpret_cast<const uint8_t*>(expanded);
    }
    if (o + kOut <= n_out) {
      affine_rows<kC, kOut, kRows>(weight, row_bytes, factor_row_bytes, n_groups, w.group, groups,
                                   values, sums, scales, y);
      for (int r = 0; r < kRows; ++r) {
        for (int i = 0; i < kOut; ++i)
          out[r * out_stride + o + i] = y[(r * kOut + i) * Sums::kSumStride];
      }
      o += kOut;
    } else {
      affine_rows<kC, 1, kRows>(weight, row_bytes, factor_row_bytes, n_groups, w.group, groups,
                                values, sums, scales_of_one, y);
      for (int r = 0; r < kRows; ++r) out[r * out_stride + o] = y[r * SumsOfOne::kSumStride];
      ++o;
    }
  }
}

template <int kRows>
void tile_of_rows(const QuantMatrix& w, int64_t out_begin, int64_t n_out, const ProductRows& x,
                  const int32_t* row_ids, float* out, int64_t out_stride, std::byte* scratch) {
  switch (x.codes_per_lane) {
    case 8:
      return affine_tile<8, kRows>(w, out_begin, n_out, x, row_ids, out, out_stride, scratch);
    case 4:
      return affine_tile<4, kRows>(w, out_begin, n_out, x, row_ids, out, out_stride, scratch);
    case 2:
      return affine_tile<2, kRows>(w, out_begin, n_out, x, row_ids, out, out_stride, scratch);
    default:
      return affine_tile<1, kRows>(w, out_begin, n_out, x, row_ids, out, out_stride, scratch);
  }
}

void product_tile_target(const QuantMatrix& w, int64_t out_begin, int64_t n_out,
                         const ProductRows& x, const int32_t* row_ids, int64_t n_rows, float* out,
                         int64_t out_stride, std::byte* scratch) {
  static constexpr decltype(&tile_of_rows<1>) kPasses[kRowsPerPass] = {
      &tile_of_rows<1>, &tile_of_rows<2>, &tile_of_rows<3>, &tile_of_rows<4>,
      &tile_of_rows<5>, &tile_of_rows<6>, &tile_of_rows<7>, &tile_of_rows<8>};
  int32_t ids[kRowsPerPass];
  for (int64_t i = 0; i < n_rows;) {
    const int64_t n = std::min<int64_t>(n_rows - i, kRowsPerPass);
    for (int64_t r = 0; r < n; ++r) ids[r] = row_ids ? row_ids[i + r] : static_cast<int32_t>(i + r);
    kPasses[n - 1](w, out_begin, n_out, x, ids, out + i * out_stride, out_stride, scratch);
    i += n;
  }
}

const char* target_name() {
  return hwy::TargetName(HWY_TARGET);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace roost
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace roost {

HWY_EXPORT(product_tile_target);
HWY_EXPORT(target_name);

void product_tile(const QuantMatrix& w, int64_t out_begin, int64_t n_out, const ProductRows& x,
                  const int32_t* row_ids, int64_t n_rows, float* out, int64_t out_stride,
                  std::byte* scratch) {
  ROOST_DCHECK(x.fits(w));
  if (w.format == QuantMatrix::Format::kPlain)
    return plain_product_tile(w, out_begin, n_out, x, row_ids, n_rows, out, out_stride);
  HWY_DYNAMIC_DISPATCH(product_tile_target)(w, out_begin, n_out, x, row_ids, n_rows, out,
                                            out_stride, scratch);
}

size_t product_scratch_bytes(int64_t n_in_max) {
  return static_cast<size_t>(n_in_max) * 2 + HWY_MAX_BYTES;
}

const char* product_target_name() {
  return HWY_DYNAMIC_DISPATCH(target_name)();
}

const char* product_kernel_name(const QuantMatrix& w) {
  if (w.format == QuantMatrix::Format::kPlain)
    return w.dtype == DType::kBF16 ? "bf16_exact" : "f32_exact";
  switch (w.bits) {
    case 2:
      return "q2_aligned16";
    case 3:
      return "q3_expanded_aligned16";
    case 4:
      return "q4_aligned16";
    case 5:
      return "q5_expanded_aligned16";
    case 6:
      return "q6_expanded_aligned16";
    default:
      return "q8_aligned16";
  }
}

}  // namespace roost
#endif  // HWY_ONCE
