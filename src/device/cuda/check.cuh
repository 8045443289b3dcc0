// A call of the CUDA runtime that fails is the loss of the card.
#pragma once

#include <cuda_runtime.h>

#include <cstring>
#include <source_location>
#include <string>

#include "device/cuda/loss.h"

namespace roost::cuda {

inline void check(cudaError_t status,
                  std::source_location where = std::source_location::current()) {
  if (status == cudaSuccess || card_loss()) return;
  const char* slash = std::strrchr(where.file_name(), '/');
  card_loss() = Error{Refusal::DeviceLost, std::string(cudaGetErrorName(status)) + " (" +
                                               (slash ? slash + 1 : where.file_name()) + ":" +
                                               std::to_string(where.line()) + ")"};
}

// After a launch: a refused configuration shows here, a fault inside the kernel at the next wait.
inline void check_launch(std::source_location where = std::source_location::current()) {
  check(cudaGetLastError(), where);
}

}  // namespace roost::cuda
