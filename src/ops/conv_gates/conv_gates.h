// conv_gates: causal convolution, activation and gates in front of the gated-delta recurrence.
#pragma once

#include <span>

#include "ops/backend.h"
#include "ops/rows.h"
#include "tensor/tensor.h"

namespace roost {

// For each packed row p of a sequence (see DeltaSpan; rows before the first come from the conv
// tail), with M[p] its raw qkv row:                                (docs/MODEL.md, gated delta net)
//   c[p, ch] = r(silu(Σ_{i=0..3} w[ch, i] · M[p-3+i, ch]))                  silu in f32
//   q, k, v  = the channels [0, Kd), [Kd, 2Kd), [2Kd, C) of c
//   q̂ = r(q / sqrt(Σ q² + 1e-6) / sqrt(Dk)),  k̂ = r(k / sqrt(Σ k² + 1e-6))    per key head
//   kq[p, head] = Σ k̂·q̂                                                      f32
//   beta = sigmoid(b),  decay = exp(-exp(a_log)·softplus(a + dt_bias))         f32
// and behind packed row store_after the tail becomes the last three raw rows, and the raw rows, b
// and a of later packed rows go to the row store, in order from its row 0.
//
//   qkv          [T, C]          activation, C = 2·Hk·Dk + Hv·Dv; raw rows, before the convolution
//   b, a         [T, Hv]         f32
//   conv_weight  [C, 4]          f32; tap 3 is the current row
//   a_log, dt_bias [Hv]          f32
//   tail         [slots, 3, C]   activation, in and out; oldest row first; zeros at the start of a
//                                sequence
//   store_qkv    [slots, R, C]   activation, in and out: the row store of R rows
//   store_b, store_a [slots, R, Hv]  f32, in and out; the three stores are absent together, when no
//                                span replays or keeps rows
//   q, k         [P, Hk, Dk]     activation; P packed rows
//   v            [P, Hv, Dv]     activation
//   kq           [P, Hk]         f32
//   beta, decay  [P, Hv]         f32
//
// Rounding: c, q̂, k̂ once to the activation type; all else f32.
// Bound: c: 2^-8|c| + 8·2^-24·Σ|w·M|; q̂, k̂: (2^-8 + 2^-16)·|exact| given the rounded c;
//   kq: (Dk/2 + 8)·2^-24·Σ|k̂·q̂|; beta: 2^-18 relative; decay: 2^-20·(1 + |ln decay|) relative, for
//   an error of the exponent counts by its size. Below 2^-126 both may be 0.
struct ConvGates {
  Tensor qkv, b, a;
  Tensor conv_weight, a_log, dt_bias;
  Tensor tail, store_qkv, store_b, store_a;
  std::span<const DeltaSpan> spans;
  Tensor q, k, v, kq, beta, decay;
};

void check(const ConvGates& op);  // shapes and types as above; a violation is a bug
void conv_gates_reference(const ConvGates& op, const ReferenceRules& rules);
void conv_gates_cpu(const ConvGates& op, CpuContext& context);

}  // namespace roost
