// Blocks that run together and reach each other's shared memory (sm_90 and later).
#pragma once

#include <cstdint>

namespace roost::cuda {

__device__ __forceinline__ int rank_in_cluster() {
  uint32_t rank;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return int(rank);
}

// All threads of all blocks; what was written to shared memory before can be read behind it.
__device__ __forceinline__ void cluster_barrier() {
  asm volatile(
      "barrier.cluster.arrive.release.aligned;\n"
      "barrier.cluster.wait.acquire.aligned;" ::
          : "memory");
}

// *from, a place in this block's shared memory, as the block of that rank has it.
__device__ __forceinline__ float read_of_rank(const float* from, int rank) {
  uint32_t place;
  float value;
  asm("mapa.shared::cluster.u32 %0, %1, %2;"
      : "=r"(place)
      : "r"(uint32_t(__cvta_generic_to_shared(from))), "r"(rank));
  asm volatile("ld.shared::cluster.f32 %0, [%1];" : "=f"(value) : "r"(place) : "memory");
  return value;
}

}  // namespace roost::cuda
