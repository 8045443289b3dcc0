// One tile product D[64, N] = A[64, k] * B[N, k]^T in every form whose bits the MMA laws compare:
// width, source of A, layout in shared memory, grouping of the k16 steps, and the warp product.
#pragma once

#include <cuda_bf16.h>

#include <cstddef>
#include <cstdint>

#include "device/cuda/check.cuh"
#include "device/cuda/mma.cuh"
#include "device/cuda/wgmma.cuh"

namespace roost::laws {

constexpr int kRows = 64;      // rows of a tile: the m of wgmma
constexpr int kThreads = 128;  // one warpgroup

// Thread block i multiplies A + i * a_stride by B + i * b_stride into D + i * 64 * N; a stride of 0
// gives all blocks the same operand. k is a multiple of the form's 16 * steps.
struct Tiles {
  const __nv_bfloat16* a;  // [64, k] a tile
  const __nv_bfloat16* b;  // [N, k] a tile
  float* d;                // [64, N] a tile
  int k;
  size_t a_stride, b_stride;
};

enum class Layout { kCores, kCoresMnMajor, kSwizzled };

// How a chain of k16 steps is issued. No field may change a bit of the result.
struct Form {
  bool is_a_in_registers = true;
  Layout layout = Layout::kCores;  // of B in shared memory, and of A where it is there (K-major)
  int steps = 1;                   // k16 steps brought to shared memory together
  int steps_a_group = 1;           // steps between two commits
  int groups_pending = 0;          // committed groups left running while the next is issued
  bool is_first_added = true;      // step 0 adds to zeroed accumulators, or it overwrites them
};

struct FromRegisters {
  static constexpr Form kForm{};
};
struct FromShared {
  static constexpr Form kForm{.is_a_in_registers = false};
};
struct Overwriting {
  static constexpr Form kForm{.is_first_added = false};
};
struct MnMajorB {
  static constexpr Form kForm{.layout = Layout::kCoresMnMajor};
};
struct FourInOneGroup {
  static constexpr Form kForm{.steps = 4, .steps_a_group = 4};
};
struct FourGroupsInFlight {
  static constexpr Form kForm{.steps = 4, .steps_a_group = 1, .groups_pending = 3};
};
struct TwoGroupsOfTwo {
  static constexpr Form kForm{.steps = 4, .steps_a_group = 2, .groups_pending = 1};
};
struct FourFromSharedInOneGroup {
  static constexpr Form kForm{.is_a_in_registers = false, .steps = 4, .steps_a_group = 4};
};
struct FourFromSharedInFlight {
  static constexpr Form kForm{
      .is_a_in_registers = false, .steps = 4, .steps_a_group = 1, .groups_pending = 3};
};
struct SwizzledB {
  static constexpr Form kForm{.layout = Layout::kSwizzled, .steps = 4, .steps_a_group = 4};
};
struct SwizzledBoth {
  static constexpr Form kForm{
      .is_a_in_registers = false, .layout = Layout::kSwizzled, .steps = 4, .steps_a_group = 4};
};
struct SixteenInOneGroup {
  static constexpr Form kForm{.steps = 16, .steps_a_group = 16};
};

// Byte offset of element (line, k) in a staged operand of n_lines lines.
template <Layout kLayout>
__device__ int staged_offset(int line, int k, int n_lines) {
  const int core = ((k / 8) * (n_lines / 8) + line / 8) * 128;
  if constexpr (kLayout == Layout::kCores) return core + line % 8 * 16 + k % 8 * 2;
  if constexpr (kLayout == Layout::kCoresMnMajor) return core + k % 8 * 16 + line % 8 * 2;
  return line * 128 + ((k / 8) ^ (line % 8)) * 16 + k % 8 * 2;
}

template <Layout kLayout>
__device__ uint64_t staged_descriptor(uint32_t address, int step, int n_lines) {
  if constexpr (kLayout == Layout::kSwizzled) return cuda::swizzled_descriptor(address + step * 32);
  return cuda::core_descriptor(address + step * n_lines * 32, n_lines * 16, 128);
}

// Copies columns k0 to k0 + n_k of a [n_lines, k] operand to shared memory.
template <Layout kLayout>
__device__ void stage(char* to, const __nv_bfloat16* from, int n_lines, int k, int k0, int n_k) {
  for (int i = threadIdx.x; i < n_lines * n_k; i += kThreads) {
    const int line = i / n_k, column = i % n_k;
    *reinterpret_cast<__nv_bfloat16*>(to + staged_offset<kLayout>(line, column, n_lines)) =
        from[size_t(line) * k + k0 + column];
  }
}

__device__ inline void load_a(uint32_t (&a)[4], const __nv_bfloat16* tile, int k, int k0) {
  const int lane = threadIdx.x % 32;
  const int row = threadIdx.x / 32 * 16 + lane / 4;
  const auto* upper = reinterpret_cast<const uint32_t*>(tile + size_t(row) * k + k0 + lane % 4 * 2);
  const auto* lower = upper + size_t(8) * k / 2;
  a[0] = upper[0];
  a[1] = lower[0];
  a[2] = upper[4];
  a[3] = lower[4];
}

template <int N>
__device__ void store_d(float* d, const float (&acc)[N / 2]) {
  const int lane = threadIdx.x % 32;
  const int row = threadIdx.x / 32 * 16 + lane / 4;
#pragma unroll
  for (int i = 0; i < N / 2; ++i)
    d[(row + i / 2 % 2 * 8) * N + i / 4 * 8 + lane % 4 * 2 + i % 2] = acc[i];
}

// Issue names the form as a type with one member, kForm.
template <int N, typename Issue>
__global__ void __launch_bounds__(kThreads) product_kernel(Tiles t) {
  using namespace roost::cuda;
  constexpr Form kForm = Issue::kForm;
  constexpr int kStageK = kForm.steps * 16;
  constexpr Major kMajor = kForm.layout == Layout::kCoresMnMajor ? Major::kMn : Major::kK;
  constexpr Layout kLayoutOfA =
      kForm.layout == Layout::kSwizzled ? Layout::kSwizzled : Layout::kCores;
  static_assert(kForm.layout != Layout::kSwizzled || kForm.steps == 4, "a line holds 64 k");
  extern __shared__ __align__(1024) char shared[];
  char* shared_a = shared + N * kStageK * 2;

  const __nv_bfloat16* a_tile = t.a + blockIdx.x * t.a_stride;
  const __nv_bfloat16* b_tile = t.b + blockIdx.x * t.b_stride;
  float acc[N / 2];
#pragma unroll
  for (int i = 0; i < N / 2; ++i) acc[i] = 0.0f;

  for (int k0 = 0; k0 < t.k; k0 += kStageK) {
    __syncthreads();
    stage<kForm.layout>(shared, b_tile, N, t.k, k0, kStageK);
    if (!kForm.is_a_in_registers) stage<kLayoutOfA>(shared_a, a_tile, kRows, t.k, k0, kStageK);
    fence_async_shared();
    __syncthreads();

    uint32_t a[kForm.steps][4];
    if (kForm.is_a_in_registers) {
#pragma unroll
      for (int s = 0; s < kForm.steps; ++s) load_a(a[s], a_tile, t.k, k0 + s * 16);
    }
    wgmma_fence();
#pragma unroll
    for (int s = 0; s < kForm.steps; ++s) {
      const bool is_added = kForm.is_first_added || s > 0 || k0 > 0;
      const uint64_t b = staged_descriptor<kForm.layout>(shared_address(shared), s, N);
      if constexpr (kForm.is_a_in_registers)
        wgmma<kMajor>(acc, a[s], b, is_added);
      else
        wgmma<kMajor>(acc, staged_descriptor<kLayoutOfA>(shared_address(shared_a), s, kRows), b,
                      is_added);
      if ((s + 1) % kForm.steps_a_group == 0) {
        wgmma_commit();
        wgmma_wait<kForm.groups_pending>();
      }
    }
    wgmma_wait<0>();
    wgmma_hold(acc);
  }
  store_d<N>(t.d + size_t(blockIdx.x) * kRows * N, acc);
}

// The same product by mma.sync, warp w taking rows 16 * w to 16 * w + 15.
template <int N>
__global__ void __launch_bounds__(kThreads) warp_product_kernel(Tiles t) {
  const int lane = threadIdx.x % 32;
  const __nv_bfloat16* a_tile = t.a + blockIdx.x * t.a_stride;
  const __nv_bfloat16* b_tile = t.b + blockIdx.x * t.b_stride;
  float acc[N / 8][4] = {};
  for (int k0 = 0; k0 < t.k; k0 += 16) {
    uint32_t a[4];
    load_a(a, a_tile, t.k, k0);
#pragma unroll
    for (int j = 0; j < N / 8; ++j) {
      const auto* column = reinterpret_cast<const uint32_t*>(
          b_tile + size_t(j * 8 + lane / 4) * t.k + k0 + lane % 4 * 2);
      const uint32_t b[2] = {column[0], column[4]};
      cuda::mma_m16n8k16(acc[j], a, b);
    }
  }
  float flat[N / 2];
#pragma unroll
  for (int i = 0; i < N / 2; ++i) flat[i] = acc[i / 4][i % 4];
  store_d<N>(t.d + size_t(blockIdx.x) * kRows * N, flat);
}

using Launch = void (*)(const Tiles&, int n_tiles, cudaStream_t);

template <int N, typename Issue>
void launch_product(const Tiles& t, int n_tiles, cudaStream_t stream) {
  constexpr Form kForm = Issue::kForm;
  const int n_lines = N + (kForm.is_a_in_registers ? 0 : kRows);
  const int n_bytes = n_lines * kForm.steps * 16 * 2;
  cuda::check(cudaFuncSetAttribute(product_kernel<N, Issue>,
                                   cudaFuncAttributeMaxDynamicSharedMemorySize, n_bytes));
  product_kernel<N, Issue><<<n_tiles, kThreads, n_bytes, stream>>>(t);
  cuda::check_launch();
}

template <int N>
void launch_warp_product(const Tiles& t, int n_tiles, cudaStream_t stream) {
  warp_product_kernel<N><<<n_tiles, kThreads, 0, stream>>>(t);
  cuda::check_launch();
}

}  // namespace roost::laws
