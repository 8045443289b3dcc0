// Exact values and error bounds of matrix products, as quant_linear's contract states them.
#pragma once

#include <span>
#include <vector>

#include "ops/backend.h"
#include "tests/contract/contract.h"

namespace roost::contract {

// One number that a kernel holds in f32: its exact value, and how far the kernel may be from it.
struct Bounded {
  double exact = 0, error = 0;
};

// The rows of x [.., n_in] as a product with weights of this format reads them.
std::vector<double> as_read(std::vector<double> x, const MatrixValues& w,
                            const ReferenceRules& rules);

// Σ_i x[i]·w[row, i], x as read; the weights as the rule has them.
Bounded product(const MatrixValues& w, int64_t row, std::span<const double> x,
                const ReferenceRules& rules);

// silu(gate)·up, not yet rounded.
Bounded swiglu(const Bounded& gate, const Bounded& up);

// How far the kernel's bf16 of the value can be from the bf16 of the exact value: nothing, unless
// the error can carry the value across a rounding border; then one step.
double rounding_slack(const Bounded& value);

}  // namespace roost::contract
