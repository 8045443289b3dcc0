// What every launch function takes from its context, and weights as kernels read them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <tuple>

#include "base/check.h"
#include "device/cuda/check.cuh"
#include "device/cuda/dependent.cuh"
#include "device/cuda/math.cuh"
#include "ops/cuda_backend.h"
#include "tensor/quant_layout.h"

namespace roost::cuda {

inline cudaStream_t stream_of(const CudaContext& context) {
  return static_cast<cudaStream_t>(context.stream.raw());
}

// Blocks for `n_items`, each block walking over items block, block + grid, ….
inline unsigned grid_of(const CudaContext& context, int64_t n_items) {
  return static_cast<unsigned>(std::clamp<int64_t>(n_items, 1, context.blocks_max));
}

inline unsigned grid_for_threads(const CudaContext& context, int64_t n_items, int n_threads) {
  return grid_of(context, (n_items + n_threads - 1) / n_threads);
}

// True on cards of compute capability 9: kernels may start early, and have the warpgroup products.
bool has_warpgroup_products();

int n_multiprocessors();  // of the card

// Makes a launch part of the key of the step that is looked at. What is beside the members of a
// parameter is cleared, so that equal launches have equal bytes.
template <class Kernel, class... Parameters>
void note_launch(StepGraphs& graphs, Kernel* kernel, unsigned n_blocks, unsigned n_threads,
                 size_t shared_bytes, std::tuple<Parameters...>& parameters) {
  graphs.note(&kernel, sizeof kernel);
  graphs.note(&n_blocks, sizeof n_blocks);
  graphs.note(&n_threads, sizeof n_threads);
  graphs.note(&shared_bytes, sizeof shared_bytes);
  const auto note = [&](auto&... parameter) {
    (__builtin_clear_padding(&parameter), ...);
    (graphs.note(&parameter, sizeof parameter), ...);
  };
  std::apply(note, parameters);
}

// Queues a kernel, or notes it where the step is only looked at. Each cluster_blocks neighbouring
// blocks run together; with more than one only on cards of compute capability 9.
template <class... Parameters, class... Arguments>
void launch_clusters(CudaContext& context, void (*kernel)(Parameters...), unsigned n_blocks,
                     unsigned n_threads, size_t shared_bytes, unsigned cluster_blocks,
                     const Arguments&... arguments) {
  std::tuple<Parameters...> parameters(arguments...);
  if (context.graphs != nullptr && context.graphs->is_dry())
    return note_launch(*context.graphs, kernel, n_blocks, n_threads, shared_bytes, parameters);
  const auto launch = [&](auto&... parameter) {
    void* places[] = {static_cast<void*>(&parameter)...};
    cudaLaunchAttribute attributes[2] = {};
    attributes[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes[0].val.programmaticStreamSerializationAllowed = 1;
    attributes[1].id = cudaLaunchAttributeClusterDimension;
    attributes[1].val.clusterDim = {cluster_blocks, 1, 1};
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(n_blocks);
    config.blockDim = dim3(n_threads);
    config.dynamicSmemBytes = shared_bytes;
    config.stream = stream_of(context);
    config.attrs = attributes;
    config.numAttrs = !has_warpgroup_products() ? 0 : cluster_blocks == 1 ? 1 : 2;
    check(cudaLaunchKernelExC(&config, reinterpret_cast<const void*>(kernel), places));
  };
  std::apply(launch, parameters);
}

template <class... Parameters, class... Arguments>
void launch_kernel(CudaContext& context, void (*kernel)(Parameters...), unsigned n_blocks,
                   unsigned n_threads, size_t shared_bytes, const Arguments&... arguments) {
  launch_clusters(context, kernel, n_blocks, n_threads, shared_bytes, 1, arguments...);
}

// bf16 of an existing tensor of the card; null when absent.
inline uint16_t* bf16_data(const Tensor& tensor) {
  ROOST_CHECK(!tensor.exists() || tensor.dtype == DType::kBF16);
  return reinterpret_cast<uint16_t*>(tensor.data);
}

inline float* f32_data(const Tensor& tensor) {
  ROOST_CHECK(!tensor.exists() || tensor.dtype == DType::kF32);
  return reinterpret_cast<float*>(tensor.data);
}

inline int32_t* i32_data(const Tensor& tensor) {
  ROOST_CHECK(!tensor.exists() || tensor.dtype == DType::kI32);
  return reinterpret_cast<int32_t*>(tensor.data);
}

// A QuantMatrix of the card, in the packing of the checkpoint.
struct WeightView {
  const uint8_t* codes = nullptr;
  const uint8_t* scales = nullptr;
  const uint8_t* biases = nullptr;
  int64_t n_out = 0, n_in = 0, row_bytes = 0;
  int32_t n_groups = 0, group = 1, bits = 0;
  bool is_affine = false, is_f32 = false, is_bricks = false;
};

inline WeightView view_of(const QuantMatrix& w) {
  WeightView view;
  view.codes = reinterpret_cast<const uint8_t*>(w.codes);
  view.scales = reinterpret_cast<const uint8_t*>(w.scales);
  view.biases = reinterpret_cast<const uint8_t*>(w.biases);
  view.n_out = w.n_out;
  view.n_in = w.n_in;
  view.is_f32 = w.dtype == DType::kF32;
  view.is_bricks = w.format == QuantMatrix::Format::kBricks;
  view.is_affine = w.format == QuantMatrix::Format::kAffine;
  if (!view.is_bricks) view.row_bytes = static_cast<int64_t>(w.row_bytes());
  if (w.format == QuantMatrix::Format::kPlain) return view;
  view.bits = w.bits;
  view.group = w.group;
  view.n_groups = static_cast<int32_t>(w.n_groups());
  return view;
}

// Number `at` of a list of bf16 or f32 that may start at any address.
__device__ __forceinline__ float number_at(const uint8_t* list, int64_t at, bool is_f32) {
  if (is_f32) {
    const uint8_t* from = list + at * 4;
    if ((reinterpret_cast<uintptr_t>(from) & 3) == 0) return *reinterpret_cast<const float*>(from);
    return __uint_as_float(uint32_t(from[0]) | uint32_t(from[1]) << 8 | uint32_t(from[2]) << 16 |
                           uint32_t(from[3]) << 24);
  }
  const uint8_t* from = list + at * 2;
  if ((reinterpret_cast<uintptr_t>(from) & 1) == 0)
    return f32_of(*reinterpret_cast<const uint16_t*>(from));
  return f32_of(static_cast<uint16_t>(uint32_t(from[0]) | uint32_t(from[1]) << 8));
}

// Eight codes that start at a whole byte: `bits` bytes, read in one piece where they are aligned.
__device__ __forceinline__ uint64_t eight_codes(const uint8_t* from, int bits) {
  const auto address = reinterpret_cast<uintptr_t>(from);
  if (bits == 4 && (address & 3) == 0) return *reinterpret_cast<const uint32_t*>(from);
  if (bits == 8 && (address & 7) == 0) return *reinterpret_cast<const uint64_t*>(from);
  uint64_t codes = 0;
  for (int b = 0; b < bits; ++b) codes |= uint64_t(from[b]) << (8 * b);
  return codes;
}

// scale·code + bias as products and tables take it: numbers in bf16 give it rounded once to bf16
// (a code has at most 8 bits, so it is one), numbers in f32 rounded to f32.
__device__ __forceinline__ float weight_of(float scale, uint32_t code, float bias, bool is_f32) {
  if (is_f32) return fmaf(scale, float(code), bias);
  const __nv_bfloat16 weight = __hfma(__float2bfloat16_rn(scale), __float2bfloat16_rn(float(code)),
                                      __float2bfloat16_rn(bias));
  return __bfloat162float(weight);
}

// Weights [row, col .. col + 8) in f32; zeros behind the row's end. col is a multiple of 8, so an
// affine run lies in one group. Not of bricks, which are read whole.
__device__ __forceinline__ void eight_weights(const WeightView& w, int64_t row, int64_t col,
                                              float (&out)[8]) {
  if (!w.is_affine) {
    for (int i = 0; i < 8; ++i)
      out[i] = col + i < w.n_in ? number_at(w.codes, row * w.n_in + col + i, w.is_f32) : 0.0f;
    return;
  }
  if (col >= w.n_in) {
    for (int i = 0; i < 8; ++i) out[i] = 0;
    return;
  }
  const uint64_t codes = eight_codes(w.codes + row * w.row_bytes + col / 8 * w.bits, w.bits);
  const int64_t at = row * w.n_groups + col / w.group;
  const float scale = number_at(w.scales, at, w.is_f32), bias = number_at(w.biases, at, w.is_f32);
  const uint32_t mask = (1u << w.bits) - 1;
#pragma unroll
  for (int i = 0; i < 8; ++i)
    out[i] = weight_of(scale, uint32_t(codes >> (i * w.bits)) & mask, bias, w.is_f32);
}

}  // namespace roost::cuda
