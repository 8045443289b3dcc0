// draft_conv: the input-dependent convolution along a draft block.
#pragma once

#include <span>

#include "ops/backend.h"
#include "ops/rows.h"
#include "tensor/tensor.h"

namespace roost {

// For each row t of a block and channel c of group g = c / group: (docs/DRAFTER.md, forward pass)
//   out[t, c] = Σ_{o < Kc} (base[side, o, c] + dynamic[t, (side·Kc + o)·G + g]) · x[t - o, c]
// where rows before the block's first are zeros: neither the context nor another block is seen.
//
//   x        [T, h]         activation
//   dynamic  [T, 2·Kc·G]    f32, G = h / group
//   base     [2, Kc, h]     f32
//   out      [T, h]         activation, not x; rows of no span are not written
//   side     0: in front of a sublayer, 1: behind it
//
// Rounding: out once to the activation type; coefficients and sum in f32.
// Bound: |out - exact| <= 2^-8 |exact| + (Kc + 2)·2^-24·Σ_o (|base| + |dynamic|)·|x|
struct DraftConv {
  Tensor x, dynamic, base, out;
  int64_t group = 0;
  int side = 0;
  std::span<const DraftSpan> spans;
};

void check(const DraftConv& op);  // shapes and types as above; a violation is a bug
void draft_conv_reference(const DraftConv& op, const ReferenceRules& rules);
void draft_conv_cpu(const DraftConv& op, CpuContext& context);

}  // namespace roost
