// The functions of the kernels in one place, so that two kernels that must agree do: conversions,
// exponentials and what is made of them, and sums over a warp in a fixed order.
#pragma once

#include <cuda_bf16.h>

#include <cstdint>

namespace roost::cuda {

__device__ __forceinline__ float f32_of(uint16_t bf16) {
  return __uint_as_float(uint32_t(bf16) << 16);
}

// Nearest, ties to even; NaN stays NaN.
__device__ __forceinline__ uint16_t bf16_of(float value) {
  return __bfloat16_as_ushort(__float2bfloat16_rn(value));
}

__device__ __forceinline__ float rounded_to_bf16(float value) {
  return f32_of(bf16_of(value));
}

// Within 2 units in the last place, subnormal results included.
__device__ __forceinline__ float exp_f32(float x) {
  return expf(x);
}
__device__ __forceinline__ float exp2_f32(float x) {
  return exp2f(x);
}

__device__ __forceinline__ float sigmoid_f32(float x) {
  return 1.0f / (1.0f + exp_f32(-x));
}
__device__ __forceinline__ float silu_f32(float x) {
  return x / (1.0f + exp_f32(-x));
}

// ln(1 + e^x); NaN stays NaN.
__device__ __forceinline__ float softplus_f32(float x) {
  return (x < 0 ? 0.0f : x) + log1pf(exp_f32(-fabsf(x)));
}

__device__ __forceinline__ float inverse_sqrt_f32(float x) {
  return 1.0f / sqrtf(x);
}

// The sum of a value over the warp, the same bits in every lane: a butterfly adds equal pairs.
__device__ __forceinline__ float warp_sum(float value) {
  for (int step = 16; step > 0; step /= 2) value += __shfl_xor_sync(~0u, value, step);
  return value;
}

}  // namespace roost::cuda
