// The CUDA backend as Ops.
#pragma once

#include <memory>

#include "device/cuda/card.h"
#include "ops/ops.h"

namespace roost {

// Ops over tensors and weights in memory of the card, which must outlive them; each call queues its
// work on the card's stream. Scratch is taken here, once.
std::unique_ptr<Ops> make_cuda_ops(cuda::Card& card, const OpsLimits& limits);
size_t cuda_workspace_bytes(const OpsLimits& limits);  // of the card

// The current card; null where there is none that the kernels run on.
std::unique_ptr<Hardware> make_cuda_hardware();

}  // namespace roost
