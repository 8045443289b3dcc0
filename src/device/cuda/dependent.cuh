// Kernels that start before the one in front of them has ended (sm_90 and later).
#pragma once

namespace roost::cuda {

// Every kernel of an op calls this before it touches memory that another kernel writes, in all of
// its threads: until all work in front of it has ended and can be seen. Only then may the kernel
// behind it start, so whatever is older than its own predecessor has ended for that one too.
// Weights, which no kernel writes, may be read before.
__device__ __forceinline__ void wait_for_inputs() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

}  // namespace roost::cuda
