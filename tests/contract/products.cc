// Bounds of products, summed in float64 next to the exact values.
#include "tests/contract/products.h"

#include <cmath>

#include "ops/reference.h"

namespace roost::contract {

std::vector<double> as_read(std::vector<double> x, const MatrixValues& w,
                            const ReferenceRules& rules) {
  const bool is_affine = w.format.format == QuantMatrix::Format::kAffine;
  if (rules.product != ProductRule::kAligned16 || !is_affine) return x;
  const auto n_in = static_cast<size_t>(w.n_in);
  for (size_t at = 0; at < x.size(); at += n_in) align16(std::span(x).subspan(at, n_in));
  return x;
}

namespace {

// Under ProductRule::kRounded16, on the matrix unit.
Bounded rounded_product(const MatrixValues& w, int64_t row, std::span<const double> x) {
  double sum = 0, size = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    double weight = w.at(row, static_cast<int64_t>(i));
    if (w.format.dtype == DType::kF32) weight = static_cast<double>(static_cast<float>(weight));
    const double part = x[i] * static_cast<double>(f32_from_bf16(bf16_from_f64(weight)));
    sum += part;
    size += std::abs(part);
  }
  const double n_steps = static_cast<double>(w.n_in) / 16 + 3;
  return {sum, n_steps * (17 * 0x1p-25 + 0x1p-23) * size};
}

}  // namespace

Bounded product(const MatrixValues& w, int64_t row, std::span<const double> x,
                const ReferenceRules& rules) {
  if (rules.product == ProductRule::kRounded16) return rounded_product(w, row, x);
  const bool is_plain = w.format.format == QuantMatrix::Format::kPlain;
  const auto first = static_cast<size_t>(row * w.n_in), group = static_cast<size_t>(w.format.group);
  double sum = 0, size = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    if (is_plain) {
      sum += x[i] * w.plain[first + i];
      size += std::abs(x[i] * w.plain[first + i]);
      continue;
    }
    const size_t g = (first + i) / group;
    const double scaled = w.scales[g] * w.codes[first + i];
    sum += x[i] * (scaled + w.biases[g]);
    size += std::abs(x[i]) * (std::abs(scaled) + std::abs(w.biases[g]));
  }
  const auto n_in = static_cast<double>(w.n_in);
  const double share = is_plain ? (n_in / 8 + 12) * 0x1p-24 : (n_in / 64 + 12) * 0x1p-23;
  return {sum, share * size};
}

Bounded swiglu(const Bounded& gate, const Bounded& up) {
  const double silu_gate = silu(gate.exact);
  const double exact = silu_gate * up.exact;
  // silu grows by at most 1.1 a unit; its own f32 arithmetic costs a few units in the last place,
  // and where e^-g overflows, what is left of g·e^g.
  const double silu_error = 1.1 * gate.error + 0x1p-20 * std::abs(silu_gate) + 0x1p-100;
  return {exact, silu_error * (std::abs(up.exact) + up.error) + std::abs(silu_gate) * up.error};
}

double rounding_slack(const Bounded& value) {
  if (bf16_from_f64(value.exact - value.error) == bf16_from_f64(value.exact + value.error))
    return 0;
  return 0x1p-7 * (std::abs(value.exact) + value.error) + value.error;
}

}  // namespace roost::contract
