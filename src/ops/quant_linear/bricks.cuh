// Products of few rows with bricks (QuantMatrix, kBricks) on the warpgroup matrix unit (sm_90a): a
// warpgroup multiplies 64 weight rows with kColumns · 8 rows of activations, which lie in shared
// memory. quant_linear and moe_experts are made of it.
//
// Arithmetic of an output: that of product.cuh, step by step; only the order in which memory is
// read differs.
#pragma once

#include "device/cuda/copy.cuh"
#include "device/cuda/wgmma.cuh"
#include "ops/launch.cuh"
#include "ops/quant_linear/quarters.cuh"

namespace roost::cuda {

inline constexpr int kBrickThreads = 128;
inline constexpr int kBrickInputs = 64;

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

// Where the block's activations lie in shared memory, as cores of the matrix unit's B operand: 16
// bytes, 8 inputs, of every row, then the next 8 inputs. A core has 8 rows; behind the last row it
// reads on into the next inputs, whose sums nobody stores: columns do not see each other
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
  fence_async_shared();
  __syncthreads();
}

// A warpgroup's way through bricks that follow each other. Weights come through a ring in shared
// memory, where a thread reads only what it copied itself: copies end in order, so waiting for one
// leaves those behind it on their way.
template <int kBits, int kThreads>
class BrickChain {
 public:
  static constexpr int kDepth = kBits == 4 ? 8 : 5;  // bricks on their way
  struct Ring {
    struct Slot {
      uint4 codes[kBits / 4][kThreads];
      uint2 pairs[kThreads];
    } slots[kDepth];
  };

  // Asks for the first bricks of n. part: which 16 rows of a brick are the warp's, 0..3.
  __device__ __forceinline__ BrickChain(Ring& ring, const uint8_t* bricks, int n, int part)
      : place_(shared_address(&ring.slots[0].codes[0][threadIdx.x])),
        first_place_(place_),
        n_left_to_ask_(n),
        n_(n) {
    const int lane = threadIdx.x % 32;
    next_ = bricks + 16 * (32 * part + lane);
    pairs_ = 512 * kBits - 16 * (32 * part + lane) + 8 * (8 * part + lane / 4);
#pragma unroll 1
    for (int j = 0; j < kDepth; ++j) ask_and_turn();
  }

  // sums = weights · activations. in_quarters: (P0 + P1) + (P2 + P3) over the quarters of the
  // bricks, else a chain; a chain has an even number of bricks. The loop is short: a step of few
  // rows runs it from a cold instruction cache.
  template <int kColumns>
  __device__ __forceinline__ void run(const ActivationCores& cores, bool in_quarters,
                                      float (&sums)[kColumns * 4]) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    constexpr int kCoreBytes = 128;
    uint64_t x = core_descriptor(shared_address(cores.base), cores.n_rows * 16, kCoreBytes);
    const int n_chain = in_quarters ? n_ / 4 : n_;
    float part[kColumns * 4] = {}, third[kColumns * 4] = {};
    uint32_t a_even[4][4], a_odd[4][4];
    int quarter = 0;
#pragma unroll 1
    for (int begin = 0; begin < n_; begin += n_chain, ++quarter) {
#pragma unroll 1
      for (int j = 0; j < n_chain; j += 2) {
        step<kColumns>(x, cores.n_rows, a_even, part);
        step<kColumns>(x, cores.n_rows, a_odd, part);
      }
      wgmma_wait<0>();
      wgmma_hold(part);
      end_quarter(quarter, part, third, sums);
    }
    copy_wait<0>();
#endif
  }

 private:
  static constexpr int kSlotBytes = int(sizeof(typename Ring::Slot));

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  // The next brick: its operand is made while the products of the one before it run. x moves on.
  template <int kColumns>
  __device__ __forceinline__ void step(uint64_t& x, int n_rows, uint32_t (&a)[4][4],
                                       float (&sums)[kColumns * 4]) {
    copy_wait<kDepth - 1>();
    BrickPart<kBits> brick;
#pragma unroll
    for (int i = 0; i < kBits / 4; ++i) brick.codes[i] = load_shared_16(place_ + i * 16 * kThreads);
    brick.pairs = load_shared_8(pairs_place());
    wgmma_wait<1>();  // of the products before the last, whose operand is written again
#pragma unroll
    for (int s = 0; s < 4; ++s) fragment<kBits>(brick, s, a[s]);
    wgmma_fence();
#pragma unroll
    for (int s = 0; s < 4; ++s) wgmma(sums, a[s], x + uint32_t(2 * s * n_rows));
    wgmma_commit();
    x += uint32_t(8 * n_rows);
    ask_and_turn();
  }
#endif

  __device__ __forceinline__ uint32_t pairs_place() const {
    return place_ - 8 * threadIdx.x + kBits / 4 * 16 * kThreads;
  }

  // Copies the next brick into the place of the one that was read last, and goes on to the next
  // place. Also a group of copies where there is no brick, so that waiting can count.
  __device__ __forceinline__ void ask_and_turn() {
    if (n_left_to_ask_ > 0) {
#pragma unroll
      for (int i = 0; i < kBits / 4; ++i) copy_16(place_ + i * 16 * kThreads, next_ + 2048 * i);
      copy_8(pairs_place(), next_ + pairs_);
    }
    copy_commit();
    n_left_to_ask_ -= 1;
    next_ += brick_bytes_of(kBits);
    place_ =
        place_ == first_place_ + (kDepth - 1) * kSlotBytes ? first_place_ : place_ + kSlotBytes;
  }

  uint32_t place_, first_place_;  // in shared memory, of the thread's codes
  const uint8_t* next_;           // its codes of the next brick to ask for
  int pairs_;                     // from there to its scales and biases
  int n_left_to_ask_, n_;
};

// silu(gate)·up, in the sums of every four warps' first two; the others hold up.
template <int kColumns, int kThreads>
__device__ __forceinline__ void join_pair(float (&sums)[kColumns * 4]) {
  __shared__ float up[kColumns * 4][kThreads / 2];
  const int warp = threadIdx.x / 32 % 4;
  const int place = threadIdx.x / 128 * 64 + threadIdx.x % 64;
#pragma unroll
  for (int i = 0; i < kColumns * 4; ++i)
    if (warp > 1) up[i][place] = sums[i];
  __syncthreads();
  if (warp > 1) return;
#pragma unroll
  for (int i = 0; i < kColumns * 4; ++i) sums[i] = silu_f32(sums[i]) * up[i][place];
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

// How the warps of a block share its work, four at a time.
enum class BrickMode {
  kChain,     // 64 rows, 16 a warp
  kQuarters,  // the same, of a matrix in quarters
  kPair,      // 32 rows of a SwiGLU pair: gate in the first two warps, up in the others
};

__host__ __device__ constexpr int64_t tile_rows_of(BrickMode mode) {
  return mode == BrickMode::kPair ? 32 : 64;
}

inline bool is_bricks(const QuantMatrix& w) {
  return w.format == QuantMatrix::Format::kBricks;
}

inline const uint8_t* bricks_of(const QuantMatrix& w) {
  return reinterpret_cast<const uint8_t*>(w.codes);
}

}  // namespace roost::cuda
