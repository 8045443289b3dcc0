// quant_linear: products with weight matrices, straight from the packing of the checkpoint.
#pragma once

#include <array>

#include "ops/backend.h"
#include "tensor/quant_layout.h"
#include "tensor/tensor.h"

namespace roost {

// y_p = x · W_pᵀ for up to four matrices of one input, or one SwiGLU pair:
//   kNone:    parts[p].y[t, r] = Σ_i x[t, i] · W_p[r, i]
//   kSwiGlu:  parts[0] is the gate, parts[1] the up matrix (its y is absent);
//             parts[0].y[t, r] = silu(g) · u, silu(g) = g / (1 + e^-g)
//
//   x  [T, n_in]   activation
//   y  [T, n_out]  activation, or f32 for a part whose result is not rounded (kNone only)
//
// Order of arithmetic: a function of (format, bits, group, n_in) and of the instruction set alone.
// Rounding: f32 accumulation; y once to its type (SwiGLU: the product once).
// Bound, kNone, with A = Σ_i |x'_i|·(|scale·code| + |bias|): affine
//   |y - ref| <= 2^-8 |ref| (0 for f32) + (n_in/64 + 12)·2^-23·A, ref by the same rule; plain:
//   (n_in/8 + 12)·2^-24·A.
// Under kRounded16 the sums are the matrix unit's: a k16 step keeps 25 bits below the largest of
// its 16 products and the accumulator, and stores 24. With B = Σ_i |x_i·w'_i|, w' the rounded
// weights:
//   |y - ref| <= 2^-8 |ref| (0 for f32) + (n_in/16 + 3)·(17·2^-25 + 2^-23)·B, whatever the tree.
enum class Epilogue : uint8_t { kNone, kSwiGlu };

struct LinearPart {
  const QuantMatrix* w = nullptr;
  Tensor y;
  ProductTree tree = ProductTree::kChain;  // of a pair: parts[0]'s
};

struct QuantLinear {
  static constexpr int kPartsMax = 4;
  Tensor x;
  std::array<LinearPart, kPartsMax> parts{};
  int n_parts = 1;
  Epilogue epilogue = Epilogue::kNone;
};

void check(const QuantLinear& op);  // shapes and types as above; a violation is a bug
void quant_linear_reference(const QuantLinear& op, const ReferenceRules& rules);
size_t quant_linear_workspace_bytes(int64_t n_in_max, int64_t rows_max, int n_threads);
void quant_linear_cpu(const QuantLinear& op, CpuContext& context);

}  // namespace roost
