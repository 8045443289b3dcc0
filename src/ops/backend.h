// What the kernels of a backend are handed besides an op's arguments.
#pragma once

#include "device/arena.h"
#include "device/cpu/thread_pool.h"
#include "tensor/dtype.h"

namespace roost {

// How a product's inputs are represented: part of quant_linear's and moe_experts' contracts, the
// same for any number of rows; the float64 reference takes it as an argument.
enum class ProductRule : uint8_t {
  kExact,      // activations and codes as they are
  kAligned16,  // affine weights only: a row's activations become 16-bit integers on the scale of
               // its largest exponent. e = smallest integer >= -100 with max|x[t, :]| < 2^e; x' =
               // round(x·2^(15-e))·2^(e-15), ties to even, |x'·2^(15-e)| <= 32767. bf16 values of
               // magnitude >= 2^(e-8) are kept exactly. A row that holds an infinity or NaN has NaN
               // outputs.
  kRounded16,  // activations as they are; weights scale·code + bias rounded once to bf16, but for
               // scales in f32: bf16(f32(scale·code + bias)). Plain f32 ones rounded once.
};

// The order of a product's sum, for backends that multiply in k16 steps (docs/KERNELS.md, K-tree):
// a property of the matrix, the same for any number of rows.
enum class ProductTree : uint8_t {
  kChain,     // ascending steps into one accumulator
  kQuarters,  // four chains over the quarters of n_in, (P0 + P1) + (P2 + P3); a chain where 256
              // does not divide n_in
};

// The float64 references as a backend. rounding: activations, pages and tails are bf16 and every
// rounding point of the contracts is kept; without it everything is float64 and nothing is rounded.
struct ReferenceRules {
  bool rounding = true;
  ProductRule product = ProductRule::kExact;
  DType activation() const { return rounding ? DType::kBF16 : DType::kF64; }
};

// A CPU kernel runs on the pool and may take scratch from the workspace, within a scope.
struct CpuContext {
  ThreadPool& pool;
  Arena& workspace;
};

}  // namespace roost
