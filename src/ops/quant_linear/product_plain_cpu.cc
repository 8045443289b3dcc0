// Plain weights (product_cpu.h), one source for every instruction set: f32 products in lane order,
// vectors ascending, the same for any number of rows.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/quant_linear/product_plain_cpu.cc"
#include <hwy/foreach_target.h>

#include <hwy/highway.h>

#include <cstring>

#include "device/cpu/simd.h"
#include "ops/quant_linear/accumulators.h"
#include "ops/quant_linear/product_cpu.h"

HWY_BEFORE_NAMESPACE();
namespace roost {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

using DF = hn::ScalableTag<float>;

constexpr float kOnes[16] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};

// Outputs that share the loads of so many rows.
constexpr int outputs_per_pass(int n_rows) {
  if (HWY_MAX_BYTES != 64) return 1;
  return n_rows <= 4 ? 4 : 2;
}

// y[i·s] = W[o] · x[r], i = r·kOut + o, s the stride of the accumulators' sums, for kOut plain
// weight rows, row_bytes behind each other: f32 products in lane order, vectors ascending.
template <bool kIsBf16, int kOut, int kRows>
void plain_rows(const uint8_t* w, int64_t row_bytes, int64_t n_in, const float* const* x,
                float* y) {
  const DF df;
  const int64_t n = static_cast<int64_t>(hn::Lanes(df));
  Accumulators<kOut * kRows> acc;
  acc.each([&](int, hn::Vec<DF>& a) HWY_ATTR { a = hn::Zero(df); });
  // weights: of the first output; the others' lie `stride` bytes behind each other.
  const auto add = [&](const uint8_t* weights, int64_t stride, int64_t i) HWY_ATTR ROOST_INLINE {
    const PerOutput<hn::Vec<DF>, kOut> v([&](int o) HWY_ATTR ROOST_INLINE {
      if constexpr (kIsBf16) return load_bf16(df, weights + o * stride);
      return hn::LoadU(df, reinterpret_cast<const float*>(weights + o * stride));
    });
    acc.each([&](int j, hn::Vec<DF>& a) HWY_ATTR ROOST_INLINE {
      a = hn::MulAdd(v[j % kOut], hn::LoadU(df, x[j / kOut] + i), a);
    });
  };
  constexpr int64_t kBytes = kIsBf16 ? 2 : 4;
  int64_t i = 0;
  for (; i + n <= n_in; i += n) add(w + i * kBytes, row_bytes, i);
  if (i < n_in) {
    alignas(HWY_MAX_BYTES) uint8_t padded[kOut][HWY_MAX_BYTES] = {};
    for (int64_t o = 0; o < kOut; ++o)
      std::memcpy(padded[o], w + i * kBytes + o * row_bytes,
                  static_cast<size_t>((n_in - i) * kBytes));
    add(padded[0], HWY_MAX_BYTES, i);
  }
  acc.sums(kOnes, y);
}

template <bool kIsBf16, int kRows>
void plain_tile(const QuantMatrix& w, int64_t out_begin, int64_t n_out, const ProductRows& x,
                const int32_t* row_ids, float* out, int64_t out_stride) {
  constexpr int kOut = outputs_per_pass(kRows);
  const float* values[kRows];
  for (int r = 0; r < kRows; ++r) values[r] = x.plain + row_ids[r] * x.stride;
  const int64_t row_bytes = w.n_in * (kIsBf16 ? 2 : 4);
  float y[16];
  const auto pass = [&]<int kHere>(int64_t o) {
    plain_rows<kIsBf16, kHere, kRows>(
        reinterpret_cast<const uint8_t*>(w.codes) + (out_begin + o) * row_bytes, row_bytes, w.n_in,
        values, y);
    for (int r = 0; r < kRows; ++r) {
      for (int i = 0; i < kHere; ++i)
        out[r * out_stride + o + i] = y[(r * kHere + i) * Accumulators<kHere * kRows>::kSumStride];
    }
  };
  int64_t o = 0;
  for (; o + kOut <= n_out; o += kOut) pass.template operator()<kOut>(o);
  for (; o < n_out; ++o) pass.template operator()<1>(o);
}

template <int kRows>
void tile_of_rows(const QuantMatrix& w, int64_t out_begin, int64_t n_out, const ProductRows& x,
                  const int32_t* row_ids, float* out, int64_t out_stride) {
  if (w.dtype == DType::kBF16)
    return plain_tile<true, kRows>(w, out_begin, n_out, x, row_ids, out, out_stride);
  plain_tile<false, kRows>(w, out_begin, n_out, x, row_ids, out, out_stride);
}

void plain_product_tile_target(const QuantMatrix& w, int64_t out_begin, int64_t n_out,
                               const ProductRows& x, const int32_t* row_ids, int64_t n_rows,
                               float* out, int64_t out_stride) {
  static constexpr decltype(&tile_of_rows<1>) kPasses[kRowsPerPass] = {
      &tile_of_rows<1>, &tile_of_rows<2>, &tile_of_rows<3>, &tile_of_rows<4>,
      &tile_of_rows<5>, &tile_of_rows<6>, &tile_of_rows<7>, &tile_of_rows<8>};
  int32_t ids[kRowsPerPass];
  for (int64_t i = 0; i < n_rows;) {
    const int64_t n = std::min<int64_t>(n_rows - i, kRowsPerPass);
    for (int64_t r = 0; r < n; ++r) ids[r] = row_ids ? row_ids[i + r] : static_cast<int32_t>(i + r);
    kPasses[n - 1](w, out_begin, n_out, x, ids, out + i * out_stride, out_stride);
    i += n;
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace roost
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace roost {

HWY_EXPORT(plain_product_tile_target);

void plain_product_tile(const QuantMatrix& w, int64_t out_begin, int64_t n_out,
                        const ProductRows& x, const int32_t* row_ids, int64_t n_rows, float* out,
                        int64_t out_stride) {
  HWY_DYNAMIC_DISPATCH(plain_product_tile_target)
  (w, out_begin, n_out, x, row_ids, n_rows, out, out_stride);
}

}  // namespace roost
#endif  // HWY_ONCE
