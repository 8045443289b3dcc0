// gated_delta: the recurrence of a gated delta net, row by row, with its gated norm.
#pragma once

#include <span>

#include "ops/backend.h"
#include "ops/rows.h"
#include "tensor/tensor.h"

namespace roost {

// For each packed row of a sequence and each value head j, with key head i = j / (Hv/Hk) and state
// S [Dk, Dv]:
//   m = Sᵀ·k,  n = Sᵀ·q                 (f32, fused multiply-adds, ascending key dim)
//   d = beta · (v - decay·m)
//   S ← decay·S + k·dᵀ                                             (docs/MODEL.md, gated delta net)
//   y = r(decay·n + d·kq)               which is Sᵀ·q of the new S, as kq = k·q
// and for the n_new rows (not for replayed ones)
//   out = r(y · norm_weight / sqrt(mean(y²) + eps) · silu(z))
// The state behind packed row store_after is written to the slot; later rows leave no trace in it.
//
//   q, k  [P, Hk, Dk], v [P, Hv, Dv]   activation; packed rows, from conv_gates
//   kq    [P, Hk], beta, decay [P, Hv] f32
//   z     [T, Hv·Dv]                   activation
//   norm_weight [Dv]                   f32, the factor itself
//   state [slots, Hv, Dk, Dv]          f32, in and out; zeros at a sequence's start
//   out   [T, Hv·Dv]                   activation
//
// Rounding: y once, out once to the activation type; the state and all else f32.
// Bound, for |k|, |q| <= 1 and beta, decay in [0, 1], as conv_gates makes them, against the float64
// recurrence on the same inputs, behind p rows, in value column c, with
// A = max over these rows of Σ_i |S_ic|·(|k_i| + |q_i|) + |v_c| + sqrt(Σ_i S_ic²):
//   sqrt(Σ_i (S_ic - exact)²) <= p·(Dk + 8)·2^-24·A,  |y - exact| <= 2^-8 |y| + 2p·(Dk + 8)·2^-24·A
// (a row adds its own rounding; decay·(1 - beta·k·kᵀ) enlarges no error). out, given y:
// (2^-8 + (Dv/2 + 16)·2^-24)·|exact|.
struct GatedDelta {
  static constexpr int64_t kKeyDimMax = 256;  // Dk; kernels keep a row's keys in scratch
  Tensor q, k, v, kq, beta, decay;
  Tensor z, norm_weight, state, out;
  std::span<const DeltaSpan> spans;
  float eps = 1e-6f;
};

void check(const GatedDelta& op);  // shapes and types as above; a violation is a bug
void gated_delta_reference(const GatedDelta& op, const ReferenceRules& rules);
void gated_delta_cpu(const GatedDelta& op, CpuContext& context);
size_t gated_delta_workspace_bytes(int n_threads);

}  // namespace roost
