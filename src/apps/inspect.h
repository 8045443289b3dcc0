// roost inspect MODEL: what is in a checkpoint, what is left out, and which kernels will run.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "base/result.h"
#include "engine/engine.h"
#include "ops/ops.h"
#include "weights/weights.h"

namespace roost {

struct InspectOptions {
  std::string model;           // a folder
  bool lists_tensors = false;  // every tensor of the files, one a line
  // The memory plan that a server would print, when it is wanted.
  std::function<Result<MemoryPlan>(std::shared_ptr<const ModelWeights>)> plan;
};

// Prints the report; a checkpoint that is refused is said so by code and name. Returns the
// process's exit status.
int run_inspect(const InspectOptions& options);

// Geometry, files, bytes by kind and width, what a decoded row reads, what is left out, kernels.
std::string inspect_report(const ModelWeights& weights, const Ops& ops);

void print_memory_plan(const MemoryPlan& plan);

}  // namespace roost
