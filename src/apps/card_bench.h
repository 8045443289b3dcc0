// roost bench MODEL --device cuda: decode steps and prompts as shares of what the card can do.
#pragma once

#include "apps/bench.h"
#include "ops/ops.h"
#include "weights/weights.h"

namespace roost {

// Prints a table, or JSON; returns the process's exit status. The weights lie on the device.
int run_card_bench(const ModelWeights& weights, Hardware& hardware, const BenchOptions& options);

}  // namespace roost
