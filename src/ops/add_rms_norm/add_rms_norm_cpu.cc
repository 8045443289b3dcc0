// add_rms_norm on the CPU: one row at a time, in two passes over it.
#include "ops/add_rms_norm/add_rms_norm.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/check.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/add_rms_norm/add_rms_norm_cpu.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "device/cpu/simd.h"

HWY_BEFORE_NAMESPACE();
namespace roost {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using D = hn::ScalableTag<float>;
using V = hn::Vec<D>;

// Elements [i, i + lanes) of a row of n; those behind its end are zeros, and zeros change no sum.
HWY_INLINE V load_some(const uint16_t* row, size_t i, size_t n) {
  const D d;
  if (i + hn::Lanes(d) <= n) return load_bf16(d, reinterpret_cast<const uint8_t*>(row + i));
  HWY_ALIGN uint16_t lanes[hn::MaxLanes(d)] = {};
  std::memcpy(lanes, row + i, (n - i) * sizeof(uint16_t));
  return load_bf16(d, reinterpret_cast<const uint8_t*>(lanes));
}

HWY_INLINE V load_some(const float* row, size_t i, size_t n) {
  const D d;
  if (i + hn::Lanes(d) <= n) return hn::LoadU(d, row + i);
  HWY_ALIGN float lanes[hn::MaxLanes(d)] = {};
  std::memcpy(lanes, row + i, (n - i) * sizeof(float));
  return hn::Load(d, lanes);
}

HWY_INLINE void store_some(V value, uint16_t* row, size_t i, size_t n) {
  const D d;
  if (i + hn::Lanes(d) <= n) return store_bf16(d, value, row + i);
  HWY_ALIGN uint16_t lanes[hn::MaxLanes(d)];
  store_bf16(d, value, lanes);
  std::memcpy(row + i, lanes, (n - i) * sizeof(uint16_t));
}

// A value rounded to bf16 and widened again.
HWY_INLINE V rounded_to_bf16(V value) {
  const D d;
  HWY_ALIGN uint16_t lanes[hn::MaxLanes(d)];
  store_bf16(d, value, lanes);
  return load_bf16(d, reinterpret_cast<const uint8_t*>(lanes));
}

// The expert outputs of one row: which slots belong to which quarter of the expert tree.
struct RowExperts {
  const uint16_t* y;     // [K or K+1, width]
  const float* weights;  // [K]
  int64_t slot_end[4];   // slots of quarter q end here; ids ascend, so quarters follow each other
  int64_t shared_slot;   // -1: none
  float shared_gate;
};

RowExperts row_experts(const ExpertSum& sum, int64_t t) {
  const int64_t n_chosen = sum.ids.dim(1), n_slots = sum.y.dim(1);
  const int32_t* ids = sum.ids.as<int32_t>() + t * n_chosen;
  RowExperts row{sum.y.as<uint16_t>() + t * n_slots * sum.y.dim(2),
                 sum.weights.as<float>() + t * n_chosen,
                 {},
                 sum.shared_gate.exists() ? n_chosen : -1,
                 sum.shared_gate.exists() ? sum.shared_gate.as<float>()[t] : 0};
  int64_t slot = 0;
  for (int64_t q = 0; q < 4; ++q) {
    while (slot < n_chosen && 4 * int64_t{ids[slot]} / sum.n_experts == q) ++slot;
    row.slot_end[q] = slot;
  }
  return row;
}

HWY_INLINE V expert_sum(const RowExperts& row, size_t i, size_t n) {
  const D d;
  V quarters[4];
  int64_t slot = 0;
  for (int q = 0; q < 4; ++q) {
    quarters[q] = hn::Zero(d);
    for (; slot < row.slot_end[q]; ++slot) {
      const V y = load_some(row.y + static_cast<size_t>(slot) * n, i, n);
      quarters[q] = hn::MulAdd(hn::Set(d, row.weights[slot]), y, quarters[q]);
    }
  }
  const V routed = hn::Add(hn::Add(quarters[0], quarters[1]), hn::Add(quarters[2], quarters[3]));
  if (row.shared_slot < 0) return routed;
  const V y = load_some(row.y + static_cast<size_t>(row.shared_slot) * n, i, n);
  return hn::MulAdd(hn::Set(d, row.shared_gate), y, routed);
}

// x <- r(x + addition) for row t, and its copy to the tap.
void add_row(const AddRmsNorm& op, int64_t t) {
  const D d;
  const auto n = static_cast<size_t>(op.x.dim(1));
  uint16_t* x = op.x.as<uint16_t>() + static_cast<size_t>(t) * n;
  if (op.experts.y.exists()) {
    const RowExperts experts = row_experts(op.experts, t);
    for (size_t i = 0; i < n; i += hn::Lanes(d)) {
      const V sum = rounded_to_bf16(expert_sum(experts, i, n));
      store_some(hn::Add(load_some(x, i, n), sum), x, i, n);
    }
  } else if (op.add.exists()) {
    const uint16_t* add = op.add.as<uint16_t>() + static_cast<size_t>(t) * n;
    for (size_t i = 0; i < n; i += hn::Lanes(d))
      store_some(hn::Add(load_some(x, i, n), load_some(add, i, n)), x, i, n);
  }
  if (op.tap.exists())
    std::memcpy(op.tap.as<uint16_t>() + t * op.tap.dim(1) + op.tap_first, x, n * sizeof(uint16_t));
}

// Four accumulators hide the latency of the multiply-add; the order depends on n alone.
HWY_INLINE float sum_of_squares(const uint16_t* x, size_t n) {
  const D d;
  V sums[4] = {hn::Zero(d), hn::Zero(d), hn::Zero(d), hn::Zero(d)};
  for (size_t i = 0, k = 0; i < n; i += hn::Lanes(d), ++k) {
    const V v = load_some(x, i, n);
    sums[k % 4] = hn::MulAdd(v, v, sums[k % 4]);
  }
  const V sum = hn::Add(hn::Add(sums[0], sums[1]), hn::Add(sums[2], sums[3]));
  return hn::GetLane(hn::SumOfLanes(d, sum));
}

// out[j] = the norm of row t of x.
void norm_row(const AddRmsNorm& op, int64_t t, int64_t j) {
  const D d;
  const auto n = static_cast<size_t>(op.x.dim(1));
  const uint16_t* x = op.x.as<uint16_t>() + static_cast<size_t>(t) * n;
  uint16_t* out = op.out.as<uint16_t>() + static_cast<size_t>(j) * n;
  const float* weight = op.weight.as<float>();
  const float mean = sum_of_squares(x, n) / static_cast<float>(n);
  const V scale = hn::Set(d, 1.0f / std::sqrt(mean + op.eps));
  for (size_t i = 0; i < n; i += hn::Lanes(d)) {
    const V value = hn::Mul(hn::Mul(load_some(x, i, n), scale), load_some(weight, i, n));
    store_some(value, out, i, n);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace roost
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace roost {

HWY_EXPORT(add_row);
HWY_EXPORT(norm_row);

namespace {

// Below this many rows waking the threads costs more than it saves (a row is about a microsecond).
constexpr int64_t kRowsAnItem = 4;

template <class Task>
void for_rows(ThreadPool& pool, int64_t n_rows, const Task& task) {
  pool.parallel_for((n_rows + kRowsAnItem - 1) / kRowsAnItem, [&](int64_t item) {
    const int64_t end = std::min(n_rows, (item + 1) * kRowsAnItem);
    for (int64_t t = item * kRowsAnItem; t < end; ++t) task(t);
  });
}

}  // namespace

void add_rms_norm_cpu(const AddRmsNorm& op, CpuContext& context) {
  check(op);
  ROOST_CHECK(op.x.dtype == DType::kBF16 && (!op.out.exists() || op.out.dtype == DType::kBF16));
  const auto add = HWY_DYNAMIC_DISPATCH(add_row);
  const auto norm = HWY_DYNAMIC_DISPATCH(norm_row);
  const bool norms_in_place = op.out.exists() && !op.rows.exists();
  for_rows(context.pool, op.x.dim(0), [&](int64_t t) {
    add(op, t);
    if (norms_in_place) norm(op, t, t);
  });
  if (!op.out.exists() || !op.rows.exists()) return;
  const int32_t* rows = op.rows.as<int32_t>();
  for_rows(context.pool, op.rows.dim(0), [&](int64_t j) { norm(op, rows[j], j); });
}

}  // namespace roost
#endif
