// Products of few rows with bricks (QuantMatrix, kBricks): a warp multiplies 16 weight rows with
// kColumns · 8 rows of activations, which lie in shared memory. quant_linear and moe_experts are
// made of it.
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

// Where the block's activations lie in shared memory, in the order of the B operand: of 64 inputs j
// and 8 rows c, two runs of 16 bytes a lane, of steps 0, 1 and 2, 3. A lane's bytes: inputs k, k +
// 1, k + 8, k + 9 of both steps, k = 2·(lane mod 4), of row lane div 4. Lanes of absent rows have
// no place: their operands are zeros.
template <int kColumns>
struct PackedRows {
  uint4* runs;
  int n_lanes;  // 4 a row; 32 where there is more than one column

  __device__ PackedRows(void* shared, int n_rows)
      : runs(static_cast<uint4*>(shared)), n_lanes(kColumns > 1 ? 32 : 4 * n_rows) {}
  __device__ __forceinline__ uint4* run(int j, int column, int half) const {
    return runs + ((j * kColumns + column) * 2 + half) * n_lanes;
  }
  __device__ PackedRows from_brick(int j) const {
    PackedRows moved = *this;
    moved.runs = run(j, 0, 0);
    return moved;
  }
};

// Bytes of shared memory of rows of n_in inputs.
inline size_t packed_bytes(int n_columns, int64_t n_rows, int64_t n_in) {
  const int64_t n_lanes = n_columns > 1 ? 32 * n_columns : 4 * n_rows;
  return static_cast<size_t>(n_in / kBrickInputs * 2 * n_lanes) * sizeof(uint4);
}

// Rows 0 .. n_rows of n_across · 64 inputs into shared memory; row_of(token) is where one begins. A
// warp takes 8 pieces of 32 inputs at a time: its lanes, in the order (16-byte part, row, piece),
// write to different banks, as each starts with another of the four words it has.
template <int kColumns, class RowOf>
__device__ __forceinline__ void pack_rows(const PackedRows<kColumns>& to, int n_rows, int n_across,
                                          const RowOf& row_of) {
  constexpr int kBatch = 6;  // loads of a thread on their way together
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, n_warps = blockDim.x / 32;
  const int n_beside = kColumns > 1 || n_rows > 4 ? 8 : n_rows > 2 ? 4 : n_rows;  // rows of a warp
  const int part = lane % 4, beside = lane / 4 % n_beside, after = lane / 4 / n_beside;
  const int n_pieces = 2 * n_across, step = 8 / n_beside * n_warps;
  const int first = 8 / n_beside * warp + after, turn = lane / 8;
#pragma unroll
  for (int column = 0; column < kColumns; ++column) {
    const int token = 8 * column + beside;
    const bool is_there = token < n_rows;
    if (!is_there && kColumns == 1) continue;
    const uint16_t* row = row_of(is_there ? token : 0) + 8 * part;
    for (int begin = first; begin < n_pieces; begin += kBatch * step) {
      uint4 values[kBatch];
#pragma unroll
      for (int i = 0; i < kBatch; ++i) {
        const int piece = min(begin + i * step, n_pieces - 1);
        values[i] = *reinterpret_cast<const uint4*>(row + 32 * piece);
        if (!is_there) values[i] = make_uint4(0, 0, 0, 0);
      }
#pragma unroll
      for (int i = 0; i < kBatch; ++i) {
        const int piece = begin + i * step;
        if (piece >= n_pieces) break;
        auto* words = reinterpret_cast<uint32_t*>(to.run(piece / 2, column, piece % 2)) + part;
#pragma unroll
        for (int w = 0; w < 4; ++w) {
          const int q = (w + turn) % 4;
          const uint32_t word = q == 0   ? values[i].x
                                : q == 1 ? values[i].y
                                : q == 2 ? values[i].z
                                         : values[i].w;
          words[(4 * beside + q) * 4] = word;
        }
      }
    }
  }
}

// A warp's way through bricks that follow each other. Weights come through a ring in shared memory,
// where a thread reads only what it copied itself: copies end in order, so waiting for one leaves
// those behind it on their way.
template <int kBits, int kThreads>
class BrickChain {
 public:
  static constexpr int kDepth = kBits == 4 ? 8 : 5;  // bricks on their way
  struct Ring {
    uint4 codes[kDepth][kBits / 4][kThreads];
    uint2 pairs[kDepth][kThreads];
  };

  // Asks for the first bricks of n. part: which 16 rows of a brick are the warp's, 0..3.
  __device__ __forceinline__ BrickChain(Ring& ring, const uint8_t* bricks, int n, int part)
      : ring_(ring), n_(n) {
    const int lane = threadIdx.x % 32;
    codes_ = bricks + 16 * (32 * part + lane);
    pairs_ = bricks + 512 * kBits + 8 * (8 * part + lane / 4);
#pragma unroll
    for (int d = 0; d < kDepth; ++d) ask_for(d, d < n);
  }

  // sums += weights · activations. zeros: 16 bytes of zeros in shared memory.
  template <int kColumns>
  __device__ __forceinline__ void run(const PackedRows<kColumns>& packed, const uint4* zeros,
                                      float (&sums)[kColumns][4]) {
    const int lane = threadIdx.x % 32;
    const bool has_row = lane < packed.n_lanes;
    const uint4* x = has_row ? packed.runs + lane : zeros;
    const int step = has_row ? packed.n_lanes : 0;
    int j = 0;
    // Places of the ring and of bricks are constants of the unrolled code.
#pragma unroll 1
    for (; j + kDepth <= n_; j += kDepth) {
#pragma unroll
      for (int d = 0; d < kDepth; ++d) {
        multiply<kColumns>(d, x, step, sums);
        ask_for(d + kDepth, j + d + kDepth < n_);
      }
      codes_ += kDepth * brick_bytes_of(kBits);
      pairs_ += kDepth * brick_bytes_of(kBits);
    }
#pragma unroll
    for (int d = 0; d < kDepth; ++d) {
      if (j + d >= n_) break;
      multiply<kColumns>(d, x, step, sums);
      copy_commit();
    }
    copy_wait<0>();
  }

 private:
  // The brick in place d of the ring; x moves on to the activations of the next.
  template <int kColumns>
  __device__ __forceinline__ void multiply(int d, const uint4*& x, int step,
                                           float (&sums)[kColumns][4]) {
    uint4 words[kColumns][2];
#pragma unroll
    for (int i = 0; i < kColumns * 2; ++i, x += step) words[i / 2][i % 2] = *x;
    copy_wait<kDepth - 1>();
    BrickPart<kBits> brick;
#pragma unroll
    for (int i = 0; i < kBits / 4; ++i) brick.codes[i] = ring_.codes[d][i][threadIdx.x];
    brick.pairs = ring_.pairs[d][threadIdx.x];
#pragma unroll
    for (int s = 0; s < 4; ++s) {
      uint32_t a[4];
      fragment<kBits>(brick, s, a);
#pragma unroll
      for (int c = 0; c < kColumns; ++c) {
        const uint4& of = words[c][s / 2];
        const uint32_t b[2] = {s % 2 == 0 ? of.x : of.z, s % 2 == 0 ? of.y : of.w};
        mma_m16n8k16(sums[c], a, b);
      }
    }
  }

  // The brick `ahead` behind the next one; also a group of copies where there is none, so that
  // waiting can count.
  __device__ __forceinline__ void ask_for(int ahead, bool is_there) {
    const int slot = ahead % kDepth;
#pragma unroll
    for (int i = 0; i < kBits / 4; ++i)
      copy_16_if(is_there, shared_place(&ring_.codes[slot][i][threadIdx.x]),
                 codes_ + ahead * brick_bytes_of(kBits) + 2048 * i);
    copy_8_if(is_there, shared_place(&ring_.pairs[slot][threadIdx.x]),
              pairs_ + ahead * brick_bytes_of(kBits));
    copy_commit();
  }
  static __device__ __forceinline__ uint32_t shared_place(const void* p) {
    return uint32_t(__cvta_generic_to_shared(p));
  }

  Ring& ring_;
  const uint8_t *codes_, *pairs_;  // of the next brick that was not multiplied
  int n_;
};

// Σ of four neighbouring warps, a quarter each: (P0 + P1) + (P2 + P3), in the sums of the first.
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

// silu(gate)·up, in the sums of every four warps' first two; the others hold up.
template <int kColumns, int kThreads>
__device__ __forceinline__ void join_pair(float (&sums)[kColumns][4]) {
  __shared__ float up[kColumns * 4][kThreads / 2];
  const int warp = threadIdx.x / 32 % 4;
  const int place = threadIdx.x / 128 * 64 + threadIdx.x % 64;
#pragma unroll
  for (int i = 0; i < kColumns * 4; ++i)
    if (warp > 1) up[i][place] = sums[i / 4][i % 4];
  __syncthreads();
  if (warp > 1) return;
#pragma unroll
  for (int i = 0; i < kColumns * 4; ++i)
    sums[i / 4][i % 4] = silu_f32(sums[i / 4][i % 4]) * up[i][place];
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

// How the warps of a block share its work, four at a time.
enum class BrickMode {
  kChain,     // 64 rows, 16 a warp
  kQuarters,  // 16 rows, a quarter of the inputs a warp
  kPair,      // 32 rows of a SwiGLU pair: gate in the first two warps, up in the others
};

__host__ __device__ constexpr int64_t tile_rows_of(BrickMode mode) {
  return mode == BrickMode::kChain ? 64 : mode == BrickMode::kPair ? 32 : 16;
}

inline bool is_bricks(const QuantMatrix& w) {
  return w.format == QuantMatrix::Format::kBricks;
}

inline const uint8_t* bricks_of(const QuantMatrix& w) {
  return reinterpret_cast<const uint8_t*>(w.codes);
}

}  // namespace roost::cuda
