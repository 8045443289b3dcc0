// The warpgroup matrix product of sm_90a, bf16 times bf16 into f32: fences, shared-memory
// descriptors, and one overload of wgmma() for each width N.
//
// A warpgroup is four neighbouring warps, the first at a multiple of four. d[N/2] holds the
// thread's part of the accumulator [64, N]: with w the warp in its group, g = lane / 4 and
// q = lane % 4,
//   d[4 * j + 0], d[4 * j + 1]  row 16 * w + g,      columns 8 * j + 2 * q and the next
//   d[4 * j + 2], d[4 * j + 3]  row 16 * w + g + 8,  the same columns
// and a[4], the A operand [64, 16] in registers, two bf16 each, the lower k in the lower half:
//   a[0]  row 16 * w + g, k = 2 * q   a[1]  row + 8   a[2]  k + 8   a[3]  row + 8, k + 8
#pragma once

#include <cstdint>

namespace roost::cuda {

__device__ __forceinline__ uint32_t shared_address(const void* p) {
  return uint32_t(__cvta_generic_to_shared(p));
}

// Orders this thread's ordinary stores to shared memory before later reads by the matrix unit or
// the copy engine. Every writing thread calls it before the barrier that hands the data over.
__device__ __forceinline__ void fence_async_shared() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// Before the first product, and again whenever registers of an operand were written.
__device__ __forceinline__ void wgmma_fence() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

__device__ __forceinline__ void wgmma_commit() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

// Waits until at most kPending committed groups are still running.
template <int kPending>
__device__ __forceinline__ void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}

// Keeps the compiler from reading or moving the accumulators ahead of the wait in front of it.
template <int kCount>
__device__ __forceinline__ void wgmma_hold(float (&d)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) asm volatile("" : "+f"(d[i])::"memory");
}

// The inner order of an operand in shared memory: which index runs in the innermost 16 bytes.
enum class Major { kK = 0, kMn = 1 };

// An operand made of cores of 8 x 8 elements, 128 contiguous bytes each: 8 lines of 16 bytes, a
// line along k (Major::kK) or along m or n (Major::kMn). The strides go from one core to the next.
__device__ __forceinline__ uint64_t core_descriptor(uint32_t address, uint32_t k_stride_bytes,
                                                    uint32_t mn_stride_bytes) {
  return uint64_t((address & 0x3ffff) >> 4) | (uint64_t(k_stride_bytes >> 4) << 16) |
         (uint64_t(mn_stride_bytes >> 4) << 32);
}

// An operand of lines of 64 k (128 bytes), the 16-byte parts of line i exchanged by (part ^ i % 8);
// address is that of a 1,024-byte-aligned tile plus 32 bytes for each k16 step inside it.
__device__ __forceinline__ uint64_t swizzled_descriptor(uint32_t address) {
  constexpr uint64_t kLines8Bytes = 1024;
  constexpr uint64_t kSwizzle128 = uint64_t(1) << 62;
  return uint64_t((address & 0x3ffff) >> 4) | (uint64_t(1) << 16) | ((kLines8Bytes >> 4) << 32) |
         kSwizzle128;
}

// d = a * b, plus d where is_added. The two overloads take A from registers or by descriptor; the
// length of d chooses N. b is [N, 16]: element (n, k) pairs with A's (m, k).
//
// Operands are numbered in the text of the instruction, so each N spells its own numbers: c is the
// count of accumulators, c1 to c6 the operands after them.
#define ROOST_WGMMA(n, regs, text, c, c1, c2, c3, c4, c5, c6)                                  \
  template <Major kB = Major::kK>                                                              \
  __device__ __forceinline__ void wgmma(float(&d)[c], const uint32_t(&a)[4], uint64_t b,       \
                                        bool is_added = true) {                                \
    asm volatile("{\n.reg .pred added;\nsetp.ne.b32 added, %" #c5                              \
                 ", 0;\n"                                                                      \
                 "wgmma.mma_async.sync.aligned.m64n" #n "k16.f32.bf16.bf16 {" text             \
                 "}, "                                                                         \
                 "{%" #c ",%" #c1 ",%" #c2 ",%" #c3 "}, %" #c4 ", added, 1, 1, %" #c6 ";\n}\n" \
                 : regs                                                                        \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(int(is_added)),     \
                   "n"(int(kB)));                                                              \
  }                                                                                            \
  template <Major kB = Major::kK>                                                              \
  __device__ __forceinline__ void wgmma(float(&d)[c], uint64_t a, uint64_t b,                  \
                                        bool is_added = true) {                                \
    asm volatile("{\n.reg .pred added;\nsetp.ne.b32 added, %" #c2                              \
                 ", 0;\n"                                                                      \
                 "wgmma.mma_async.sync.aligned.m64n" #n "k16.f32.bf16.bf16 {" text             \
                 "}, "                                                                         \
                 "%" #c ", %" #c1 ", added, 1, 1, 0, %" #c3 ";\n}\n"                           \
                 : regs                                                                        \
                 : "l"(a), "l"(b), "r"(int(is_added)), "n"(int(kB)));                          \
  }

#define ROOST_D4(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define ROOST_D8(i) ROOST_D4(i), ROOST_D4(i + 4)
#define ROOST_D16(i) ROOST_D8(i), ROOST_D8(i + 8)
#define ROOST_D32(i) ROOST_D16(i), ROOST_D16(i + 16)

#define ROOST_T4(a, b, c, d) "%" #a ",%" #b ",%" #c ",%" #d
#define ROOST_T8 ROOST_T4(0, 1, 2, 3) "," ROOST_T4(4, 5, 6, 7)
#define ROOST_T12 ROOST_T8 "," ROOST_T4(8, 9, 10, 11)
#define ROOST_T16 ROOST_T12 "," ROOST_T4(12, 13, 14, 15)
#define ROOST_T24 ROOST_T16 "," ROOST_T4(16, 17, 18, 19) "," ROOST_T4(20, 21, 22, 23)
#define ROOST_T32 ROOST_T24 "," ROOST_T4(24, 25, 26, 27) "," ROOST_T4(28, 29, 30, 31)
#define ROOST_T40 ROOST_T32 "," ROOST_T4(32, 33, 34, 35) "," ROOST_T4(36, 37, 38, 39)
#define ROOST_T48 ROOST_T40 "," ROOST_T4(40, 41, 42, 43) "," ROOST_T4(44, 45, 46, 47)
#define ROOST_T56 ROOST_T48 "," ROOST_T4(48, 49, 50, 51) "," ROOST_T4(52, 53, 54, 55)
#define ROOST_T64 ROOST_T56 "," ROOST_T4(56, 57, 58, 59) "," ROOST_T4(60, 61, 62, 63)
#define ROOST_T72 ROOST_T64 "," ROOST_T4(64, 65, 66, 67) "," ROOST_T4(68, 69, 70, 71)
#define ROOST_T80 ROOST_T72 "," ROOST_T4(72, 73, 74, 75) "," ROOST_T4(76, 77, 78, 79)
#define ROOST_T88 ROOST_T80 "," ROOST_T4(80, 81, 82, 83) "," ROOST_T4(84, 85, 86, 87)
#define ROOST_T96 ROOST_T88 "," ROOST_T4(88, 89, 90, 91) "," ROOST_T4(92, 93, 94, 95)
#define ROOST_T104 ROOST_T96 "," ROOST_T4(96, 97, 98, 99) "," ROOST_T4(100, 101, 102, 103)
#define ROOST_T112 ROOST_T104 "," ROOST_T4(104, 105, 106, 107) "," ROOST_T4(108, 109, 110, 111)
#define ROOST_T120 ROOST_T112 "," ROOST_T4(112, 113, 114, 115) "," ROOST_T4(116, 117, 118, 119)
#define ROOST_T128 ROOST_T120 "," ROOST_T4(120, 121, 122, 123) "," ROOST_T4(124, 125, 126, 127)

// clang-format off
#define ROOST_REGS(...) __VA_ARGS__
ROOST_WGMMA(8, ROOST_REGS(ROOST_D4(0)), ROOST_T4(0, 1, 2, 3), 4, 5, 6, 7, 8, 9, 10)
ROOST_WGMMA(16, ROOST_REGS(ROOST_D8(0)), ROOST_T8, 8, 9, 10, 11, 12, 13, 14)
ROOST_WGMMA(24, ROOST_REGS(ROOST_D8(0), ROOST_D4(8)), ROOST_T12, 12, 13, 14, 15, 16, 17, 18)
ROOST_WGMMA(32, ROOST_REGS(ROOST_D16(0)), ROOST_T16, 16, 17, 18, 19, 20, 21, 22)
ROOST_WGMMA(48, ROOST_REGS(ROOST_D16(0), ROOST_D8(16)), ROOST_T24, 24, 25, 26, 27, 28, 29, 30)
ROOST_WGMMA(64, ROOST_REGS(ROOST_D32(0)), ROOST_T32, 32, 33, 34, 35, 36, 37, 38)
ROOST_WGMMA(96, ROOST_REGS(ROOST_D32(0), ROOST_D16(32)), ROOST_T48, 48, 49, 50, 51, 52, 53, 54)
ROOST_WGMMA(128, ROOST_REGS(ROOST_D32(0), ROOST_D32(32)), ROOST_T64, 64, 65, 66, 67, 68, 69, 70)
ROOST_WGMMA(192, ROOST_REGS(ROOST_D32(0), ROOST_D32(32), ROOST_D32(64)), ROOST_T96,
            96, 97, 98, 99, 100, 101, 102)
ROOST_WGMMA(256, ROOST_REGS(ROOST_D32(0), ROOST_D32(32), ROOST_D32(64), ROOST_D32(96)), ROOST_T128,
            128, 129, 130, 131, 132, 133, 134)
// clang-format on

#undef ROOST_REGS
#undef ROOST_WGMMA
#undef ROOST_D4
#undef ROOST_D8
#undef ROOST_D16
#undef ROOST_D32
#undef ROOST_T4
#undef ROOST_T8
#undef ROOST_T12
#undef ROOST_T16
#undef ROOST_T24
#undef ROOST_T32
#undef ROOST_T40
#undef ROOST_T48
#undef ROOST_T56
#undef ROOST_T64
#undef ROOST_T72
#undef ROOST_T80
#undef ROOST_T88
#undef ROOST_T96
#undef ROOST_T104
#undef ROOST_T112
#undef ROOST_T120
#undef ROOST_T128

}  // namespace roost::cuda
