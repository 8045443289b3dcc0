// What the kernels of a backend are handed besides an op's arguments.
#pragma once

#include "device/arena.h"
#include "device/cpu/thread_pool.h"
#include "tensor/dtype.h"

namespace roost {

// How a product's inputs are represented (docs/KERNELS.md, product rules, to the bit): part of
// quant_linear's and moe_experts' contracts, the same for any number of rows; the float64 reference
// takes it as an argument.
enum class ProductRule : uint8_t {
  kExact,      // activations and codes as they are
  kAligned16,  // activations as 16-bit integers on the scale of their row; affine weights only
  kRounded16,  // weights rounded once to bf16
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
