// qk_norm_rope_append on the CPU: an item is a few heads of one row.
#include "ops/qk_norm_rope_append/qk_norm_rope_append.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/qk_norm_rope_append/qk_norm_rope_append_cpu.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "device/cpu/simd.h"
#include "ops/kv_codes.h"
#include "ops/simd_math.h"

HWY_BEFORE_NAMESPACE();
namespace roost {
namespace HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

using Lanes = hn::ScalableTag<float>;

template <class D>
HWY_INLINE void put(D d, hn::Vec<D> v, uint16_t* to) {
  store_bf16(d, v, to);
}
template <class D>
HWY_INLINE void put(D d, hn::Vec<D> v, float* to) {
  hn::StoreU(v, d, to);
}

// out = the head u [dim], normalized, its first 2·n_pairs dims rotated; rope holds (cos, sin)
// pairs. Out: bf16 as uint16_t, or float.
template <class Out>
void rotate(const uint16_t* u, const float* weight, const float* rope, size_t dim, size_t n_pairs,
            float eps, Out* out) {
  const float squares = sum_of_lanes(Lanes(), dim, [&](auto d, size_t i, auto sum) HWY_ATTR {
    const auto v = load_bf16(d, u + i);
    return hn::MulAdd(v, v, sum);
  });
  const float scale = 1.0f / std::sqrt(squares / static_cast<float>(dim) + eps);
  for_lanes(Lanes(), n_pairs, [&](auto d, size_t i) HWY_ATTR {
    const auto scales = hn::Set(d, scale);
    const size_t j = i + n_pairs;
    const auto a = hn::Mul(hn::Mul(load_bf16(d, u + i), scales), hn::LoadU(d, weight + i));
    const auto b = hn::Mul(hn::Mul(load_bf16(d, u + j), scales), hn::LoadU(d, weight + j));
    auto c = hn::Set(d, rope[2 * i]), s = hn::Set(d, rope[2 * i + 1]);
    if constexpr (hn::MaxLanes(d) > 1) hn::LoadInterleaved2(d, rope + 2 * i, c, s);
    put(d, hn::NegMulAdd(b, s, hn::Mul(a, c)), out + i);
    put(d, hn::MulAdd(a, s, hn::Mul(b, c)), out + j);
  });
  const size_t first = 2 * n_pairs;
  for_lanes(Lanes(), dim - first, [&](auto d, size_t rest) HWY_ATTR {
    const size_t i = first + rest;
    const auto n = hn::Mul(load_bf16(d, u + i), hn::Set(d, scale));
    put(d, hn::Mul(n, hn::LoadU(d, weight + i)), out + i);
  });
}

void rotate_head(const uint16_t* u, const float* weight, const float* rope, size_t dim,
                 size_t n_pairs, float eps, uint16_t* out) {
  rotate(u, weight, rope, dim, n_pairs, eps, out);
}
void rotate_head_f32(const uint16_t* u, const float* weight, const float* rope, size_t dim,
                     size_t n_pairs, float eps, float* out) {
  rotate(u, weight, rope, dim, n_pairs, eps, out);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace roost
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace roost {

HWY_EXPORT(rotate_head);
HWY_EXPORT(rotate_head_f32);

namespace {

constexpr int64_t kHeadsPerItem = 8;  // enough work to be worth claiming

// The key and the value of KV head g of row t as codes, in the slot of the token.
void append_codes(const QkNormRopeAppend& op, int64_t t, int64_t g, int64_t page, int64_t slot) {
  const int64_t dim = op.k_pages.dim(3), kv_heads = op.k_pages.dim(1), n_pairs = op.rope.dim(1);
  const int64_t from = (t * kv_heads + g) * dim, head = page * kv_heads + g;
  const auto n = static_cast<size_t>(dim);
  float values[kCodedHeadDimMax];
  HWY_DYNAMIC_DISPATCH(rotate_head_f32)
  (op.k.as<uint16_t>() + from, op.k_weight.as<float>(), op.rope.as<float>() + t * n_pairs * 2, n,
   static_cast<size_t>(n_pairs), op.eps, values);
  const int64_t at = head * kPageTokens + slot;
  op.k_scales.as<float>()[at] = encode_head(values, n, op.k_pages.as<int8_t>() + at * dim, 1);
  for (size_t i = 0; i < n; ++i) values[i] = f32_from_bf16(op.v.as<uint16_t>()[from + int64_t(i)]);
  op.v_scales.as<float>()[at] = encode_head(
      values, n, op.v_pages.as<int8_t>() + head * dim * kPageTokens + slot, kPageTokens);
}

// Heads [begin, end) of one row: query heads first, then KV heads.
void run_heads(const QkNormRopeAppend& op, const RowSpan& span, int64_t r, int64_t begin,
               int64_t end) {
  const auto rotate_to = HWY_DYNAMIC_DISPATCH(rotate_head);
  const int64_t n_heads = op.n_heads(), dim = op.k_pages.dim(3), kv_heads = op.k_pages.dim(1);
  const int64_t t = span.first_row + r, token = span.first_index + r;
  const int64_t page = span.page_table[token / kPageTokens], n_pairs = op.rope.dim(1);
  const float* rope = op.rope.as<float>() + t * n_pairs * 2;
  for (int64_t j = begin; j < std::min(end, n_heads); ++j)
    rotate_to(op.q_gate.as<uint16_t>() + (t * n_heads + j) * 2 * dim, op.q_weight.as<float>(), rope,
              static_cast<size_t>(dim), static_cast<size_t>(n_pairs), op.eps,
              op.q.as<uint16_t>() + (t * n_heads + j) * dim);
  for (int64_t g = std::max<int64_t>(begin - n_heads, 0); g < end - n_heads; ++g) {
    if (op.has_codes()) {
      append_codes(op, t, g, page, token % kPageTokens);
      continue;
    }
    const int64_t from = (t * kv_heads + g) * dim;
    const int64_t to = ((page * kv_heads + g) * kPageTokens + token % kPageTokens) * dim;
    rotate_to(op.k.as<uint16_t>() + from, op.k_weight.as<float>(), rope, static_cast<size_t>(dim),
              static_cast<size_t>(n_pairs), op.eps, op.k_pages.as<uint16_t>() + to);
    std::copy_n(op.v.as<uint16_t>() + from, dim, op.v_pages.as<uint16_t>() + to);
  }
}

}  // namespace

void qk_norm_rope_append_cpu(const QkNormRopeAppend& op, CpuContext& context) {
  check(op);
  ROOST_CHECK(!op.q.exists() || (op.q_gate.dtype == DType::kBF16 && op.q.dtype == DType::kBF16));
  ROOST_CHECK(op.k.dtype == DType::kBF16 && op.v.dtype == DType::kBF16);
  ROOST_CHECK(op.has_codes() || op.k_pages.dtype == DType::kBF16);
  const int64_t n_heads = op.n_heads() + op.k_pages.dim(1);
  const int64_t n_items_per_row = (n_heads + kHeadsPerItem - 1) / kHeadsPerItem;
  int64_t n_rows = 0;
  for (const RowSpan& span : op.spans) n_rows += span.n_rows;
  context.pool.parallel_for(n_rows * n_items_per_row, [&](int64_t i) {
    const RowSpan* span = op.spans.data();
    int64_t r = i / n_items_per_row;
    for (; r >= span->n_rows; ++span) r -= span->n_rows;
    const int64_t begin = i % n_items_per_row * kHeadsPerItem;
    run_heads(op, *span, r, begin, std::min(begin + kHeadsPerItem, n_heads));
  });
}

}  // namespace roost
#endif
