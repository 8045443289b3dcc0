// embed: one row of the embedding matrix for each token.
#pragma once

#include "base/result.h"
#include "ops/backend.h"
#include "tensor/quant_layout.h"
#include "tensor/tensor.h"

namespace roost {

// out[t, i] = table[token[t], i]                                   (docs/MODEL.md, embedding)
//
//   tokens  [T]      i32, 0 <= token < table.n_out
//   table   [V, h]   any QuantMatrix
//   out     [T, h]   activation
//
// Rounding: scale·code + bias in f32 (fused), out once to the activation type.
// Bound: |out - exact| <= 2^-8 |exact| + 2^-23 (|scale·code| + |bias|)
struct Embed {
  Tensor tokens;
  const QuantMatrix* table = nullptr;
  Tensor out;
};

void check(const Embed& op);  // shapes and types as above; a violation is a bug
void embed_reference(const Embed& op, const ReferenceRules& rules);
void embed_cpu(const Embed& op, CpuContext& context);

}  // namespace roost
