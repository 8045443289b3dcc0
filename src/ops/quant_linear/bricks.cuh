// Products of few rows with bricks (QuantMatrix, kBricks): a warp multiplies 16 weight rows with
// kColumns · 8 rows of activations. quant_linear and
// moe_experts are made of it.
//
// Arithmetic of an output: that of product.cuh, step by step; only the order in which memory is
// read differs.
#pragma once

#include "device/cuda/copy.cuh"
#include "device/cuda/mma.cuh"
#include "ops/launch.cuh"

namespace roost::cuda {

inline constexpr int kBrickThreads = 128;
inline constexpr int kBrickRows = 64, kBrickInputs = 64;

__host__ __device__ constexpr int64_t brick_bytes_of(int bits) {
  return 512 * bits + 256;
}

// What a thread holds of a brick: its codes, and scale and bias of its two rows.
template <int kBits>
struct BrickPart {
  uint4 codes[kBits / 4];
  uint2 pairs;
};

// Weights are read once: they pass by the near cache, where the activations stay.
__device__ __forceinline__ uint4 load_once(const uint4* from) {
  uint4 v;
  asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0,%1,%2,%3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(from));
  return v;
}
__device__ __forceinline__ uint2 load_once(const uint2* from) {
  uint2 v;
  asm volatile("ld.global.nc.L1::no_allocate.v2.u32 {%0,%1}, [%2];"
               : "=r"(v.x), "=r"(v.y)
               : "l"(from));
  return v;
}

// part: which 16 rows of the brick, 0..3.
template <int kBits>
__device__ __forceinline__ void load_part(const uint8_t* brick, int part, int lane,
                                          BrickPart<kBits>& to) {
#pragma unroll
  for (int i = 0; i < kBits / 4; ++i)
    to.codes[i] = load_once(reinterpret_cast<const uint4*>(brick + 2048 * i) + 32 * part + lane);
  to.pairs = load_once(reinterpret_cast<const uint2*>(brick + 512 * kBits) + 8 * part + lane / 4);
}

__device__ __forceinline__ uint32_t word_of(const uint4& words, int i) {
  return i == 0 ? words.x : i == 1 ? words.y : i == 2 ? words.z : words.w;
}

__device__ __forceinline__ __nv_bfloat162 pair_of(uint32_t bits) {
  return *reinterpret_cast<const __nv_bfloat162*>(&bits);
}

// Codes below 16 in the low bits of both halves, as bf16: 128 + code has them as its last bits.
__device__ __forceinline__ __nv_bfloat162 small_codes(uint32_t codes) {
  return __hsub2(pair_of((codes & 0x000F000Fu) | 0x43004300u), pair_of(0x43004300u));
}

// The A operand of step 0..3: r16(scale·code + bias).
template <int kBits>
__device__ __forceinline__ void fragment(const BrickPart<kBits>& part, int step, uint32_t (&a)[4]) {
  const __nv_bfloat162 scale[2] = {pair_of(__byte_perm(part.pairs.x, 0, 0x1010)),
                                   pair_of(__byte_perm(part.pairs.y, 0, 0x1010))};
  const __nv_bfloat162 bias[2] = {pair_of(__byte_perm(part.pairs.x, 0, 0x3232)),
                                  pair_of(__byte_perm(part.pairs.y, 0, 0x3232))};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    __nv_bfloat162 codes;
    if constexpr (kBits == 4) {
      codes = small_codes(word_of(part.codes[0], step) >> (4 * i));
    } else {
      const uint32_t word = word_of(part.codes[step / 2], step % 2 * 2 + i / 2) >> (8 * (i % 2));
      // 16·high + low has 8 bits: exact.
      codes = __hfma2(small_codes(word >> 4), pair_of(0x41804180u), small_codes(word));
    }
    const __nv_bfloat162 weights = __hfma2(scale[i % 2], codes, bias[i % 2]);
    a[i] = *reinterpret_cast<const uint32_t*>(&weights);
  }
}

// Activations in the order of the B operand: for 64 inputs j and 8 rows c, two runs of 32 · 16
// bytes at (j·kColumns + c)·64, of steps 0, 1 and 2, 3. A lane's bytes: inputs k, k + 1, k + 8,
// k + 9 of both steps, k = 2·(lane mod 4), of row lane div 4.
struct PackedPlace {
  int64_t run;  // of 16 bytes
  int element;  // of bf16 in it
};
template <int kColumns>
__device__ __forceinline__ PackedPlace packed_place(int token, int64_t input) {
  const int k = int(input % 16), step = int(input % 64) / 16;
  const int lane = 4 * (token % 8) + k % 8 / 2;
  return {((input / 64 * kColumns + token / 8) * 2 + step / 2) * 32 + lane,
          (step % 2 * 2 + k / 8) * 2 + k % 2};
}

// Activations of one brick.
template <int kColumns>
struct PackedPart {
  uint4 words[kColumns][2];
};
template <int kColumns>
__device__ __forceinline__ void load_packed(const uint4* packed, int j, int lane,
                                            PackedPart<kColumns>& to) {
#pragma unroll
  for (int c = 0; c < kColumns; ++c) {
    to.words[c][0] = packed[(j * kColumns + c) * 64 + lane];
    to.words[c][1] = packed[(j * kColumns + c) * 64 + 32 + lane];
  }
}

// sums += weights · activations over n bricks that follow each other. Weights come through a ring
// in shared memory, where a thread reads only what it copied itself: copies end in order, so
// waiting for one leaves those behind it on their way. The first bricks are asked for before
// anything is waited for.
template <int kBits, int kColumns>
__device__ __forceinline__ void brick_chain(const uint8_t* bricks, int n, int part,
                                            const uint4* packed, float (&sums)[kColumns][4]) {
  constexpr int kDepth =
      kBits == 4 ? 10 : 6;  // bricks on their way: what memory's latency asks for
  __shared__ uint4 codes[kDepth][kBits / 4][kBrickThreads];
  __shared__ uint2 pairs[kDepth][kBrickThreads];
  const int lane = threadIdx.x % 32;
  const auto ask_for = [&](int j, int slot) {
    const uint8_t* brick = bricks + j * brick_bytes_of(kBits);
    if (j < n) {
#pragma unroll
      for (int i = 0; i < kBits / 4; ++i)
        copy_16(&codes[slot][i][threadIdx.x], brick + 2048 * i + 16 * (32 * part + lane), true);
      copy_8(&pairs[slot][threadIdx.x], brick + 512 * kBits + 8 * (8 * part + lane / 4));
    }
    copy_commit();  // also where there is none, so that waiting can count
  };
#pragma unroll
  for (int j = 0; j < kDepth; ++j) ask_for(j, j);
  wait_for_inputs();
  PackedPart<kColumns> x[2];
  load_packed<kColumns>(packed, 0, lane, x[0]);
  int slot = 0;
#pragma unroll 1
  for (int first = 0; first < n; first += 2) {
#pragma unroll
    for (int d = 0; d < 2; ++d) {
      const int j = first + d;
      if (j >= n) break;
      load_packed<kColumns>(packed, min(j + 1, n - 1), lane, x[(d + 1) % 2]);
      copy_wait<kDepth - 1>();
      BrickPart<kBits> brick;
#pragma unroll
      for (int i = 0; i < kBits / 4; ++i) brick.codes[i] = codes[slot][i][threadIdx.x];
      brick.pairs = pairs[slot][threadIdx.x];
#pragma unroll
      for (int step = 0; step < 4; ++step) {
        uint32_t a[4];
        fragment<kBits>(brick, step, a);
#pragma unroll
        for (int c = 0; c < kColumns; ++c) {
          const uint4& words = x[d].words[c][step / 2];
          const uint32_t b[2] = {step % 2 == 0 ? words.x : words.z,
                                 step % 2 == 0 ? words.y : words.w};
          mma_m16n8k16(sums[c], a, b);
        }
      }
      ask_for(j + kDepth, slot);
      slot = slot + 1 == kDepth ? 0 : slot + 1;
    }
  }
  copy_wait<0>();
}

// Σ of the block's warps, a quarter each: (P0 + P1) + (P2 + P3), in the sums of warp 0.
template <int kColumns>
__device__ __forceinline__ void join_quarters(float (&sums)[kColumns][4]) {
  __shared__ float parts[3][kColumns * 4][32];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
#pragma unroll
  for (int i = 0; i < kColumns * 4; ++i)
    if (warp > 0) parts[warp - 1][i][lane] = sums[i / 4][i % 4];
  __syncthreads();
  if (warp > 0) return;
#pragma unroll
  for (int i = 0; i < kColumns * 4; ++i)
    sums[i / 4][i % 4] =
        (sums[i / 4][i % 4] + parts[0][i][lane]) + (parts[1][i][lane] + parts[2][i][lane]);
}

// silu(gate)·up, in the sums of warps 0 and 1; warps 2 and 3 hold up.
template <int kColumns>
__device__ __forceinline__ void join_pair(float (&sums)[kColumns][4]) {
  __shared__ float up[2][kColumns * 4][32];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
#pragma unroll
  for (int i = 0; i < kColumns * 4; ++i)
    if (warp > 1) up[warp - 2][i][lane] = sums[i / 4][i % 4];
  __syncthreads();
  if (warp > 1) return;
#pragma unroll
  for (int i = 0; i < kColumns * 4; ++i)
    sums[i / 4][i % 4] = silu_f32(sums[i / 4][i % 4]) * up[warp][i][lane];
}

// Calls store(token, row, value) for the sums of 16 rows from first_row on.
template <int kColumns, class Store>
__device__ __forceinline__ void for_brick_sums(const float (&sums)[kColumns][4], int64_t first_row,
                                               const Store& store) {
  const int lane = threadIdx.x % 32, g = lane / 4, q = lane % 4;
#pragma unroll
  for (int c = 0; c < kColumns; ++c) {
#pragma unroll
    for (int i = 0; i < 4; ++i) store(8 * c + 2 * q + i % 2, first_row + g + i / 2 * 8, sums[c][i]);
  }
}

// How the warps of a block share its work.
enum class BrickMode {
  kChain,     // 64 rows, 16 a warp
  kQuarters,  // 16 rows, a quarter of the inputs a warp
  kPair,      // 32 rows of a SwiGLU pair: gate in warps 0 and 1, up in 2 and 3
};

// The block's tile `tile` of a matrix [n_out, 64·n_across]: calls store(token, row, value) for
// every output, from the warps that have it. Bricks behind n_out are padded, so store must look.
template <int kBits, int kColumns, BrickMode kMode, class Store>
__device__ __forceinline__ void run_brick_tile(const uint8_t* bricks, const uint8_t* up,
                                               int n_across, int tile, const uint4* packed,
                                               const Store& store) {
  const int warp = threadIdx.x / 32;
  const int64_t bytes_across = n_across * brick_bytes_of(kBits);
  float sums[kColumns][4] = {};
  if constexpr (kMode == BrickMode::kChain) {
    brick_chain<kBits, kColumns>(bricks + tile * bytes_across, n_across, warp, packed, sums);
    for_brick_sums<kColumns>(sums, int64_t(tile) * 64 + 16 * warp, store);
  } else if constexpr (kMode == BrickMode::kQuarters) {
    const int n = n_across / 4;
    brick_chain<kBits, kColumns>(
        bricks + tile / 4 * bytes_across + warp * n * brick_bytes_of(kBits), n, tile % 4,
        packed + int64_t(warp) * n * kColumns * 64, sums);
    join_quarters<kColumns>(sums);
    if (warp == 0) for_brick_sums<kColumns>(sums, int64_t(tile) * 16, store);
  } else {
    const uint8_t* mine = warp < 2 ? bricks : up;
    brick_chain<kBits, kColumns>(mine + tile / 2 * bytes_across, n_across, tile % 2 * 2 + warp % 2,
                                 packed, sums);
    join_pair<kColumns>(sums);
    if (warp < 2) for_brick_sums<kColumns>(sums, int64_t(tile) * 32 + 16 * warp, store);
  }
}

inline int64_t tile_rows_of(BrickMode mode) {
  return mode == BrickMode::kChain ? 64 : mode == BrickMode::kPair ? 32 : 16;
}

inline bool is_bricks(const QuantMatrix& w) {
  return w.format == QuantMatrix::Format::kBricks;
}

inline const uint8_t* bricks_of(const QuantMatrix& w) {
  return reinterpret_cast<const uint8_t*>(w.codes);
}

// Bytes of packed activations: rows in eights, 1, 2 or 4 of them.
inline size_t packed_bytes(int64_t n_columns, int64_t n_in) {
  return static_cast<size_t>(n_columns * n_in / 64) * 1024;
}

// Rows that these kernels take; with more, weights are better kept in shared memory.
inline constexpr int64_t kBrickTokensMax = 32;

inline int brick_columns_of(int64_t n_rows) {
  return n_rows <= 8 ? 1 : n_rows <= 16 ? 2 : 4;
}

// x [n_rows, n_in], n_in a multiple of 64, into `packed`; absent rows are zeros.
struct PackCall {
  const uint16_t* x;
  uint4* packed;
  int64_t n_rows, n_in;
  int n_columns;
};
__host__ __device__ constexpr int64_t n_packed_runs(const PackCall& call) {
  return call.n_in * call.n_columns;  // 64 of 16 bytes for 64 inputs of 8 rows
}
// Runs first, first + step, ….
__device__ __forceinline__ void pack_rows(const PackCall& call, int64_t first, int64_t step) {
  for (int64_t run = first; run < n_packed_runs(call); run += step) {
    const int lane = run % 32, half = run / 32 % 2;
    const int64_t block = run / 64, j = block / call.n_columns;
    const int64_t token = block % call.n_columns * 8 + lane / 4;
    uint32_t words[4] = {0, 0, 0, 0};
    if (token < call.n_rows) {
      const uint16_t* from = call.x + token * call.n_in + j * 64 + 32 * half + 2 * (lane % 4);
#pragma unroll
      for (int i = 0; i < 4; ++i) words[i] = *reinterpret_cast<const uint32_t*>(from + 8 * i);
    }
    call.packed[run] = make_uint4(words[0], words[1], words[2], words[3]);
  }
}

// A call with its place in scratch of the context.
inline PackCall take_packed(const uint16_t* x, int64_t n_rows, int64_t n_in, int n_columns,
                            CudaContext& context) {
  auto* packed = context.scratch.take<std::byte>(packed_bytes(n_columns, n_in));
  return {x, reinterpret_cast<uint4*>(packed), n_rows, n_in, n_columns};
}

}  // namespace roost::cuda
