// attention: causal attention over pages, with the output gate.
#pragma once

#include <span>

#include "ops/backend.h"
#include "ops/rows.h"
#include "tensor/tensor.h"

namespace roost {

// Keys of one split for a row at position p (its index in the sequence). Splits lie on absolute
// positions, so the order of a row's arithmetic depends on p alone (docs/KERNELS.md, key tree).
inline int32_t keys_per_split(int32_t p) {
  return p < 32'768 ? 512 : p < 65'536 ? 1'024 : p < 131'072 ? 2'048 : 4'096;
}

// For each row (position p), query head j, KV head g = j / (nh/nkv):
//                                                          (docs/MODEL.md, gated attention)
//   s_t = (q·K_t)·scale·log2(e) for t <= p;  probabilities 2^(s_t - m)
//   o = Σ_t P_t·V_t / Σ_t P_t,  out[t, j] = r(r(o) · sigmoid(gate))
// Key tree: splits of keys_per_split(p) keys, ascending; inside a split tiles of 64 keys (one page)
// with a running maximum m, sum l and accumulator O; P = r(2^(s - m)) enters both l and O; splits
// are merged in ascending order.
//
//   q        [T, nh, D]            activation, normalized and rotated
//   q_gate   [T, nh, 2·D]          activation; the gate is the second half of each head
//   k_pages, v_pages [pages, nkv, 64, D]  page type; keys of the running rows are read here too
//   out      [T, nh·D]             activation
// Pages of codes (ops/kv_codes.h): K_t = code·ks_t and V_t = code·vs_t. Scales act outside the
// products: ks_t on the score, and O takes r(2^(s - m)·vs_t)·code, while l takes P as above.
//
// Rounding: P, o, out once to the activation type; scores, sums and O in f32.
// Bound: |o - exact| <= 2^-7·Σ P|V|/ΣP + (D·(1 + A) + p/8 + 512)·2^-23·max|V| with
// A = max_t Σ_i |q_i·K_ti|·scale·log2(e): an error of a score is one of its probability's exponent,
// and of the chain of a score all terms count, not only their sum. Then out, given o: 2^-8 relative
// for each of its two roundings.
struct Attention {
  static constexpr int64_t kHeadDimMax = 512;     // D, a multiple of 16
  static constexpr int64_t kGroupHeadsMax = 64;   // nh/nkv
  static constexpr int64_t kTokensMax = 1 << 18;  // of a sequence: at most 64 splits a row

  Tensor q, q_gate, k_pages, v_pages, k_scales, v_scales, out;
  std::span<const RowSpan> spans;
  float scale = 0;  // D^-1/2

  bool has_codes() const { return k_scales.exists(); }
};

void check(const Attention& op);  // shapes and types as above; a violation is a bug
void attention_reference(const Attention& op, const ReferenceRules& rules);
void attention_cpu(const Attention& op, CpuContext& context);
size_t attention_workspace_bytes(int64_t head_dim, int64_t kv_heads, int64_t rows_max,
                                 int n_threads);

}  // namespace roost
