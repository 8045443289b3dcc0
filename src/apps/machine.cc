#include "apps/machine.h"

#include <fmt/format.h>

#include "base/log.h"
#include "weights/upload.h"

#ifdef ROOST_CUDA
#include "ops/cuda_ops.h"
#include "weights/card_weights.h"
#endif

namespace roost {
namespace {

std::unique_ptr<Hardware> find_card() {
#ifdef ROOST_CUDA
  return make_cuda_hardware();
#else
  return nullptr;
#endif
}

std::unique_ptr<WeightTaker> taker_of(Device& device, const SyntheticMemory* synthetic) {
#ifdef ROOST_CUDA
  // The only hardware beside the CPU, so its device is a card.
  return std::make_unique<CardWeights>(static_cast<cuda::Card&>(device), synthetic);
#else
  ROOST_CHECK(synthetic == nullptr);
  return std::make_unique<WeightTaker>(device);
#endif
}

Result<ModelWeights> upload(const ModelWeights& weights, WeightTaker& taker) {
  size_t n_logged = 0;
  const auto progress = [&](size_t n_done, size_t n_all) {
    if (n_done - n_logged < n_all / 8 && n_done < n_all) return;
    n_logged = n_done;
    log(LogLevel::kInfo, "upload",
        {{"mib", fmt::to_string(n_done >> 20)}, {"of_mib", fmt::to_string(n_all >> 20)}});
  };
  return upload_weights(weights, taker, progress);
}

}  // namespace

Result<Machine> Machine::open(const std::string& device, int n_threads) {
  Machine machine;
  if (device == "cpu") {
    machine.hardware_ = make_cpu_hardware(n_threads > 0 ? n_threads : n_usable_cpus());
    return machine;
  }
  if (device != "cuda") return Error{Refusal::FlagValue, "--device: want cpu or cuda"};
  machine.hardware_ = find_card();
  if (!machine.hardware_) return Error{Refusal::DeviceMissing, device};
  machine.is_cpu_ = false;
  return machine;
}

Result<std::shared_ptr<const ModelWeights>> Machine::place(
    std::shared_ptr<const ModelWeights> weights, const SyntheticMemory* synthetic) const {
  if (is_cpu_) return weights;
  const std::unique_ptr<WeightTaker> taker = taker_of(hardware_->device(), synthetic);
  ROOST_TRY(ModelWeights placed, upload(*weights, *taker));
  return std::make_shared<const ModelWeights>(std::move(placed));
}

Result<std::shared_ptr<const DrafterWeights>> Machine::place(
    std::shared_ptr<const DrafterWeights> weights) const {
  if (is_cpu_) return weights;
  const std::unique_ptr<WeightTaker> taker = taker_of(hardware_->device(), nullptr);
  ROOST_TRY(DrafterWeights placed, upload_drafter(*weights, *taker));
  return std::make_shared<const DrafterWeights>(std::move(placed));
}

}  // namespace roost
