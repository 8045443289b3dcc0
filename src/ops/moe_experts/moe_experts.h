// moe_experts: the chosen experts of every row, and the shared expert of all rows.
#pragma once

#include <span>

#include "ops/backend.h"
#include "ops/quant_linear/quant_linear.h"
#include "tensor/quant_layout.h"
#include "tensor/tensor.h"

namespace roost {

// y[t, s] = r((r(silu(x·Gᵀ) ⊙ (x·Uᵀ)))·Dᵀ) with the matrices of expert ids[t, s]; slot K is the
// shared expert. The sum over slots is add_rms_norm's (ExpertSum). A row's result depends on the
// row and the expert only; each distinct expert's weights are read once.
//                                                                   (docs/MODEL.md, experts)
//
//   x        [T, h]          activation
//   ids      [T, K]          i32, in [0, experts.size())
//   experts  E × GatedMlp    [mi, h], [mi, h], [h, mi], all experts of one shape
//   shared   GatedMlp or null
//   y        [T, K+1, h]     activation; [T, K, h] without a shared expert
//
// Order, rounding and bound of each product: quant_linear's.
struct MoeExperts {
  Tensor x, ids;
  std::span<const GatedMlp> experts;
  const GatedMlp* shared = nullptr;
  Tensor y;
};

void check(const MoeExperts& op);  // shapes and types as above; a violation is a bug
void moe_experts_reference(const MoeExperts& op, const ReferenceRules& rules);
void moe_experts_cpu(const MoeExperts& op, CpuContext& context);

// The largest call that a workspace must do for.
struct MoeSizes {
  int64_t rows = 0, hidden = 0;              // T, h
  int64_t width = 0;                         // the larger of mi and si
  int64_t experts = 0, experts_per_row = 0;  // E, K
};
size_t moe_experts_workspace_bytes(const MoeSizes& sizes, int n_threads);

}  // namespace roost
