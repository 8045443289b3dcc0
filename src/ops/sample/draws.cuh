// What every kernel that draws tokens agrees on: the order of candidates and the noise of law 2.
#pragma once

#include "device/cuda/math.cuh"
#include "ops/sample/sample.h"

namespace roost::cuda {

// Keys fall as the contract's order of candidates does: by logit, then towards higher ids. Zeros of
// both signs are one value. No key of a number is 0 or ~0.
__device__ __forceinline__ uint64_t key_of(float logit, int32_t id) {
  const uint32_t bits = logit == 0 ? 0 : __float_as_uint(logit);
  const uint32_t rank = bits & 0x80000000u ? ~bits : bits | 0x80000000u;
  return uint64_t(rank) << 32 | (0xFFFFFFFFu - uint32_t(id));
}

__device__ __forceinline__ int32_t id_of(uint64_t key) {
  return int32_t(0xFFFFFFFFu - uint32_t(key));
}

__device__ inline uint64_t mix(uint64_t x) {
  x ^= x >> 30;
  x *= 0xBF58476D1CE4E5B9u;
  x ^= x >> 27;
  x *= 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}

// The Gumbel noise of an id at a position.
__device__ inline double noise_of(uint64_t seed, int64_t position, int32_t id) {
  const uint64_t row =
      mix(mix(seed + 0x9E3779B97F4A7C15u) ^ (uint64_t(position) * 0xD1B54A32D192ED03u));
  const uint64_t bits = mix(row ^ uint64_t(id));
  return -log(-log(double(bits >> 11) * 0x1p-53 + 0x1p-54));
}

}  // namespace roost::cuda
