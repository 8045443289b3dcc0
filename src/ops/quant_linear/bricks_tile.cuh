// Products of many rows with bricks on the warpgroup matrix unit (sm_90a): a block multiplies 128
// weight rows, 64 a warpgroup, with kTokens rows of activations. Both come through stages in shared
// memory; weights go on into the registers of the A operand. quant_linear and moe_experts are made
// of it.
//
// Arithmetic of an output: that of product.cuh, step by step (docs/decisions/0002-mma-laws.md).
#pragma once

#include "device/cuda/copy.cuh"
#include "device/cuda/wgmma.cuh"
#include "ops/quant_linear/bricks.cuh"
#include "ops/quant_linear/quarters.cuh"

namespace roost::cuda {

inline constexpr int kTileThreads = 256;

// Stages on their way, as many as leave room for two blocks of 4-bit weights on a multiprocessor.
template <int kTokens>
inline constexpr int kTileStages = kTokens > 64 ? 5 : 7;

// Dynamic shared memory: stages of kTokens lines of 64 inputs, swizzled by 128 bytes, then of each
// thread's part of a brick. At the end of a pair they hold the up sums.
template <int kBits, int kTokens>
constexpr size_t tile_shared_bytes() {
  return size_t{kTileStages<kTokens>} * (kTokens * 128 + kTileThreads * (4 * kBits + 8)) + 1024;
}

// One block's product. Bits of the weights, rows of activations, and where a warpgroup's bricks
// begin come with the call; chains are whole, or quarters of n_across. A chain has an even number
// of bricks.
template <int kBits, int kTokens, bool kQuarters>
class BrickTile {
 public:
  static constexpr int kSums = kTokens / 2;
  static constexpr int kStages = kTileStages<kTokens>;
  using Sums = float[kSums];

  // shared: dynamic shared memory, aligned here.
  __device__ explicit BrickTile(uint8_t* shared)
      : stages_(
            reinterpret_cast<uint8_t*>((reinterpret_cast<uintptr_t>(shared) + 1023) & ~1023ull)),
        weights_(shared_address(stages_ + kStages * (kTokens * 128))),
        lane_(threadIdx.x % 32),
        part_(threadIdx.x % 128 / 32) {}

  // row_of(token): a row of activations, for absent tokens any. bricks: the first of this
  // warpgroup's row tile.
  template <class RowOf>
  __device__ void run(const uint8_t* bricks, int n_across, int n_tokens, const RowOf& row_of,
                      Sums& sums) {
    Rows rows;
#pragma unroll
    for (int i = 0; i < kPieces; ++i) {
      const int token = int(threadIdx.x) / 8 + 32 * i;
      rows.is_there[i] = token < n_tokens;
      rows.first[i] = row_of(min(token, n_tokens - 1)) + threadIdx.x % 8 * 8;
    }
    __syncthreads();  // what the product before left in the stages has been read
#pragma unroll
    for (int s = 0; s < kStages - 2; ++s) load_stage(bricks, rows, s, n_across);
    uint32_t a_even[4][4], a_odd[4][4];
    Sums part, third;
    clear(part);
    constexpr int kChains = kQuarters ? 4 : 1;
    const int n_pairs = n_across / (2 * kChains);
#pragma unroll
    for (int chain = 0; chain < kChains; ++chain) {
#pragma unroll 1
      for (int pair = 0; pair < n_pairs; ++pair) {
        const int j = 2 * (chain * n_pairs + pair);
        step(bricks, rows, j, n_across, a_even, part);
        step(bricks, rows, j + 1, n_across, a_odd, part);
      }
      finish(part);
      if constexpr (kQuarters) {
        end_quarter(chain, part, third, sums);
      } else {
#pragma unroll
        for (int i = 0; i < kSums; ++i) sums[i] = part[i];
      }
    }
    copy_wait<0>();
  }

  // Calls store(token, row of the warpgroup's 64, value) for every sum of the thread.
  template <class Store>
  __device__ void for_sums(const Sums& sums, const Store& store) const {
#pragma unroll
    for (int i = 0; i < kSums; ++i)
      store(i / 4 * 8 + 2 * (lane_ % 4) + i % 2, 16 * part_ + lane_ / 4 + i / 2 % 2 * 8, sums[i]);
  }

  // silu(gate)·up into the sums of warpgroup 0; warpgroup 1 holds up.
  __device__ void join_pair(Sums& sums) {
    auto* up = reinterpret_cast<float*>(stages_);
    __syncthreads();  // the stages have been read
    const int place = threadIdx.x % 128;
#pragma unroll
    for (int i = 0; i < kSums; ++i)
      if (threadIdx.x >= 128) up[i * 128 + place] = sums[i];
    __syncthreads();
#pragma unroll
    for (int i = 0; i < kSums; ++i)
      if (threadIdx.x < 128) sums[i] = silu_f32(sums[i]) * up[i * 128 + place];
  }

 private:
  static constexpr int kPieces = kTokens * 8 / kTileThreads;  // of 16 bytes, of a thread and stage
  struct Rows {
    const uint16_t* first[kPieces];
    bool is_there[kPieces];
  };

  static __device__ void clear(Sums& sums) {
#pragma unroll
    for (int i = 0; i < kSums; ++i) sums[i] = 0;
  }

  // Behind the last brick it is loaded again, so that every step is alike.
  __device__ __forceinline__ void load_stage(const uint8_t* bricks, const Rows& rows, int j,
                                             int n_across) {
    uint8_t* stage = stages_ + j % kStages * (kTokens * 128);
    const int piece = threadIdx.x % 8, at = min(j, n_across - 1), input = at * 64;
    const uint8_t* brick = bricks + at * brick_bytes_of(kBits);
    const uint32_t weights = weights_of(j);
#pragma unroll
    for (int i = 0; i < kBits / 4; ++i)
      copy_16(weights + i * 16 * kTileThreads, brick + 2048 * i + 16 * (32 * part_ + lane_));
    copy_8(pairs_of(weights), brick + 512 * kBits + 8 * (8 * part_ + lane_ / 4));
#pragma unroll
    for (int i = 0; i < kPieces; ++i) {
      const int line = threadIdx.x / 8 + 32 * i;
      copy_16(stage + line * 128 + (piece ^ line % 8) * 16, rows.first[i] + input,
              rows.is_there[i]);
    }
    copy_commit();
  }

  // The thread's own part of brick j in its stage.
  __device__ __forceinline__ uint32_t weights_of(int j) const {
    return weights_ + j % kStages * (kTileThreads * (4 * kBits + 8)) + 16 * threadIdx.x;
  }
  static __device__ __forceinline__ uint32_t pairs_of(uint32_t weights) {
    return weights - 8 * threadIdx.x + kBits / 4 * 16 * kTileThreads;
  }

  // Brick j: its fragments are made while the products of brick j - 1 run.
  __device__ __forceinline__ void step(const uint8_t* bricks, const Rows& rows, int j, int n_across,
                                       uint32_t (&a)[4][4], Sums& sums) {
    copy_wait<kStages - 3>();
    BrickPart<kBits> brick;
#pragma unroll
    for (int i = 0; i < kBits / 4; ++i)
      brick.codes[i] = load_shared_16(weights_of(j) + i * 16 * kTileThreads);
    brick.pairs = load_shared_8(pairs_of(weights_of(j)));
#pragma unroll
    for (int s = 0; s < 4; ++s) fragment<kBits>(brick, s, a[s]);
    fence_async_shared();
    __syncthreads();  // brick j's activations are there, and nobody reads stage j - 2 any more
    const uint32_t stage = shared_address(stages_ + j % kStages * (kTokens * 128));
    wgmma_fence();
#pragma unroll
    for (int s = 0; s < 4; ++s) wgmma(sums, a[s], swizzled_descriptor(stage + 32 * s));
    wgmma_commit();
    wgmma_wait<1>();
    load_stage(bricks, rows, j + kStages - 2, n_across);
  }

  static __device__ __forceinline__ void finish(Sums& sums) {
    wgmma_wait<0>();
    wgmma_hold(sums);
  }

  uint8_t* stages_;
  uint32_t weights_;  // in shared memory
  int lane_, part_;
};

}  // namespace roost::cuda
