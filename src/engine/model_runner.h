// The model over a backend, as the engine runs it.
#pragma once

#include <memory>

#include "engine/memory_plan.h"
#include "engine/step_runner.h"
#include "model/qwen35.h"

namespace roost {

// Takes the memory of the plan, but for the weights.
std::unique_ptr<StepRunner> make_model_runner(std::shared_ptr<const ModelWeights> weights,
                                              const EngineOptions& options, const MemoryPlan& plan);

}  // namespace roost
