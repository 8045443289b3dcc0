// Operands for the MMA laws: ordinary and adversarial bf16 data, a function of (fill, k, seed).
#pragma once

#include <cuda_bf16.h>

#include <cmath>
#include <cstdint>
#include <random>
#include <utility>
#include <vector>

namespace roost::laws {

constexpr int kColumns = 256;  // columns of the largest tile

using Bf16 = __nv_bfloat16;

enum class Fill { kNormal, kCancelling, kSpread, kSubnormal, kSignedZeros };
constexpr Fill kFills[] = {Fill::kNormal, Fill::kCancelling, Fill::kSpread, Fill::kSubnormal,
                           Fill::kSignedZeros};

inline const char* name_of(Fill fill) {
  constexpr const char* kNames[] = {"normal", "cancelling", "spread", "subnormal", "signed_zeros"};
  return kNames[int(fill)];
}

struct Operands {
  int k = 0;
  std::vector<Bf16> a;  // [64, k]
  std::vector<Bf16> b;  // [256, k]
};

class Draw {
 public:
  explicit Draw(uint64_t seed) : engine_(seed) {}

  int below(int n) { return int((engine_() >> 32) % uint64_t(n)); }
  float unit() { return float(engine_() >> 40) * 0x1p-24f; }  // in [0, 1)
  float bell() { return unit() + unit() + unit() + unit() - 2.0f; }

  // A random sign and significand of 8 bits, exponent uniform in [low, high].
  float power(int low, int high) {
    const float magnitude =
        std::ldexp(1.0f + float(below(128)) / 128.0f, low + below(high - low + 1));
    return below(2) != 0 ? magnitude : -magnitude;
  }
  float subnormal() { return std::ldexp(float(below(255) - 127), -133); }  // a multiple of 2^-133

  template <typename T>
  void shuffle(std::vector<T>& items) {
    for (size_t i = items.size(); i > 1; --i) std::swap(items[i - 1], items[below(int(i))]);
  }

 private:
  std::mt19937_64 engine_;
};

inline std::vector<int> shuffled_indexes(int n, Draw& draw) {
  std::vector<int> order(n);
  for (int i = 0; i < n; ++i) order[i] = i;
  draw.shuffle(order);
  return order;
}

// Sums whose large parts cancel exactly: position order[2 i + 1] carries the negative product of
// position order[2 i]; every fourth pair is small and does not cancel, so that what is left of the
// sum depends on what the large parts shifted out.
inline void fill_cancelling(std::vector<float>& lines, int n_lines, int k, bool is_negated,
                            const std::vector<int>& order, Draw& draw) {
  for (int line = 0; line < n_lines; ++line) {
    float* row = lines.data() + size_t(line) * k;
    for (int i = 0; i + 1 < k; i += 2) {
      const bool is_small = i / 2 % 4 == 3;
      row[order[i]] = is_small ? draw.power(-14, -8) : draw.power(0, 5);
      row[order[i + 1]] = is_small ? draw.power(-14, -8) : (is_negated ? -1 : 1) * row[order[i]];
    }
  }
}

// kind: 0 subnormal, 1 near one, 2 so small that products lie below f32's normal range.
inline float tiny(int kind, Draw& draw) {
  if (kind == 0) return draw.subnormal();
  if (kind == 1) return draw.power(-3, 3);
  return draw.power(-76, -64);
}

inline float signed_zero(int line, Draw& draw) {
  const float zero = draw.below(2) != 0 ? 0.0f : -0.0f;
  if (line % 8 == 0) return -0.0f;  // whole lines of negative zeros
  return draw.below(4) != 0 ? zero : draw.power(-1, 1);
}

inline std::vector<Bf16> to_bf16(const std::vector<float>& values) {
  std::vector<Bf16> out(values.size());
  for (size_t i = 0; i < values.size(); ++i) out[i] = __float2bfloat16(values[i]);
  return out;
}

inline Operands make_operands(Fill fill, int k, uint64_t seed) {
  Draw draw(seed * 16 + uint64_t(fill));
  std::vector<float> a(size_t(64) * k), b(size_t(kColumns) * k);
  if (fill == Fill::kCancelling) {
    const std::vector<int> order = shuffled_indexes(k, draw);
    fill_cancelling(a, 64, k, true, order, draw);
    fill_cancelling(b, kColumns, k, false, order, draw);
  } else {
    for (size_t i = 0; i < a.size() + b.size(); ++i) {
      const bool is_a = i < a.size();
      const size_t at = is_a ? i : i - a.size();
      float& value = is_a ? a[at] : b[at];
      // At one k the two sides are of kinds (subnormal, one), (one, subnormal) or (small, small).
      constexpr int kKinds[3][2] = {{0, 1}, {1, 0}, {2, 2}};
      if (fill == Fill::kNormal) value = draw.bell();
      if (fill == Fill::kSpread) value = draw.power(-30, 30);
      if (fill == Fill::kSubnormal) value = tiny(kKinds[at % k % 3][is_a ? 0 : 1], draw);
      if (fill == Fill::kSignedZeros) value = signed_zero(int(at / k), draw);
    }
  }
  return {k, to_bf16(a), to_bf16(b)};
}

}  // namespace roost::laws
