// The plain matrix product of the card: a block multiplies 64 weight rows with up to kTokens rows
// of activations. quant_linear and moe_experts are made of it, so their products have the same
// bits.
//
// Arithmetic of an output, whatever kTokens is and wherever the output lies in the tile: weights
// r16(scale·code + bias), activations as they are, k16 steps of mma in ascending order from a zero
// accumulator (a chain); or four chains over the quarters of n_in, (P0 + P1) + (P2 + P3).
#pragma once

#include "device/cuda/mma.cuh"
#include "ops/launch.cuh"
#include "ops/quant_linear/bricks.cuh"
#include "ops/quant_linear/quarters.cuh"

namespace roost::cuda {

inline constexpr int kProductThreads = 128;
inline constexpr int kProductOutputs = 64;                 // 16 a warp
inline constexpr int kProductInputs = 64;                  // decoded at a time
inline constexpr int kProductStride = kProductInputs + 8;  // fragments of 8 rows meet no bank twice

// kTokens: 8, 32 or 64.
template <int kTokens>
struct ProductTile {
  static constexpr int kColumns = kTokens / 8;
  using Sums = float[kColumns][4];

  alignas(16) uint16_t weights[kProductOutputs * kProductStride];
  alignas(16) uint16_t inputs[kTokens * kProductStride];
  const uint16_t* rows[kTokens];  // of the activations, null: none. Filled by the caller
};

__device__ __forceinline__ void store_bf16(uint16_t* to, const float (&values)[8]) {
  uint32_t pairs[4];
#pragma unroll
  for (int i = 0; i < 4; ++i)
    pairs[i] = uint32_t(bf16_of(values[2 * i])) | uint32_t(bf16_of(values[2 * i + 1])) << 16;
  *reinterpret_cast<uint4*>(to) = make_uint4(pairs[0], pairs[1], pairs[2], pairs[3]);
}

// A brick, a thread its own part of it.
template <int kBits>
__device__ __forceinline__ void load_brick(const uint8_t* brick, uint16_t* tile) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  BrickPart<kBits> part;
  load_part<kBits>(brick, warp, lane, part);
  uint16_t* to = tile + (16 * warp + lane / 4) * kProductStride + 2 * (lane % 4);
#pragma unroll
  for (int step = 0; step < 4; ++step) {
    uint32_t a[4];
    fragment<kBits>(part, step, a);
#pragma unroll
    for (int i = 0; i < 4; ++i)
      *reinterpret_cast<uint32_t*>(to + i % 2 * 8 * kProductStride + 16 * step + i / 2 * 8) = a[i];
  }
}

// Weights [first_row, + 64) x [k, + 64); zeros outside of the matrix.
__device__ __forceinline__ void load_weights(const WeightView& w, int64_t first_row, int64_t k,
                                             uint16_t* tile) {
  if (w.is_bricks) {
    const uint8_t* brick =
        w.codes + (first_row / 64 * (w.n_in / 64) + k / 64) * brick_bytes_of(w.bits);
    if (w.bits == 4) return load_brick<4>(brick, tile);
    return load_brick<8>(brick, tile);
  }
#pragma unroll 1
  for (int run = threadIdx.x; run < kProductOutputs * 8; run += kProductThreads) {
    const int row = run / 8, col = run % 8 * 8;
    float values[8] = {0, 0, 0, 0, 0, 0, 0, 0};
    if (first_row + row < w.n_out) eight_weights(w, first_row + row, k + col, values);
    store_bf16(tile + row * kProductStride + col, values);
  }
}

// Inputs [k, + 64) of every row of the tile; zeros behind a row's end and for absent rows.
template <int kTokens>
__device__ __forceinline__ void load_inputs(ProductTile<kTokens>& tile, int64_t n_in, int64_t k) {
#pragma unroll 1
  for (int run = threadIdx.x; run < kTokens * 8; run += kProductThreads) {
    const int token = run / 8, col = run % 8 * 8;
    const uint16_t* row = tile.rows[token];
    const int64_t n_left = row == nullptr ? 0 : n_in - k - col;
    uint4 values = make_uint4(0, 0, 0, 0);
    const uint16_t* from = row + k + col;
    if (n_left >= 8 && (reinterpret_cast<uintptr_t>(from) & 15) == 0) {
      values = *reinterpret_cast<const uint4*>(from);
    } else if (n_left > 0) {
      uint32_t pairs[4] = {0, 0, 0, 0};
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        if (i < n_left) pairs[i / 2] |= uint32_t(from[i]) << (16 * (i % 2));
      }
      values = make_uint4(pairs[0], pairs[1], pairs[2], pairs[3]);
    }
    *reinterpret_cast<uint4*>(tile.inputs + token * kProductStride + col) = values;
  }
}

__device__ __forceinline__ uint32_t pair_at(const uint16_t* from) {
  return *reinterpret_cast<const uint32_t*>(from);
}

// sums += weights · inputs over the 64 inputs in shared memory.
template <int kTokens>
__device__ __forceinline__ void add_steps(const ProductTile<kTokens>& tile,
                                          typename ProductTile<kTokens>::Sums& sums) {
  const int lane = threadIdx.x % 32, g = lane / 4, q = lane % 4;
  const uint16_t* a_row = tile.weights + (threadIdx.x / 32 * 16 + g) * kProductStride + 2 * q;
  const uint16_t* b_row = tile.inputs + g * kProductStride + 2 * q;
#pragma unroll
  for (int step = 0; step < kProductInputs; step += 16) {
    const uint32_t a[4] = {pair_at(a_row + step), pair_at(a_row + 8 * kProductStride + step),
                           pair_at(a_row + step + 8),
                           pair_at(a_row + 8 * kProductStride + step + 8)};
#pragma unroll
    for (int c = 0; c < ProductTile<kTokens>::kColumns; ++c) {
      const uint16_t* column = b_row + c * 8 * kProductStride + step;
      const uint32_t b[2] = {pair_at(column), pair_at(column + 8)};
      mma_m16n8k16(sums[c], a, b);
    }
  }
}

// sums = the product of weight rows [first_row, + 64) with the rows of the tile, in its tree. With
// g = lane / 4, q = lane % 4: sums[c][0], [1] are weight row 16·warp + g, tokens 8·c + 2·q and the
// next; [2], [3] weight row + 8.
template <int kTokens>
__device__ __forceinline__ void multiply(const WeightView& w, int64_t first_row, bool in_quarters,
                                         ProductTile<kTokens>& tile,
                                         typename ProductTile<kTokens>::Sums& sums) {
  constexpr int kColumns = ProductTile<kTokens>::kColumns;
  float part[kColumns][4] = {}, third[kColumns][4] = {};
  const int64_t chain = in_quarters ? w.n_in / 4 : w.n_in;
  int64_t chain_end = chain;
  int quarter = 0;
#pragma unroll 1
  for (int64_t k = 0; k < w.n_in; k += kProductInputs) {
    __syncthreads();  // the tile before has been multiplied; the rows are known
    load_weights(w, first_row, k, tile.weights);
    load_inputs(tile, w.n_in, k);
    __syncthreads();
    add_steps<kTokens>(tile, part);
    if (k + kProductInputs < chain_end) continue;
    // A chain over everything ends as quarter 0, which hands its sum over as it is.
#pragma unroll
    for (int c = 0; c < kColumns; ++c) end_quarter(quarter, part[c], third[c], sums[c]);
    chain_end += chain;
    quarter += 1;
  }
}

// Calls store(token, output, value) for every sum of the thread.
template <int kTokens, class Store>
__device__ __forceinline__ void for_sums(const float (&sums)[kTokens / 8][4], const Store& store) {
  const int lane = threadIdx.x % 32, g = lane / 4, q = lane % 4;
  const int output = threadIdx.x / 32 * 16 + g;
#pragma unroll
  for (int c = 0; c < kTokens / 8; ++c) {
#pragma unroll
    for (int i = 0; i < 4; ++i) store(8 * c + 2 * q + i % 2, output + i / 2 * 8, sums[c][i]);
  }
}

// silu(gate)·up, into gate.
template <int kColumns>
__device__ __forceinline__ void swiglu(float (&gate)[kColumns][4], const float (&up)[kColumns][4]) {
#pragma unroll
  for (int c = 0; c < kColumns; ++c) {
#pragma unroll
    for (int i = 0; i < 4; ++i) gate[c][i] = silu_f32(gate[c][i]) * up[c][i];
  }
}

// Quarters are whole tiles of inputs only where 256 divides n_in; other matrices are chains.
inline bool has_quarters(const QuantMatrix& w) {
  return w.n_in % (4 * kProductInputs) == 0;
}

}  // namespace roost::cuda
