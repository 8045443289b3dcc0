// The warp matrix product (sm_80 and later), bf16 times bf16 into f32.
#pragma once

#include <cstdint>

namespace roost::cuda {

// d += a * b, with A [16, 16], B [8, 16] as (n, k), d [16, 8]. With g = lane / 4, q = lane % 4:
//   a[0]  row g, k = 2 * q and the next   a[1]  row g + 8   a[2]  k + 8   a[3]  row g + 8, k + 8
//   b[0]  column g, k = 2 * q and the next   b[1]  k + 8
//   d[0], d[1]  row g, columns 2 * q and the next   d[2], d[3]  row g + 8
__device__ __forceinline__ void mma_m16n8k16(float (&d)[4], const uint32_t (&a)[4],
                                             const uint32_t (&b)[2]) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
      "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// Four 8 x 8 matrices of bf16 from shared memory, lane l giving the address of row l % 8 of matrix
// l / 8: to[i] of lane l are row l / 4, columns 2 * (l % 4) and the next, of matrix i; transposed,
// column l / 4 and those rows.
__device__ __forceinline__ void load_matrices(uint32_t (&to)[4], uint32_t shared_row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(shared_row)
               : "memory");
}
__device__ __forceinline__ void load_matrices(uint32_t (&to)[4], const void* shared_row) {
  load_matrices(to, uint32_t(__cvta_generic_to_shared(shared_row)));
}
__device__ __forceinline__ void load_matrices_transposed(uint32_t (&to)[4],
                                                         const void* shared_row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(uint32_t(__cvta_generic_to_shared(shared_row)))
               : "memory");
}

}  // namespace roost::cuda
