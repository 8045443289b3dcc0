// qk_norm_rope_append: queries and keys are normalized and rotated, keys and values enter the
// pages.
#pragma once

#include <span>

#include "ops/backend.h"
#include "ops/rows.h"
#include "tensor/tensor.h"

namespace roost {

// Per row and head, u one head of the query or the key:            (docs/MODEL.md, gated attention)
//   n = u · weight / sqrt(mean(u²) + eps)                                        f32
//   rotated in pairs (i, i + R/2), i < R/2, with (c, s) = rope[t, i]:
//     n'[i] = n[i]·c - n[i+R/2]·s,   n'[i+R/2] = n[i+R/2]·c + n[i]·s;   dims >= R pass through
//   q[t, head] = r(n');  K page slot of the row's token ← r(n');  V page slot ← v, as it is
//
//   q_gate   [T, nh, 2·D]          activation; per head D query then D gate values (not read)
//   k, v     [T, nkv·D]            activation
//   q_weight, k_weight [D]         f32, the factors themselves
//   rope     [T, R/2, 2]           f32: cos, sin of the row's position, the axis already chosen per
//                                  frequency
//   q        [T, nh, D]            activation
//   k_pages, v_pages [pages, nkv, 64, D]  activation type; only the rows' own slots are written
// q, q_gate and q_weight are absent together: keys and values alone.
//
// Pages of codes (ops/kv_codes.h): k_pages [pages, nkv, 64, D] and v_pages [pages, nkv, D, 64] i8,
// k_scales and v_scales [pages, nkv, 64] f32, one for each token and head:
//   s = max_i |u_i| / 127,  code_i = round(u_i / s);  u: n' in f32 of the key, v of the value
// A head that is not finite has a scale that is not; one below 2^-100 is zero.
//
// Rounding: once, to the activation type and to the page type.
// Bound: |q - exact| <= (2^-8 + (D/2 + 8)·2^-24)·max(|n[i]|, |n[i+R/2]|)·1.5
//        |code·s - exact| <= s/2·(1 + 2^-12) + the same without 2^-8 + 2^-100
struct QkNormRopeAppend {
  Tensor q_gate, k, v, q_weight, k_weight, rope;
  Tensor q, k_pages, v_pages, k_scales, v_scales;
  std::span<const RowSpan> spans;
  float eps = 1e-6f;

  int64_t n_heads() const { return q.exists() ? q.dim(1) : 0; }  // nh
  bool has_codes() const { return k_scales.exists(); }
};

void check(const QkNormRopeAppend& op);  // shapes and types as above; a violation is a bug
void qk_norm_rope_append_reference(const QkNormRopeAppend& op, const ReferenceRules& rules);
void qk_norm_rope_append_cpu(const QkNormRopeAppend& op, CpuContext& context);

}  // namespace roost
