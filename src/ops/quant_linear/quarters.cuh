// The end of a quarter of a product's sum (docs/KERNELS.md, K-tree), the same for every kernel.
#pragma once

namespace roost::cuda {

// Behind quarter 0, 1, 2 and 3 in turn: takes its sums `part` into (P0 + P1) + (P2 + P3) and clears
// them. Behind quarter 0 alone, `sums` is a chain.
template <int kCount>
__device__ __forceinline__ void end_quarter(int quarter, float (&part)[kCount],
                                            float (&third)[kCount], float (&sums)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    if (quarter == 0) sums[i] = part[i];
    if (quarter == 1) sums[i] += part[i];
    if (quarter == 2) third[i] = part[i];
    if (quarter == 3) sums[i] += third[i] + part[i];
    part[i] = 0;
  }
}

}  // namespace roost::cuda
