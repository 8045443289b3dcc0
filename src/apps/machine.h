// Where a model runs: the CPU, or the card that --device names.
#pragma once

#include <memory>
#include <string>

#include "base/result.h"
#include "ops/ops.h"
#include "weights/drafter.h"
#include "weights/synthetic_memory.h"
#include "weights/weights.h"

namespace roost {

class Machine {
 public:
  // "cpu" or "cuda". Refuses flag.value, and device.missing where there is no such card or the
  // program was built without its kernels.
  static Result<Machine> open(const std::string& device, int n_threads);

  const std::shared_ptr<Hardware>& hardware() const { return hardware_; }
  bool is_cpu() const { return is_cpu_; }

  // The weights where the ops read them: `weights` itself on the CPU. synthetic: what they were
  // made of, or null.
  Result<std::shared_ptr<const ModelWeights>> place(std::shared_ptr<const ModelWeights> weights,
                                                    const SyntheticMemory* synthetic) const;
  Result<std::shared_ptr<const DrafterWeights>> place(
      std::shared_ptr<const DrafterWeights> weights) const;

 private:
  std::shared_ptr<Hardware> hardware_;
  bool is_cpu_ = true;
};

}  // namespace roost
