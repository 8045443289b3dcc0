// A family of integer models of the tensor core's sum, one of which should give its bits: products
// are exact, aligned to the largest exponent, cut to a fixed number of fraction bits, added as
// integers and rounded once to f32.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

namespace roost::laws {

enum class Cut { kTowardZero, kDown, kNearest };

inline const char* name_of(Cut cut) {
  constexpr const char* kNames[] = {"toward zero", "down", "to nearest even"};
  return kNames[int(cut)];
}

// value * 2^-shift, rounded; shift may be negative.
inline int64_t shifted(int64_t value, int shift, Cut cut) {
  if (shift <= 0) return value * (int64_t(1) << -shift);
  if (shift > 62) return cut == Cut::kDown && value < 0 ? -1 : 0;
  const int64_t floor = value >> shift;
  const int64_t rest = value - floor * (int64_t(1) << shift);
  if (rest == 0 || cut == Cut::kDown) return floor;
  if (cut == Cut::kTowardZero) return value < 0 ? floor + 1 : floor;
  const int64_t half = int64_t(1) << (shift - 1);
  return floor + (rest > half || (rest == half && (floor & 1) != 0) ? 1 : 0);
}

inline int log2_floor(uint64_t value) {
  return 63 - __builtin_clzll(value);
}

struct AccumulatorModel {
  int fraction_bits = 25;  // kept below the largest exponent
  int n_wide = 16;         // products added in one aligned sum
  Cut addend = Cut::kTowardZero;
  Cut result = Cut::kTowardZero;
  bool is_exponent_of_value = false;   // align by floor(log2|ab|), or by the sum of the exponents
  bool is_accumulator_aligned = true;  // the accumulator is an addend of the sum, or added after it
  bool do_zeros_align = false;         // a zero product still raises the common exponent

  // The accumulator after one k16 step.
  float step(float accumulator, const float* a, const float* b) const {
    for (int k = 0; k < 16; k += n_wide) {
      const float sum = wide_sum(is_accumulator_aligned ? accumulator : 0.0f, a + k, b + k, n_wide);
      accumulator = is_accumulator_aligned ? sum : accumulator + sum;
    }
    return accumulator;
  }

  std::string text() const {
    return "fraction bits " + std::to_string(fraction_bits) + ", products in one sum " +
           std::to_string(n_wide) + ", addends cut " + name_of(addend) + ", result rounded " +
           name_of(result) + ", aligned by " +
           (is_exponent_of_value ? "the product's own exponent" : "the sum of the exponents") +
           ", accumulator " + (is_accumulator_aligned ? "inside the sum" : "added after the sum") +
           ", zero products " + (do_zeros_align ? "raise" : "do not raise") +
           " the common exponent";
  }

 private:
  struct Term {
    int64_t significand;
    int unit;      // value = significand * 2^unit
    int exponent;  // for the alignment
  };

  // Subnormals keep the least exponent and a short significand, as the hardware's inputs have them.
  static Term decoded(float value, int n_bits) {
    if (value == 0.0f) return {0, -126 - n_bits, -126};
    const int exponent = std::max(std::ilogb(value), -126);
    return {int64_t(std::ldexp(double(value), n_bits - exponent)), exponent - n_bits, exponent};
  }

  Term product(float a, float b) const {
    const Term x = decoded(a, 7), y = decoded(b, 7);
    Term p{x.significand * y.significand, x.unit + y.unit, x.exponent + y.exponent};
    if (is_exponent_of_value && p.significand != 0)
      p.exponent = p.unit + log2_floor(uint64_t(std::llabs(p.significand)));
    return p;
  }

  float wide_sum(float accumulator, const float* a, const float* b, int n) const {
    Term terms[17];
    terms[n] = decoded(accumulator, 23);
    for (int i = 0; i < n; ++i) terms[i] = product(a[i], b[i]);
    bool is_empty = true;
    int largest = 0;
    for (int i = 0; i <= n; ++i) {
      if (terms[i].significand == 0 && !do_zeros_align) continue;
      largest = is_empty ? terms[i].exponent : std::max(largest, terms[i].exponent);
      is_empty = false;
    }
    if (is_empty) return 0.0f;
    const int unit = largest - fraction_bits;
    int64_t sum = 0;
    for (int i = 0; i <= n; ++i) sum += shifted(terms[i].significand, unit - terms[i].unit, addend);
    if (sum == 0) return 0.0f;
    const int last = std::max(unit + log2_floor(uint64_t(std::llabs(sum))) - 23, -149);
    return float(std::ldexp(double(shifted(sum, last - unit, result)), last));
  }
};

inline std::vector<AccumulatorModel> all_models() {
  std::vector<AccumulatorModel> models;
  constexpr Cut kCuts[] = {Cut::kTowardZero, Cut::kDown, Cut::kNearest};
  for (int bits = 21; bits <= 30; ++bits)
    for (const int n_wide : {16, 8, 4})
      for (const Cut addend : kCuts)
        for (const Cut result : {Cut::kTowardZero, Cut::kNearest})
          for (int flags = 0; flags < 8; ++flags)
            models.push_back({bits, n_wide, addend, result, (flags & 1) != 0, (flags & 2) == 0,
                              (flags & 4) != 0});
  return models;
}

}  // namespace roost::laws
