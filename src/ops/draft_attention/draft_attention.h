// draft_attention: the rows of a draft block attend to the drafter's context and to each other.
#pragma once

#include <span>

#include "ops/backend.h"
#include "ops/rows.h"
#include "tensor/tensor.h"

namespace roost {

// For row j of a block at position p + j, query head i, KV head g = i / (nq/nkv):
//                                                                  (docs/DRAFTER.md, forward pass)
//   q̂, k̂ = rot(u · weight / sqrt(mean(u²) + eps)), u a head of q or k; pairs (i, i + d/2) rotate
//   keys: context tokens c in [context_begin, p) with c > p + j - window (window 0: all), from the
//         pages as they lie there; then the block's own rows j', with is_causal only j' <= j
//   out[j, i] = r(Σ P·V / Σ P),  P = 2^(q̂·K·scale·log2(e) - m)
//
//   q        [T, nq·d]            activation, as projected
//   k, v     [T, nkv·d]           activation, as projected; of the block's rows
//   q_weight, k_weight [d]        f32
//   rope     [T, d/2, 2]          f32: cos, sin of the row's position
//   k_pages, v_pages [pages, nkv, 64, d]  page type; normalized and rotated keys of the context
//   out      [T, nq·d]            activation
//
// Order: tiles of 64 context tokens on absolute positions, ascending, then the block; a running
// maximum. So a row's bits do not depend on other blocks, on pages' places or on threads.
// Rounding: out once; q̂, k̂ of the block, scores, P and sums in f32.
// Bound, with A = max over keys of Σ_i q̃_i·k̃_i·scale·log2(e), where q̃_i and k̃_i are the sums of
// the two magnitudes that a rotation mixes (|K_i| itself for context), and n keys:
//   |out - exact| <= 2^-8 |exact| + ((2·d + 40)·A + 2·n + 64)·2^-23·max|V|
struct DraftAttention {
  static constexpr int64_t kGroupHeadsMax = 64;  // nq/nkv
  static constexpr int64_t kDimMax = 256;        // d
  Tensor q, k, v, q_weight, k_weight, rope;
  Tensor k_pages, v_pages, out;
  std::span<const DraftSpan> spans;
  int64_t window = 0;
  bool is_causal = false;
  float scale = 0;  // d^-1/2
  float eps = 1e-6f;

  int64_t dim() const { return k_pages.dim(3); }
  int64_t kv_heads() const { return k_pages.dim(1); }
  int64_t heads_per_kv() const { return q.dim(1) / k.dim(1); }
};

void check(const DraftAttention& op);  // shapes and types as above; a violation is a bug
void draft_attention_reference(const DraftAttention& op, const ReferenceRules& rules);
size_t draft_attention_workspace_bytes(int64_t heads_per_kv, int64_t head_dim, int n_threads);
void draft_attention_cpu(const DraftAttention& op, CpuContext& context);

}  // namespace roost
