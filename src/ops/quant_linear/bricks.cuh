// Products of few rows with bricks (QuantMatrix, kBricks) on the warp matrix unit (sm_90): a warp
// multiplies 16 weight rows with kColumns · 8 rows of activations, which lie in shared memory.
// quant_linear and moe_experts are made of it.
//
// Arithmetic of an output: that of product.cuh, step by step; only the order in which memory is
// read differs.
#pragma once

#include "device/cuda/copy.cuh"
#include "device/cuda/mma.cuh"
#include "device/cuda/wgmma.cuh"
#include "ops/launch.cuh"
#include "ops/quant_linear/quarters.cuh"

namespace roost::cuda {

inline constexpr int kBrickInputs = 64;
inline constexpr int kUnitRows = 16;  // weight rows of a warp: a quarter of a brick's

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

// Codes below 16 in the low bits of both halves, as bf16: 128 + code has them as its last bits. One
// instruction masks and merges; the compiler makes two of it.
__device__ __forceinline__ __nv_bfloat162 small_codes(uint32_t codes) {
  uint32_t merged;
  asm("lop3.b32 %0, %1, %2, %3, 0xEA;"
      : "=r"(merged)
      : "r"(codes), "r"(0x000F000Fu), "r"(0x43004300u));
  return __hsub2(pair_of(merged), pair_of(0x43004300u));
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

// Where the block's activations lie in shared memory, as cores of the B operand: 16 bytes, 8
// inputs, of every row, then the next 8 inputs. A core has 8 rows; behind the last row it reads on
// into the next inputs, whose sums nobody stores: columns do not see each other
// (docs/decisions/0002-mma-laws.md, L2).
struct ActivationCores {
  uint8_t* base;
  int n_rows;
};

// Bytes of shared memory of rows of n_in inputs.
inline size_t cores_bytes(int64_t n_rows, int64_t n_in) {
  return static_cast<size_t>(n_rows * n_in * 2) + 256;  // read behind the last core
}

// Rows of n_across · 64 inputs into shared memory, by all threads of the block; row_of(token) is
// where one begins. Leaves a group of copies on its way.
template <class RowOf>
__device__ __forceinline__ void load_cores(const ActivationCores& to, int n_across,
                                           const RowOf& row_of) {
  const int n_pieces = n_across * 8 * to.n_rows;
#pragma unroll 2
  for (int i = threadIdx.x; i < n_pieces; i += blockDim.x)
    copy_16(shared_address(to.base + 16 * i), row_of(i % to.n_rows) + i / to.n_rows * 8);
  copy_commit();
}

// Behind load_cores, in all threads: the rows are there.
__device__ __forceinline__ void wait_for_cores() {
  copy_wait<0>();
  __syncthreads();
}

// A warp's way through bricks that follow each other, two at a time. Weights come through a ring in
// shared memory, where a thread reads only what it copied itself: copies end in order, so waiting
// for one leaves those behind it on their way. kDepth: how many, at least 4.
template <int kBits, int kDepth>
class BrickChain {
  static constexpr int kCodesBytes = 128 * kBits;  // of a warp and a brick, as the next
  static constexpr int kPairsBytes = 256;

 public:
  static constexpr int kRingBytes = kDepth * (kCodesBytes + kPairsBytes);  // of a warp

  // Asks for the first bricks of n. unit: which 16 rows of a brick are the warp's, 0..3.
  __device__ __forceinline__ BrickChain(uint8_t* ring, const uint8_t* bricks, int n, int unit)
      : n_left_to_ask_(n), n_(n) {
    const int lane = threadIdx.x % 32;
    codes_ = shared_address(ring) + 16 * lane;
    pairs_ = shared_address(ring) + kDepth * kCodesBytes + 8 * lane;
    next_codes_ = bricks + 16 * (32 * unit + lane);
    next_pairs_ = bricks + 512 * kBits + 8 * (8 * unit + lane / 4);
#pragma unroll 1
    for (int slot = 0; slot < kDepth; slot += 2) ask_two(slot);
  }

  // sums = weights · activations. in_quarters: (P0 + P1) + (P2 + P3) over the quarters of the
  // bricks, else a chain; a chain has an even number of bricks, or none. The loop is short: a step
  // of few rows runs it from a cold instruction cache. Operands are loaded a brick ahead.
  template <int kColumns>
  __device__ __forceinline__ void run(const ActivationCores& cores, bool in_quarters,
                                      float (&sums)[kColumns * 4]) {
    const int lane = threadIdx.x % 32, n_chain = in_quarters ? n_ / 4 : n_;
    const uint32_t brick_of_rows = 128 * cores.n_rows;
    uint32_t x = shared_address(cores.base) + 16 * (lane / 8 * cores.n_rows + lane % 8);
    float part[kColumns * 4] = {}, third[kColumns * 4] = {};
    Operands<kColumns> even, odd;
    int slot = 0, quarter = 0, n_left = n_;
    if (n_left > 0) {
      copy_wait<kDepth / 2 - 1>();
      load(even, slot, x, cores.n_rows);
    }
#pragma unroll 1
    for (int begin = 0; begin < n_; begin += n_chain, ++quarter) {
#pragma unroll 1
      for (int j = 0; j < n_chain; j += 2) {
        load(odd, slot + 1, x + brick_of_rows, cores.n_rows);
        multiply(even, part);
        x += 2 * brick_of_rows;
        n_left -= 2;
        const int asked = slot;
        slot = (slot + 2) % kDepth;
        if (n_left > 0) {
          copy_wait<kDepth / 2 - 2>();
          load(even, slot, x, cores.n_rows);
        }
        multiply(odd, part);
        ask_two(asked);
      }
      end_quarter(quarter, part, third, sums);
    }
    copy_wait<0>();
  }

 private:
  static_assert(kDepth % 2 == 0 && kDepth >= 4);

  // Of one brick: a thread's weights, and both halves of the inputs for each 8 rows.
  template <int kColumns>
  struct Operands {
    BrickPart<kBits> weights;
    uint32_t x[kColumns][2][4];
  };

  template <int kColumns>
  __device__ __forceinline__ void load(Operands<kColumns>& to, int slot, uint32_t x, int n_rows) {
#pragma unroll
    for (int i = 0; i < kBits / 4; ++i)
      to.weights.codes[i] = load_shared_16(codes_ + slot * kCodesBytes + 512 * i);
    to.weights.pairs = load_shared_8(pairs_ + slot * kPairsBytes);
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
      load_matrices(to.x[c][0], x + 128 * c);
      load_matrices(to.x[c][1], x + 128 * c + 64 * n_rows);
    }
  }

  template <int kColumns>
  static __device__ __forceinline__ void multiply(const Operands<kColumns>& operands,
                                                  float (&sums)[kColumns * 4]) {
#pragma unroll
    for (int step = 0; step < 4; ++step) {
      uint32_t a[4];
      fragment<kBits>(operands.weights, step, a);
#pragma unroll
      for (int c = 0; c < kColumns; ++c) {
        const uint32_t(&x)[4] = operands.x[c][step / 2];
        const uint32_t b[2] = {x[step % 2 * 2], x[step % 2 * 2 + 1]};
        mma_m16n8k16(reinterpret_cast<float(&)[4]>(sums[4 * c]), a, b);
      }
    }
  }

  // Copies the next two bricks into two places that have been read. Also a group of copies where
  // there are no bricks, so that waiting can count.
  __device__ __forceinline__ void ask_two(int slot) {
    if (n_left_to_ask_ > 0) {
#pragma unroll
      for (int brick = 0; brick < 2; ++brick) {
        const int64_t at = brick * brick_bytes_of(kBits);
#pragma unroll
        for (int i = 0; i < kBits / 4; ++i)
          copy_16(codes_ + (slot + brick) * kCodesBytes + 512 * i, next_codes_ + at + 2048 * i);
        copy_8(pairs_ + (slot + brick) * kPairsBytes, next_pairs_ + at);
      }
    }
    copy_commit();
    n_left_to_ask_ -= 2;
    next_codes_ += 2 * brick_bytes_of(kBits);
    next_pairs_ += 2 * brick_bytes_of(kBits);
  }

  uint32_t codes_, pairs_;  // in shared memory, the thread's places of the first slot
  const uint8_t *next_codes_, *next_pairs_;
  int n_left_to_ask_, n_;
};

// silu(gate)·up in the sums of the even warps; the odd ones beside them hold up. All threads of the
// block call it, with a place of 32 · kColumns · 4 numbers for each warp.
template <int kColumns>
__device__ __forceinline__ void join_pair(float* place_of_warp, float (&sums)[kColumns * 4]) {
  const bool is_up = threadIdx.x / 32 % 2 == 1;
  float* place = place_of_warp + threadIdx.x % 32;
#pragma unroll
  for (int i = 0; i < kColumns * 4; ++i)
    if (is_up) place[32 * i] = sums[i];
  __syncthreads();
  if (is_up) return;
#pragma unroll
  for (int i = 0; i < kColumns * 4; ++i) sums[i] = silu_f32(sums[i]) * place[32 * i];
}

// Calls store(token, row, value) for the sums of 16 rows from first_row on.
template <int kColumns, class Store>
__device__ __forceinline__ void for_brick_sums(const float (&sums)[kColumns * 4], int64_t first_row,
                                               const Store& store) {
  const int lane = threadIdx.x % 32, g = lane / 4, q = lane % 4;
#pragma unroll
  for (int i = 0; i < kColumns * 4; ++i)
    store(i / 4 * 8 + 2 * q + i % 2, first_row + g + i / 2 % 2 * 8, sums[i]);
}

// Products of a row take two bricks at a time.
inline bool has_even_chains(int64_t n_in, int n_chains) {
  return n_in % (2 * n_chains * kBrickInputs) == 0;
}

// How warps share the 16 rows of a unit.
enum class BrickMode {
  kChain,     // one warp
  kQuarters,  // one warp of each of four blocks, which run together
  kPair,      // two warps: gate and up of a SwiGLU pair
};

inline bool is_bricks(const QuantMatrix& w) {
  return w.format == QuantMatrix::Format::kBricks;
}

inline const uint8_t* bricks_of(const QuantMatrix& w) {
  return reinterpret_cast<const uint8_t*>(w.codes);
}

}  // namespace roost::cuda
