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

// One plain weight row: f32 products in lane order, vectors ascending.
template <bool kIsBf16, int kRows>
void plain_row(const uint8_t* w, int64_t n_in, const float* const* x, float* y) {
  const DF df;
  const int64_t n = static_cast<int64_t>(hn::Lanes(df));
  Accumulators<kRows> acc;
  acc.each([&](int, hn::Vec<DF>& a) HWY_ATTR { a = hn::Zero(df); });
  const auto add = [&](const uint8_t* weights, int64_t i) HWY_ATTR {
    hn::Vec<DF> v;
    if constexpr (kIsBf16) {
      v = load_bf16(df, weights);
    } else {
      v = hn::LoadU(df, reinterpret_cast<const float*>(weights));
    }
    acc.each([&](int r, hn::Vec<DF>& a)
                 HWY_ATTR { a = hn::MulAdd(v, hn::LoadU(df, x[r] + i), a); });
  };
  constexpr int64_t kBytes = kIsBf16 ? 2 : 4;
  int64_t i = 0;
  for (; i + n <= n_in; i += n) add(w + i * kBytes, i);
  if (i < n_in) {
    alignas(HWY_MAX_BYTES) uint8_t padded[HWY_MAX_BYTES] = {};
    std::memcpy(padded, w + i * kBytes, static_cast<size_t>((n_in - i) * kBytes));
    add(padded, i);
  }
  acc.each([&](int r, hn::Vec<DF>& a) HWY_ATTR { y[r] = hn::GetLane(hn::SumOfLanes(df, a)); });
}

template <bool kIsBf16, int kRows>
void plain_tile(const QuantMatrix& w, int64_t out_begin, int64_t n_out, const ProductRows& x,
                const int32_t* row_ids, float* out, int64_t out_stride) {
  const float* values[kRows];
  for (int r = 0; r < kRows; ++r) values[r] = x.plain + row_ids[r] * x.stride;
  const int64_t row_bytes = w.n_in * (kIsBf16 ? 2 : 4);
  for (int64_t o = 0; o < n_out; ++o) {
    float y[kRows];
    plain_row<kIsBf16, kRows>(
        reinterpret_cast<const uint8_t*>(w.codes) + (out_begin + o) * row_bytes, w.n_in, values, y);
    for (int r = 0; r < kRows; ++r) out[r * out_stride + o] = y[r];
  }
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
  int32_t ids[kRowsPerPass];
  for (int64_t i = 0; i < n_rows;) {
    const int64_t left = n_rows - i;
    const int64_t n = left >= 8 ? 8 : left >= 4 ? 4 : left >= 2 ? 2 : 1;
    for (int64_t r = 0; r < n; ++r) ids[r] = row_ids ? row_ids[i + r] : static_cast<int32_t>(i + r);
    float* to = out + i * out_stride;
    if (n == 8) tile_of_rows<8>(w, out_begin, n_out, x, ids, to, out_stride);
    if (n == 4) tile_of_rows<4>(w, out_begin, n_out, x, ids, to, out_stride);
    if (n == 2) tile_of_rows<2>(w, out_begin, n_out, x, ids, to, out_stride);
    if (n == 1) tile_of_rows<1>(w, out_begin, n_out, x, ids, to, out_stride);
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
