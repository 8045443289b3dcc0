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

// Nothing where not is_wanted. 16-byte aligned, or 8-byte aligned.
__device__ __forceinline__ void copy_16_if(bool is_wanted, uint32_t to_shared, const void* from) {
  asm volatile(
      "{.reg .pred wanted;\n setp.ne.b32 wanted, %0, 0;\n"
      "@wanted cp.async.cg.shared.global [%1], [%2], 16;}" ::"r"(int(is_wanted)),
      "r"(to_shared), "l"(from)
      : "memory");
}
__device__ __forceinline__ void copy_8_if(bool is_wanted, uint32_t to_shared, const void* from) {
  asm volatile(
      "{.reg .pred wanted;\n setp.ne.b32 wanted, %0, 0;\n"
      "@wanted cp.async.ca.shared.global [%1], [%2], 8;}" ::"r"(int(is_wanted)),
      "r"(to_shared), "l"(from)
      : "memory");
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
