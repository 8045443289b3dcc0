// The CUDA kernels under the contract harness: a call's tensors, with their guards, are copied to
// the card, run there, and copied back with whatever was written around them.
#pragma once

#include <string>

#include "ops/ops.h"
#include "tests/contract/contract.h"

namespace roost::contract {

// Scratch is filled with NaN before each call. Machine 1 runs as many blocks as a kernel asks for,
// machine 2 three at a time, each walking over many items, and its weights lie in bricks where such
// a form exists: kernels for bricks must give the bits of those for the checkpoint's packing.
class CudaMachine {
 public:
  explicit CudaMachine(int which) : blocks_max_(which == 1 ? 1 << 20 : 3) {}

  template <class Op>
  Backend<Op> backend() {
    return {
        "cuda, " + (blocks_max_ > 3 ? std::string("all") : std::to_string(blocks_max_)) + " blocks",
        [blocks_max = blocks_max_](const Op& op) { run_on_card(op, blocks_max); },
        ReferenceRules{true, ProductRule::kRounded16}};
  }

 private:
  template <class Op>
  static void run_on_card(const Op& op, int blocks_max);

  int blocks_max_;
};

}  // namespace roost::contract
