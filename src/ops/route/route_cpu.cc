// route on the CPU: vectors look for logits above the smallest chosen one, of which there are few.
#include "ops/route/route.h"

#include <algorithm>
#include <cmath>
#include <limits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/route/route_cpu.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace roost {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

bool all_finite(const float* logits, size_t n) {
  const hn::ScalableTag<float> d;
  const size_t n_full = n - n % hn::Lanes(d);
  for (size_t i = 0; i < n_full; i += hn::Lanes(d)) {
    if (!hn::AllTrue(d, hn::IsFinite(hn::LoadU(d, logits + i)))) return false;
  }
  for (size_t i = n_full; i < n; ++i) {
    if (!std::isfinite(logits[i])) return false;
  }
  return true;
}

// Chosen so far: by falling logit, equal logits by ascending id.
struct Chosen {
  const float* logits;
  int32_t* ids;
  size_t n_max;
  size_t n = 0;

  float smallest() const { return logits[ids[n - 1]]; }
  // Ids come in ascending, so an equal logit goes behind, and has no place when all are taken.
  HWY_INLINE void offer(size_t id) {
    if (n == n_max && !(logits[id] > smallest())) return;
    size_t at = n < n_max ? n++ : n_max - 1;
    for (; at > 0 && logits[id] > logits[ids[at - 1]]; --at) ids[at] = ids[at - 1];
    ids[at] = static_cast<int32_t>(id);
  }
};

void choose_experts(const float* logits, size_t n_experts, int32_t* ids, size_t n_chosen) {
  const hn::ScalableTag<float> d;
  Chosen chosen{logits, ids, n_chosen};
  size_t i = 0;
  for (; i < n_chosen; ++i) chosen.offer(i);
  for (; i + hn::Lanes(d) <= n_experts; i += hn::Lanes(d)) {
    const auto above = hn::Gt(hn::LoadU(d, logits + i), hn::Set(d, chosen.smallest()));
    if (hn::AllFalse(d, above)) continue;
    for (size_t j = 0; j < hn::Lanes(d); ++j) chosen.offer(i + j);
  }
  for (; i < n_experts; ++i) chosen.offer(i);
}

}  // namespace HWY_NAMESPACE
}  // namespace roost
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace roost {

HWY_EXPORT(all_finite);
HWY_EXPORT(choose_experts);

namespace {

constexpr int64_t kRowsAnItem = 16;  // a row is a fraction of a microsecond

// Exponentials are few, so they may as well be float64: no error worth a bound is added.
void weigh(const Route& op, const float* logits, const int32_t* ids, float* weights) {
  const int64_t n_experts = op.logits.dim(1), n_chosen = op.ids.dim(1);
  double largest = -std::numeric_limits<double>::infinity();
  for (int64_t s = 0; s < n_chosen; ++s) largest = std::max(largest, double{logits[ids[s]]});
  double sum = 0;
  if (op.normalize) {
    for (int64_t s = 0; s < n_chosen; ++s) sum += std::exp(double{logits[ids[s]]} - largest);
  } else {
    for (int64_t e = 0; e < n_experts; ++e) sum += std::exp(double{logits[e]} - largest);
  }
  for (int64_t s = 0; s < n_chosen; ++s)
    weights[s] = static_cast<float>(std::exp(double{logits[ids[s]]} - largest) / sum);
}

void route_row(const Route& op, int64_t t) {
  const auto n_experts = static_cast<size_t>(op.logits.dim(1));
  const auto n_chosen = static_cast<size_t>(op.ids.dim(1)), row = static_cast<size_t>(t);
  const float* logits = op.logits.as<float>() + row * n_experts;
  int32_t* ids = op.ids.as<int32_t>() + row * n_chosen;
  float* weights = op.weights.as<float>() + row * n_chosen;
  if (op.shared_gate.exists())
    op.shared_gate.as<float>()[t] =
        static_cast<float>(1 / (1 + std::exp(-double{op.shared_logit.as<float>()[t]})));
  if (!HWY_DYNAMIC_DISPATCH(all_finite)(logits, n_experts)) {
    for (size_t s = 0; s < n_chosen; ++s) {
      ids[s] = static_cast<int32_t>(s);
      weights[s] = std::numeric_limits<float>::quiet_NaN();
    }
    return;
  }
  HWY_DYNAMIC_DISPATCH(choose_experts)(logits, n_experts, ids, n_chosen);
  std::sort(ids, ids + n_chosen);
  weigh(op, logits, ids, weights);
}

}  // namespace

void route_cpu(const Route& op, CpuContext& context) {
  check(op);
  const int64_t n_rows = op.logits.dim(0);
  context.pool.parallel_for((n_rows + kRowsAnItem - 1) / kRowsAnItem, [&](int64_t item) {
    const int64_t end = std::min(n_rows, (item + 1) * kRowsAnItem);
    for (int64_t t = item * kRowsAnItem; t < end; ++t) route_row(op, t);
  });
}

}  // namespace roost
#endif
