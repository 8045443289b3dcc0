// The CUDA backend as Ops.
#pragma once

#include <memory>

#include "device/cuda/stream.h"
#include "ops/ops.h"

namespace roost {

// Ops over tensors and weights in memory of the current card; each call queues its work on the
// stream, which must outlive the object. Scratch and staging are taken here, once.
std::unique_ptr<Ops> make_cuda_ops(const cuda::Stream& stream, const OpsLimits& limits);
size_t cuda_workspace_bytes(const OpsLimits& limits);  // of the card

}  // namespace roost
