// The backend under the tests of whole models: the CPU, or with ROOST_MODEL_CUDA the card.
#pragma once

#include <map>
#include <memory>

#include "ops/ops.h"
#include "weights/drafter.h"
#include "weights/weights.h"

#ifdef ROOST_MODEL_CUDA
#include "ops/cuda_ops.h"
#include "weights/card_weights.h"
#endif

namespace roost::testing {

#ifdef ROOST_MODEL_CUDA

// What engines run on; null: the CPU.
inline const std::shared_ptr<Hardware>& hardware() {
  static const std::shared_ptr<Hardware> shared = make_cuda_hardware();
  ROOST_CHECK(shared != nullptr);
  return shared;
}

inline cuda::Card& card() {
  return static_cast<cuda::Card&>(hardware()->device());
}

// All machines are the one card; of threads there is no choice.
class ModelMachine {
 public:
  static constexpr ProductRule kProduct = ProductRule::kRounded16;
  explicit ModelMachine(int) {}
  std::unique_ptr<Ops> make_ops(const OpsLimits& limits) { return make_cuda_ops(card(), limits); }
};

// The weights where the ops of a machine read them.
inline std::shared_ptr<const ModelWeights> placed(
    const std::shared_ptr<const ModelWeights>& weights) {
  static std::map<const ModelWeights*, std::shared_ptr<const ModelWeights>> known;
  auto& found = known[weights.get()];
  if (found) return found;
  CardWeights taker(card(), nullptr);
  auto uploaded = upload_weights(*weights, taker, {});
  ROOST_CHECK(uploaded);
  return found = std::make_shared<const ModelWeights>(std::move(uploaded).value());
}
inline std::shared_ptr<const DrafterWeights> placed(
    const std::shared_ptr<const DrafterWeights>& weights) {
  CardWeights taker(card(), nullptr);
  auto uploaded = upload_drafter(*weights, taker);
  ROOST_CHECK(uploaded);
  return std::make_shared<const DrafterWeights>(std::move(uploaded).value());
}

#else

inline std::shared_ptr<Hardware> hardware() {
  return nullptr;
}

class ModelMachine {
 public:
  static constexpr ProductRule kProduct = ProductRule::kExact;
  explicit ModelMachine(int n_threads) : pool_(n_threads) {}
  std::unique_ptr<Ops> make_ops(const OpsLimits& limits) { return make_cpu_ops(pool_, limits); }

 private:
  ThreadPool pool_;
};

inline std::shared_ptr<const ModelWeights> placed(std::shared_ptr<const ModelWeights> weights) {
  return weights;
}
inline std::shared_ptr<const DrafterWeights> placed(std::shared_ptr<const DrafterWeights> weights) {
  return weights;
}

#endif

}  // namespace roost::testing
