// sample: the next token of each row, drawn by key (law 2).
#pragma once

#include <cstdint>
#include <span>

#include "ops/backend.h"
#include "tensor/tensor.h"

namespace roost {

struct SampleParams {
  double temperature = 0;  // 0: greedy
  int32_t top_k = 0;       // 0: off
  double top_p = 1;        // 1: off
  double min_p = 0;        // 0: off
  uint64_t seed = 0;
  int64_t position = 0;  // index, in the sequence, of the token being chosen (prompt included)
};

// Per row, on its logits z of ids [0, n_tokens) (ids behind are padding and never drawn), in this
// order (docs/SERVER.md, sampling), float64:
//   temperature 0: the largest z, ties to the lower id.
//   else z/T; top_k: the k largest, ties to the lower id; top_p: on the softmax of what is left, in
//   falling order (ties: lower id first), the shortest prefix whose sum >= p, at least one; min_p:
//   of these, those with probability >= min_p times the largest; then argmax of z/T + G(seed,
//   position, id), ties to the lower id, with the Gumbel noise
//     G = -ln(-ln u), u = (x >> 11)·2^-53 + 2^-54,
//     x = mix(mix(mix(seed + 0x9E3779B97F4A7C15) ^ (position·0xD1B54A32D192ED03)) ^ id),
//     mix(x): x ^= x>>30; x *= 0xBF58476D1CE4E5B9; x ^= x>>27; x *= 0x94D049BB133111EB; x ^= x>>31
// Probabilities are compared as w = e^((z - z_max)/T): prefix sums of w, in falling order, with
// p·S, and w with min_p. S is the sum of w over what is left: partial sums of ids [4096·i,
// 4096·(i+1)), ids ascending, added in ascending order. A logit of -inf is never drawn, and an id
// that the row's mask does not allow counts as one of -inf.
//
//   logits  [N, V]  f32
//   masks   per row the words of a mask in host memory, ceil(n_tokens / 32) of them: bit id % 32 of
//           word id / 32 is set where the id may be drawn; null: all may. No masks at all: the same
//           for every row
//   tokens  [N]     i32; -1 where a logit of the row is NaN or +inf, masked or not, or all that are
//           allowed are -inf (the step reports it)
//
// Exact: every implementation gives the same token for the same logits.
// Workspace of the CPU kernel: 12·n_tokens bytes a thread.
struct Sample {
  Tensor logits;
  std::span<const SampleParams> params;  // N
  int64_t n_tokens = 0;
  Tensor tokens;
  std::span<const uint32_t* const> masks;  // N or none
};

double gumbel_noise(uint64_t seed, int64_t position, int32_t id);

void check(const Sample& op);  // shapes and types as above; a violation is a bug
void sample_reference(const Sample& op, const ReferenceRules& rules);
size_t sample_workspace_bytes(int64_t n_tokens_max, int n_threads);
void sample_cpu(const Sample& op, CpuContext& context);

}  // namespace roost
