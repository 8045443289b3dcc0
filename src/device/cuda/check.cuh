// Ends the process with place and message when a call of the CUDA runtime fails: after an
// asynchronous error nothing on the device can be trusted.
#pragma once

#include <cuda_runtime.h>

#include <cstdio>
#include <cstdlib>
#include <source_location>

namespace roost::cuda {

inline void check(cudaError_t status,
                  std::source_location where = std::source_location::current()) {
  if (status == cudaSuccess) return;
  std::fprintf(stderr, "%s:%u: cuda: %s: %s\n", where.file_name(), unsigned(where.line()),
               cudaGetErrorName(status), cudaGetErrorString(status));
  std::abort();
}

// After a launch: a refused configuration shows here, a fault inside the kernel at the next wait.
inline void check_launch(std::source_location where = std::source_location::current()) {
  check(cudaGetLastError(), where);
}

}  // namespace roost::cuda
