// Kernels that start before the one in front of them has ended (sm_90 and later).
#pragma once

namespace roost::cuda {

// Every kernel of an op calls this before it touches memory that another kernel writes, in all of
// its threads: until all work in front of it has ended and can be seen. Weights, which no kernel
// writes, may be read before. The kernel behind it may start once all blocks of this one are here;
// it waits in turn until this one has ended, and so for all that this one waits for. Several
// kernels of a step therefore stand ready, with their first weights on the way.
__device__ __forceinline__ void wait_for_inputs() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

}  // namespace roost::cuda
