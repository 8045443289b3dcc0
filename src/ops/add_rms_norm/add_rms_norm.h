// add_rms_norm: the residual stream takes a layer's output, then is normalized for the next one.
#pragma once

#include "ops/backend.h"
#include "tensor/tensor.h"

namespace roost {

// The outputs of a row's experts, summed in the expert tree (docs/KERNELS.md, expert tree):
//   quarter q holds the experts with id in [q·E/4, (q+1)·E/4);  P_q = Σ weight·y in f32 (fused
//   multiply-adds from zero), ascending id; routed = (P0 + P1) + (P2 + P3);
//   sum = routed + shared_gate·y_shared (fused; shared_gate absent: no shared expert).
// E that 4 does not divide: quarter q holds ids in [ceil(q·E/4), ceil((q+1)·E/4)).
struct ExpertSum {
  Tensor y;  // [T, K+1, h] activation: one row per chosen expert, the shared expert last; [T, K, h]
             // without one
  Tensor ids;          // [T, K] i32, ascending in each row
  Tensor weights;      // [T, K] f32
  Tensor shared_gate;  // [T] f32, or none
  int n_experts = 0;
};

// x[t]   <- r(x[t] + add[t])         add: a tensor, or r(expert sum); none: x is unchanged
// tap[t, tap_first + i] <- x[t, i]   if there is a tap; its other columns stay
// out[j] <- r(x[s] · weight / sqrt(mean(x[s]²) + eps)), s = rows[j]; without rows s = j
//                                                                   (docs/MODEL.md, norms)
//
//   x       [T, h]   activation, updated in place
//   add     [T, h]   activation, or absent
//   experts          used when experts.y exists; add must then be absent
//   weight  [h]      f32, the factor itself (1 already added)
//   rows    [N]      i32, or absent (N = T)
//   out     [N, h]   activation; absent: no norm
//   tap     [T, w]   activation, or absent; tap_first + h <= w
//
// Rounding (r): expert sum once, x once, out once to the activation type; sums in f32.
// Bound: |out - exact| <= (2^-8 + (h/2 + 8)·2^-24) |exact| given the same rounded x.
struct AddRmsNorm {
  Tensor x, add;
  ExpertSum experts;
  Tensor weight, rows, out, tap;
  int64_t tap_first = 0;
  float eps = 1e-6f;
};

void check(const AddRmsNorm& op);  // shapes and types as above; a violation is a bug
void add_rms_norm_reference(const AddRmsNorm& op, const ReferenceRules& rules);
void add_rms_norm_cpu(const AddRmsNorm& op, CpuContext& context);

}  // namespace roost
