// roost bench MODEL --part engine: what the engine adds to the model's steps, as shares of them.
#pragma once

#include <memory>

#include "apps/bench.h"
#include "weights/weights.h"

namespace roost {

// weights: read by the host. Prints a table, or JSON; returns the process's exit status.
int run_engine_bench(std::shared_ptr<const ModelWeights> weights, const BenchOptions& options);

}  // namespace roost
