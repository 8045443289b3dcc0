// Asynchronous copies from the card's memory to shared memory (sm_80 and later).
#pragma once

#include <cstdint>

namespace roost::cuda {

// is_there: else 16 zeros, and `from` is an address like any other. Both 16-byte aligned.
__device__ __forceinline__ void copy_16(void* to_shared, const void* from, bool is_there) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(
                   uint32_t(__cvta_generic_to_shared(to_shared))),
               "l"(from), "r"(is_there ? 16 : 0)
               : "memory");
}

// To an address in shared memory; both 16-byte aligned, or 8-byte aligned.
__device__ __forceinline__ void copy_16(uint32_t to_shared, const void* from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to_shared), "l"(from) : "memory");
}
__device__ __forceinline__ void copy_8(uint32_t to_shared, const void* from) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 8;" ::"r"(to_shared), "l"(from) : "memory");
}

__device__ __forceinline__ uint4 load_shared_16(uint32_t from) {
  uint4 v;
  asm volatile("ld.shared.v4.u32 {%0,%1,%2,%3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "r"(from)
               : "memory");
  return v;
}
__device__ __forceinline__ uint2 load_shared_8(uint32_t from) {
  uint2 v;
  asm volatile("ld.shared.v2.u32 {%0,%1}, [%2];" : "=r"(v.x), "=r"(v.y) : "r"(from) : "memory");
  return v;
}

__device__ __forceinline__ void copy_commit() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}

// Until at most kPending of this thread's groups are on their way.
template <int kPending>
__device__ __forceinline__ void copy_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

}  // namespace roost::cuda
