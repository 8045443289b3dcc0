// roost inspect MODEL: what is in a checkpoint, what is left out, and which kernels will run.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "apps/load_model.h"
#include "ops/ops.h"
#include "weights/weights.h"

namespace roost {

struct InspectOptions {
  LoadOptions load;            // which model and drafter, and how they would be served
  bool lists_tensors = false;  // every tensor of the files, one a line
  bool is_plan_alone = false;  // nothing but the memory plan
};

// Prints the report, then what a server would refuse, by code and name: of the weights, which ends
// the report, of the text side, of the drafter, of the memory plan. Returns the process's exit
// status, 0 if nothing is refused.
int run_inspect(const InspectOptions& options);

// Geometry, files, bytes by kind and width, what a decoded row reads, what is left out, kernels.
std::string inspect_report(const ModelWeights& weights, const Ops& ops);

// The kernel of each kind of matrix, by its name; several where matrices of one kind differ.
std::map<std::string, std::string> kernels_of(const ModelWeights& weights, const Ops& ops);

void print_memory_plan(const MemoryPlan& plan);

}  // namespace roost
