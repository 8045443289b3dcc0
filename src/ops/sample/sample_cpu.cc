// sample on the CPU: vectors find the few logits that can matter, float64 decides among them.
#include "ops/sample/sample.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "ops/sample/gumbel.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/sample/sample_cpu.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace roost {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// The largest logit; NaN when one is NaN or +inf.
float largest_logit(const float* z, size_t n) {
  const hn::ScalableTag<float> d;
  const auto infinity = hn::Set(d, std::numeric_limits<float>::infinity());
  auto largest = hn::Neg(infinity);
  auto is_sound = hn::Eq(infinity, infinity);
  const size_t n_full = n - n % hn::Lanes(d);
  for (size_t i = 0; i < n_full; i += hn::Lanes(d)) {
    const auto v = hn::LoadU(d, z + i);
    is_sound = hn::And(is_sound, hn::Lt(v, infinity));  // false for NaN too
    largest = hn::Max(largest, v);
  }
  float result = hn::GetLane(hn::MaxOfLanes(d, largest));
  bool is_row_sound = hn::AllTrue(d, is_sound);
  for (size_t i = n_full; i < n; ++i) {
    is_row_sound = is_row_sound && z[i] < std::numeric_limits<float>::infinity();
    result = std::max(result, z[i]);
  }
  return is_row_sound ? result : std::numeric_limits<float>::quiet_NaN();
}

// The first id at or behind `from` whose logit is > floor (or >= floor); n when there is none.
template <bool kOrEqual>
HWY_INLINE size_t next_above(const float* z, size_t from, size_t n, float floor) {
  const hn::ScalableTag<float> d;
  const auto floors = hn::Set(d, floor);
  size_t i = from;
  for (; i + hn::Lanes(d) <= n; i += hn::Lanes(d)) {
    const auto v = hn::LoadU(d, z + i);
    const intptr_t lane = hn::FindFirstTrue(d, kOrEqual ? hn::Ge(v, floors) : hn::Gt(v, floors));
    if (lane >= 0) return i + static_cast<size_t>(lane);
  }
  for (; i < n; ++i) {
    if (kOrEqual ? z[i] >= floor : z[i] > floor) return i;
  }
  return n;
}

size_t next_over(const float* z, size_t from, size_t n, float floor) {
  return next_above<false>(z, from, n, floor);
}

size_t next_from(const float* z, size_t from, size_t n, float floor) {
  return next_above<true>(z, from, n, floor);
}

}  // namespace HWY_NAMESPACE
}  // namespace roost
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace roost {

HWY_EXPORT(largest_logit);
HWY_EXPORT(next_over);
HWY_EXPORT(next_from);

namespace {

constexpr float kNone = -std::numeric_limits<float>::infinity();
constexpr int64_t kPartialIds = 4096;  // of the contract's sum S

// A candidate as one number: ascending keys are falling logits, equal logits by ascending id.
using Key = uint64_t;

Key key_of(float z, size_t id) {
  const auto bits = std::bit_cast<uint32_t>(z + 0.0f);  // -0 and +0 are equal logits
  const uint32_t ascending = (bits >> 31) != 0 ? ~bits : bits | 0x80000000u;
  return (Key{~ascending} << 32) | id;
}

int32_t id_of(Key key) {
  return static_cast<int32_t>(key & 0x7FFFFFFFu);
}

float logit_of(Key key) {
  const auto ascending = ~static_cast<uint32_t>(key >> 32);
  return std::bit_cast<float>((ascending >> 31) != 0 ? ascending & 0x7FFFFFFFu : ~ascending);
}

// One row to draw from. `keys` has room for n of them and holds the n_keys that are left, once
// something was cut away.
struct Draw {
  const SampleParams& params;
  const float* z;
  size_t n;
  float largest;
  Key* keys;
  size_t n_keys = 0;

  double weight(float logit) const {
    return std::exp((double{logit} - double{largest}) / params.temperature);
  }
};

// The k largest, k < n, unordered: logits above a floor that rises each time the room is full.
void collect_largest(Draw& draw, size_t k) {
  const auto next = HWY_DYNAMIC_DISPATCH(next_over);
  const size_t room = std::min(draw.n, std::max(2 * k, k + 256));
  float floor = kNone;
  size_t n_keys = 0;
  const auto keep_k = [&] {
    std::nth_element(draw.keys, draw.keys + k - 1, draw.keys + n_keys);
    n_keys = k;
    floor = logit_of(draw.keys[k - 1]);  // an equal logit further on has a higher id: it loses
  };
  for (size_t i = next(draw.z, 0, draw.n, floor); i < draw.n;
       i = next(draw.z, i + 1, draw.n, floor)) {
    draw.keys[n_keys++] = key_of(draw.z[i], i);
    if (n_keys == room) keep_k();
  }
  if (n_keys > k) keep_k();
  draw.n_keys = n_keys;
}

// All with a logit >= floor, ids ascending.
void collect_from(Draw& draw, float floor) {
  const auto next = HWY_DYNAMIC_DISPATCH(next_from);
  draw.n_keys = 0;
  for (size_t i = next(draw.z, 0, draw.n, floor); i < draw.n;
       i = next(draw.z, i + 1, draw.n, floor))
    draw.keys[draw.n_keys++] = key_of(draw.z[i], i);
}

// S of the keys.
double weight_of_keys(Draw& draw) {
  std::sort(draw.keys, draw.keys + draw.n_keys, [](Key a, Key b) { return id_of(a) < id_of(b); });
  double total = 0, part = 0;
  for (size_t i = 0; i < draw.n_keys; ++i) {
    part += draw.weight(logit_of(draw.keys[i]));
    if (i + 1 == draw.n_keys ||
        id_of(draw.keys[i + 1]) / kPartialIds != id_of(draw.keys[i]) / kPartialIds) {
      total += part;
      part = 0;
    }
  }
  return total;
}

// Where the weight lies: that of logits whose (z_max - z)/T is in [i, i + 1) / kPerUnit.
struct Histogram {
  static constexpr int kBuckets = 1024, kPerUnit = 16;
  double weights[kBuckets] = {};

  void add(double distance, double weight) {
    weights[static_cast<int>(std::min(distance * kPerUnit, kBuckets - 1.0))] += weight;
  }
  // A distance within which at least `wanted` lies, rounding aside.
  double distance_of(double wanted) const {
    double sum = 0;
    for (int i = 0; i < kBuckets - 1; ++i) {
      sum += weights[i];
      if (sum >= wanted) return (i + 1.0) / kPerUnit;
    }
    return std::numeric_limits<double>::infinity();
  }
};

// S of all.
double weight_of_all(const Draw& draw, Histogram& histogram) {
  double total = 0;
  for (size_t begin = 0; begin < draw.n; begin += kPartialIds) {
    const size_t end = std::min(draw.n, begin + kPartialIds);
    double part = 0;
    for (size_t i = begin; i < end; ++i) {
      const double weight = draw.weight(draw.z[i]);
      part += weight;
      histogram.add((double{draw.largest} - double{draw.z[i]}) / draw.params.temperature, weight);
    }
    total += part;
  }
  return total;
}

// Cuts the keys to the prefix whose sum reaches `wanted`. False when they do not reach it.
bool keep_prefix(Draw& draw, double wanted) {
  std::sort(draw.keys, draw.keys + draw.n_keys);
  double sum = 0;
  for (size_t i = 0; i < draw.n_keys; ++i) {
    sum += draw.weight(logit_of(draw.keys[i]));
    if (sum >= wanted) {
      draw.n_keys = i + 1;
      return true;
    }
  }
  return false;
}

// A logit not above any that lies within `distance` (in units of T) of the largest.
float floor_at(const Draw& draw, double distance) {
  const double temperature = draw.params.temperature;
  const double cutoff = double{draw.largest} - temperature * distance;
  return static_cast<float>(std::max(cutoff - 1e-6 * (std::abs(cutoff) + temperature),
                                     double{std::numeric_limits<float>::lowest()}));
}

void keep_top_p(Draw& draw, bool is_cut) {
  if (is_cut) {
    keep_prefix(draw, draw.params.top_p * weight_of_keys(draw));
    return;
  }
  Histogram histogram;
  const double wanted = draw.params.top_p * weight_of_all(draw, histogram);
  collect_from(draw, floor_at(draw, histogram.distance_of(wanted)));
  if (keep_prefix(draw, wanted)) return;
  collect_from(draw, std::numeric_limits<float>::lowest());  // rounding kept it from `wanted`
  keep_prefix(draw, wanted);
}

void keep_min_p(Draw& draw, bool is_cut) {
  const double min_p = draw.params.min_p;
  if (!is_cut) collect_from(draw, floor_at(draw, -std::log(min_p)));  // a little low; then exactly
  const auto is_small = [&](Key key) { return draw.weight(logit_of(key)) < min_p; };
  draw.n_keys =
      static_cast<size_t>(std::remove_if(draw.keys, draw.keys + draw.n_keys, is_small) - draw.keys);
}

// The candidate with the largest noisy logit.
class Winner {
 public:
  explicit Winner(const SampleParams& params)
      : noise_(params.seed, params.position), temperature_(params.temperature) {}
  void offer(float logit, int32_t id) {
    const double scaled = double{logit} / temperature_;
    const uint64_t bits = noise_.bits(id);
    // Rounding keeps order: what cannot win by the limit cannot win by the noise. This spares
    // nearly all logarithms.
    if (id_ >= 0 && scaled + GumbelRow::noise_limit(bits) < best_) return;
    const double value = scaled + GumbelRow::noise(bits);
    if (id_ >= 0 && (value < best_ || (value == best_ && id > id_))) return;
    best_ = value;
    id_ = id;
  }
  int32_t id() const { return id_; }

 private:
  GumbelRow noise_;
  double temperature_;
  double best_ = 0;
  int32_t id_ = -1;
};

int32_t draw_token(Draw& draw) {
  const SampleParams& p = draw.params;
  bool is_cut = false;
  if (p.top_k > 0 && static_cast<size_t>(p.top_k) < draw.n) {
    collect_largest(draw, static_cast<size_t>(p.top_k));
    is_cut = true;
  }
  if (p.top_p < 1) {
    keep_top_p(draw, is_cut);
    is_cut = true;
  }
  if (p.min_p > 0) {
    keep_min_p(draw, is_cut);
    is_cut = true;
  }
  Winner winner(p);
  if (is_cut) {
    for (size_t i = 0; i < draw.n_keys; ++i)
      winner.offer(logit_of(draw.keys[i]), id_of(draw.keys[i]));
  } else {
    for (size_t i = 0; i < draw.n; ++i) {
      if (draw.z[i] > kNone) winner.offer(draw.z[i], static_cast<int32_t>(i));
    }
  }
  return winner.id();
}

// The logits that the mask allows; -inf for the others.
void copy_allowed(const float* z, const uint32_t* mask, size_t n, float* out) {
  for (size_t i = 0; i < n; ++i) out[i] = ((mask[i / 32] >> (i % 32)) & 1) != 0 ? z[i] : kNone;
}

// `allowed` has room for the row's logits under a mask.
int32_t sample_row(const Sample& op, int64_t row, Key* keys, float* allowed) {
  const auto n = static_cast<size_t>(op.n_tokens);
  const float* z = op.logits.as<float>() + row * op.logits.dim(1);
  const SampleParams& params = op.params[static_cast<size_t>(row)];
  const uint32_t* mask = op.masks.empty() ? nullptr : op.masks[static_cast<size_t>(row)];
  float largest = HWY_DYNAMIC_DISPATCH(largest_logit)(z, n);
  if (mask != nullptr && largest > kNone) {
    copy_allowed(z, mask, n, allowed);
    z = allowed;
    largest = HWY_DYNAMIC_DISPATCH(largest_logit)(z, n);
  }
  if (!(largest > kNone)) return -1;
  if (params.temperature == 0)
    return static_cast<int32_t>(HWY_DYNAMIC_DISPATCH(next_from)(z, 0, n, largest));
  Draw draw{params, z, n, largest, keys};
  return draw_token(draw);
}

}  // namespace

size_t sample_workspace_bytes(int64_t n_tokens_max, int n_threads) {
  return static_cast<size_t>(n_threads) * static_cast<size_t>(n_tokens_max) *
             (sizeof(Key) + sizeof(float)) +
         2 * Arena::kAlign;
}

void sample_cpu(const Sample& op, CpuContext& context) {
  check(op);
  const Arena::Scope scope(context.workspace);
  const int64_t n_rows = op.logits.dim(0);
  const auto n_keys = static_cast<size_t>(op.n_tokens);
  const auto n_threads = static_cast<size_t>(context.pool.n_threads());
  const std::span<Key> keys = context.workspace.span<Key>(n_threads * n_keys);
  const std::span<float> allowed = context.workspace.span<float>(n_threads * n_keys);
  int32_t* tokens = op.tokens.as<int32_t>();
  context.pool.parallel_for_with_thread(n_rows, [&](int64_t row, int thread) {
    const size_t at = static_cast<size_t>(thread) * n_keys;
    tokens[row] = sample_row(op, row, keys.data() + at, allowed.data() + at);
  });
}

}  // namespace roost
#endif
