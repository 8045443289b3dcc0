// draft_select: the drafted tokens of a block, chosen from left to right.
#pragma once

#include <span>

#include "ops/backend.h"
#include "ops/sample/sample.h"
#include "tensor/quant_layout.h"
#include "tensor/tensor.h"

namespace roost {

// Rows [first_row, first_row + n_rows) are the mask rows of one block, in order; anchor is the
// token in front of them. params are those of the sequence's own draws; position: index of the
// token that the first of the rows proposes.
struct DraftWalk {
  int32_t first_row = 0;
  int32_t n_rows = 0;
  int32_t anchor = 0;
  SampleParams params;
};

// For row j of a walk, with a the token chosen for row j - 1 (the anchor for row 0), in float64:
//                                                              (docs/DRAFTER.md, forward pass)
//   candidates: the k largest logits of ids [0, n_tokens), falling, ties: lower id first
//   U(b) = multiplier·logit(b);  softcap > 0: U = softcap·tanh(U / softcap)
//   score(b) = U(b) + Σ_r A[a, r]·h[j, r]·S[b, r], r ascending; without codebooks U(b) alone
//   temperature 0: the largest score, ties to the earlier candidate
//   else of the candidates in falling order of score (ties: earlier first) what top_k, top_p and
//   min_p leave, as in sample but with the softmax over the candidates, the one with the largest
//   score/T + G(seed, position + j, b): the noise that decides among the target's own tokens.
// A draft is only a guess, so nothing depends on it; but two calls with the same arguments guess
// the same.
//
//   logits  [N, V]   f32
//   hidden  [N, R]   f32, or absent with both codebooks
//   predecessor A, successor S [V, R]  any QuantMatrix
//   ids     [N, k]   i32, candidates;  scores [N, k] f32, rounded once
//   tokens  [N]      i32
// A row that holds a NaN or +inf among its ids, or -inf among its candidates, or a score that is
// not finite, and the rows of its walk behind it have tokens and ids -1 and scores NaN.
struct DraftSelect {
  static constexpr int64_t kCandidatesMax = 64;
  Tensor logits, hidden;
  const QuantMatrix* predecessor = nullptr;
  const QuantMatrix* successor = nullptr;
  std::span<const DraftWalk> walks;
  int64_t n_tokens = 0;
  double multiplier = 1, softcap = 0;
  Tensor ids, scores, tokens;
};

void check(const DraftSelect& op);  // shapes and types as above; a violation is a bug
void draft_select_reference(const DraftSelect& op, const ReferenceRules& rules);
void draft_select_cpu(const DraftSelect& op, CpuContext& context);

}  // namespace roost
