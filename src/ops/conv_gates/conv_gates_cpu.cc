// conv_gates on the CPU: an item is some heads of one sequence over all its rows, so that the conv
// tail and the row store of those channels are read and written by one thread.
#include "ops/conv_gates/conv_gates.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/check.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/conv_gates/conv_gates_cpu.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "device/cpu/simd.h"
#include "ops/simd_math.h"

#ifndef ROOST_OPS_CONV_GATES_CPU_CC_
#define ROOST_OPS_CONV_GATES_CPU_CC_
namespace roost {

constexpr int64_t kTileRows = 16;  // rows that share a load of the weights; their heads stay in L1
constexpr int64_t kKeyHeadsPerItem = 2;  // a q and a k head each
constexpr int64_t kValueHeadsPerItem = 4;

// The packed rows of one sequence in one tensor: the tail (rows below 0), the row store, the step.
template <class T>
struct PackedRows {
  T* tail;
  T* store;
  const T* rows;
  int64_t width, n_replay;

  const T* row(int64_t p) const {
    if (p < 0) return tail + (3 + p) * width;
    return p < n_replay ? store + p * width : rows + (p - n_replay) * width;
  }
};

template <class T>
PackedRows<T> packed_rows(const DeltaSpan& span, const Tensor& rows, const Tensor& store,
                          const Tensor& tail) {
  const int64_t width = rows.dim(1);
  return {.tail = tail.exists() ? tail.as<T>() + span.slot * 3 * width : nullptr,
          .store = store.exists() ? store.as<T>() + span.slot * store.dim(1) * width : nullptr,
          .rows = rows.as<T>() + span.first_row * width,
          .width = width,
          .n_replay = span.n_replay};
}

}  // namespace roost
#endif

HWY_BEFORE_NAMESPACE();
namespace roost {
namespace HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

using Lanes = hn::ScalableTag<float>;

// out[t, i] = silu(Σ w·M) for packed rows [begin, begin + n_rows), channels [ch, ch + n).
void convolve(const PackedRows<uint16_t>& raw, const float* weight, int64_t begin, int64_t n_rows,
              int64_t ch, int64_t n, uint16_t* out, int64_t out_stride) {
  const uint16_t* rows[kTileRows + 3];
  for (int64_t t = 0; t < n_rows + 3; ++t) rows[t] = raw.row(begin + t - 3) + ch;
  for_lanes(Lanes(), static_cast<size_t>(n), [&](auto d, size_t i) HWY_ATTR {
    const float* taps = weight + (static_cast<size_t>(ch) + i) * 4;
    auto w0 = hn::Set(d, taps[0]), w1 = hn::Set(d, taps[1]);
    auto w2 = hn::Set(d, taps[2]), w3 = hn::Set(d, taps[3]);
    if constexpr (hn::MaxLanes(d) > 1) hn::LoadInterleaved4(d, taps, w0, w1, w2, w3);
    auto m0 = load_bf16(d, rows[0] + i), m1 = load_bf16(d, rows[1] + i);
    auto m2 = load_bf16(d, rows[2] + i);
    for (int64_t t = 0; t < n_rows; ++t) {
      const auto m3 = load_bf16(d, rows[t + 3] + i);
      auto sum = hn::Mul(w0, m0);
      sum = hn::MulAdd(w1, m1, sum);
      sum = hn::MulAdd(w2, m2, sum);
      sum = hn::MulAdd(w3, m3, sum);
      store_bf16(d, hn::Mul(sum, sigmoid(d, sum)), out + t * out_stride + static_cast<int64_t>(i));
      m0 = m1;
      m1 = m2;
      m2 = m3;
    }
  });
}

// x / sqrt(Σ x² + 1e-6) · factor, in place.
void normalize(uint16_t* x, size_t n, float factor) {
  const float squares = sum_of_lanes(Lanes(), n, [&](auto d, size_t i, auto sum) HWY_ATTR {
    const auto v = load_bf16(d, x + i);
    return hn::MulAdd(v, v, sum);
  });
  const float scale = factor / std::sqrt(squares + 1e-6f);
  for_lanes(Lanes(), n, [&](auto d, size_t i) HWY_ATTR {
    store_bf16(d, hn::Mul(load_bf16(d, x + i), hn::Set(d, scale)), x + i);
  });
}

float dot(const uint16_t* a, const uint16_t* b, size_t n) {
  return sum_of_lanes(Lanes(), n, [&](auto d, size_t i, auto sum) HWY_ATTR {
    return hn::MulAdd(load_bf16(d, a + i), load_bf16(d, b + i), sum);
  });
}

void key_heads(const ConvGates& op, const DeltaSpan& span, int64_t head, int64_t n_heads) {
  const int64_t n_heads_all = op.q.dim(1), dim = op.q.dim(2), width = n_heads_all * dim;
  const auto raw = packed_rows<uint16_t>(span, op.qkv, op.store_qkv, op.tail);
  const auto* weight = op.conv_weight.as<float>();
  const float q_factor = static_cast<float>(1.0 / std::sqrt(static_cast<double>(dim)));
  for (int64_t begin = 0; begin < span.n_packed(); begin += kTileRows) {
    const int64_t n_rows = HWY_MIN(kTileRows, span.n_packed() - begin);
    const int64_t row = span.first_packed + begin;
    uint16_t* q = op.q.as<uint16_t>() + row * width + head * dim;
    uint16_t* k = op.k.as<uint16_t>() + row * width + head * dim;
    convolve(raw, weight, begin, n_rows, head * dim, n_heads * dim, q, width);
    convolve(raw, weight, begin, n_rows, width + head * dim, n_heads * dim, k, width);
    for (int64_t t = 0; t < n_rows; ++t) {
      for (int64_t h = 0; h < n_heads; ++h) {
        uint16_t* q_head = q + t * width + h * dim;
        uint16_t* k_head = k + t * width + h * dim;
        normalize(q_head, static_cast<size_t>(dim), q_factor);
        normalize(k_head, static_cast<size_t>(dim), 1.0f);
        op.kq.as<float>()[(row + t) * n_heads_all + head + h] =
            dot(k_head, q_head, static_cast<size_t>(dim));
      }
    }
  }
}

void value_heads(const ConvGates& op, const DeltaSpan& span, int64_t head, int64_t n_heads) {
  const int64_t dim = op.v.dim(2), width = op.v.dim(1) * dim;
  const int64_t first_channel = 2 * op.q.dim(1) * op.q.dim(2);
  const auto raw = packed_rows<uint16_t>(span, op.qkv, op.store_qkv, op.tail);
  for (int64_t begin = 0; begin < span.n_packed(); begin += kTileRows) {
    const int64_t n_rows = HWY_MIN(kTileRows, span.n_packed() - begin);
    uint16_t* v = op.v.as<uint16_t>() + (span.first_packed + begin) * width + head * dim;
    convolve(raw, op.conv_weight.as<float>(), begin, n_rows, first_channel + head * dim,
             n_heads * dim, v, width);
  }
}

void gates(const ConvGates& op, const DeltaSpan& span) {
  const int64_t n_heads = op.v.dim(1);
  const auto b_rows = packed_rows<float>(span, op.b, op.store_b, {});
  const auto a_rows = packed_rows<float>(span, op.a, op.store_a, {});
  const auto* a_log = op.a_log.as<float>();
  const auto* dt_bias = op.dt_bias.as<float>();
  for (int64_t p = 0; p < span.n_packed(); ++p) {
    const float* b = b_rows.row(p);
    const float* a = a_rows.row(p);
    float* beta = op.beta.as<float>() + (span.first_packed + p) * n_heads;
    float* decay = op.decay.as<float>() + (span.first_packed + p) * n_heads;
    for_lanes(Lanes(), static_cast<size_t>(n_heads), [&](auto d, size_t i) HWY_ATTR {
      const auto rate = exp(d, hn::LoadU(d, a_log + i));
      const auto x = hn::Add(hn::LoadU(d, a + i), hn::LoadU(d, dt_bias + i));
      hn::StoreU(sigmoid(d, hn::LoadU(d, b + i)), d, beta + i);
      hn::StoreU(exp(d, hn::Neg(hn::Mul(rate, softplus(d, x)))), d, decay + i);
    });
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace roost
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace roost {

HWY_EXPORT(key_heads);
HWY_EXPORT(value_heads);
HWY_EXPORT(gates);

namespace {

// Packed rows [store_after, …) of elements [begin, begin + n) go to the row store. A row never
// moves to a higher one, so ascending order reads each before it is overwritten.
template <class T>
void keep_rows(const PackedRows<T>& rows, const DeltaSpan& span, int64_t begin, int64_t n) {
  for (int64_t p = span.store_after; p < span.n_packed(); ++p)
    std::memmove(rows.store + (p - span.store_after) * rows.width + begin, rows.row(p) + begin,
                 static_cast<size_t>(n) * sizeof(T));
}

// The tail becomes the last three raw rows in front of packed row store_after; before the row
// store is touched, whose rows may be among them.
void keep_channels(const ConvGates& op, const DeltaSpan& span, int64_t begin, int64_t n) {
  const auto raw = packed_rows<uint16_t>(span, op.qkv, op.store_qkv, op.tail);
  for (int64_t i = 0; i < 3; ++i)
    std::memmove(raw.tail + i * raw.width + begin, raw.row(span.store_after - 3 + i) + begin,
                 static_cast<size_t>(n) * sizeof(uint16_t));
  keep_rows(raw, span, begin, n);
}

void run_key_item(const ConvGates& op, const DeltaSpan& span, int64_t item) {
  const int64_t head = item * kKeyHeadsPerItem, dim = op.q.dim(2);
  const int64_t n_heads = std::min(kKeyHeadsPerItem, op.q.dim(1) - head);
  HWY_DYNAMIC_DISPATCH(key_heads)(op, span, head, n_heads);
  keep_channels(op, span, head * dim, n_heads * dim);
  keep_channels(op, span, (op.q.dim(1) + head) * dim, n_heads * dim);
}

void run_value_item(const ConvGates& op, const DeltaSpan& span, int64_t item) {
  const int64_t head = item * kValueHeadsPerItem, dim = op.v.dim(2);
  const int64_t n_heads = std::min(kValueHeadsPerItem, op.v.dim(1) - head);
  HWY_DYNAMIC_DISPATCH(value_heads)(op, span, head, n_heads);
  keep_channels(op, span, 2 * op.q.dim(1) * op.q.dim(2) + head * dim, n_heads * dim);
}

void run_gates_item(const ConvGates& op, const DeltaSpan& span) {
  HWY_DYNAMIC_DISPATCH(gates)(op, span);
  keep_rows(packed_rows<float>(span, op.b, op.store_b, {}), span, 0, op.b.dim(1));
  keep_rows(packed_rows<float>(span, op.a, op.store_a, {}), span, 0, op.a.dim(1));
}

int64_t div_ceil(int64_t n, int64_t unit) {
  return (n + unit - 1) / unit;
}

}  // namespace

void conv_gates_cpu(const ConvGates& op, CpuContext& context) {
  check(op);
  ROOST_CHECK(op.qkv.dtype == DType::kBF16 && op.tail.dtype == DType::kBF16);
  ROOST_CHECK(op.q.dtype == DType::kBF16 && op.k.dtype == DType::kBF16);
  ROOST_CHECK(op.v.dtype == DType::kBF16);
  ROOST_CHECK(!op.store_qkv.exists() || op.store_qkv.dtype == DType::kBF16);
  const int64_t n_key_items = div_ceil(op.q.dim(1), kKeyHeadsPerItem);
  const int64_t n_value_items = div_ceil(op.v.dim(1), kValueHeadsPerItem);
  const int64_t n_items = n_key_items + n_value_items + 1;
  context.pool.parallel_for(n_items * static_cast<int64_t>(op.spans.size()), [&](int64_t i) {
    const DeltaSpan& span = op.spans[static_cast<size_t>(i / n_items)];
    const int64_t item = i % n_items;
    if (item < n_key_items) return run_key_item(op, span, item);
    if (item < n_key_items + n_value_items) return run_value_item(op, span, item - n_key_items);
    run_gates_item(op, span);
  });
}

}  // namespace roost
#endif
