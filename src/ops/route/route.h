// route: the experts of each row and their weights.
#pragma once

#include "ops/backend.h"
#include "tensor/tensor.h"

namespace roost {

// The K largest logits of a row, ties to the lower id; weights are the softmax over all E logits,
// divided by the sum of the chosen ones when normalize (then equal to the softmax over the chosen).
//                                                                   (docs/MODEL.md, experts)
//   logits       [T, E]  f32
//   shared_logit [T, 1]  f32, or absent
//   ids          [T, K]  i32, ascending
//   weights      [T, K]  f32
//   shared_gate  [T]     f32: sigmoid(shared_logit), or absent
//
// Order: maximum, then exponentials summed in ascending id. Bound: weights 2^-18 relative, +
// 2^-126. Non-finite logits: ids 0..K-1 and weights NaN, which the step reports for that row.
struct Route {
  Tensor logits, shared_logit, ids, weights, shared_gate;
  bool normalize = true;
};

void check(const Route& op);  // shapes and types as above; a violation is a bug
void route_reference(const Route& op, const ReferenceRules& rules);
void route_cpu(const Route& op, CpuContext& context);

}  // namespace roost
