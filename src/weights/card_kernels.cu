// The kernels that make synthetic bytes and bricks.
#include "weights/card_kernels.h"

#include <algorithm>

#include "base/check.h"
#include "device/cuda/check.cuh"
#include "device/cuda/math.cuh"

namespace roost {
namespace {

using namespace cuda;

constexpr int kThreads = 256;
constexpr uint64_t kGolden = 0x9E3779B97F4A7C15u;

__host__ __device__ uint64_t mix(uint64_t x) {
  x ^= x >> 30;
  x *= 0xBF58476D1CE4E5B9u;
  x ^= x >> 27;
  x *= 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}

struct Fill {
  uint64_t key, first_word, n_words;
  SyntheticBytes::Kind kind;
  float base, code_max;
};

__device__ uint16_t scale_bits(float base, uint64_t h) {
  return bf16_of(base * float(58982 + ((h & 0xFFFF) * 13107 >> 16)));
}

__device__ uint16_t number_bits(const Fill& fill, uint64_t h) {
  const uint16_t scale = scale_bits(fill.base, h);
  if (fill.kind == SyntheticBytes::Kind::kScales) return scale;
  return bf16_of(f32_of(scale) * -fill.code_max * 0.5f);
}

__global__ void sm80_fill_synthetic(Fill fill, uint64_t* to) {
  const uint64_t step = uint64_t(gridDim.x) * kThreads;
  for (uint64_t i = blockIdx.x * uint64_t(kThreads) + threadIdx.x; i < fill.n_words; i += step) {
    const uint64_t word = mix(fill.key + (fill.first_word + i + 1) * kGolden);
    uint64_t out = word;
    if (fill.kind != SyntheticBytes::Kind::kCodes) {
      out = 0;
      for (int k = 0; k < 4; ++k) out |= uint64_t(number_bits(fill, word >> (16 * k))) << (16 * k);
    }
    to[i] = out;
  }
}

// A thread fills its 16 or 32 bytes of a brick, and one pair (docs of QuantMatrix, kBricks).
template <int kBits>
__global__ void __launch_bounds__(128) sm80_make_bricks(AffineRows rows, uint8_t* bricks) {
  const int64_t n_across = rows.n_in / 64, n_bricks = (rows.n_rows + 63) / 64 * n_across;
  const int warp = threadIdx.x / 32, g = threadIdx.x % 32 / 4, q = threadIdx.x % 4;
  constexpr int64_t kCodeBytes = 64 * 64 * kBits / 8, kBrickBytes = kCodeBytes + 256;
  for (int64_t brick = blockIdx.x; brick < n_bricks; brick += gridDim.x) {
    const int64_t j = brick % n_across, first_row = brick / n_across * 64 + 16 * warp + g;
    const auto code = [&](int row8, int k) -> uint32_t {
      const int64_t row = first_row + row8, col = j * 64 + k;
      if (row >= rows.n_rows) return 0;
      const uint8_t byte = rows.codes[(row * rows.n_in + col) * kBits / 8];
      return kBits == 8 ? byte : byte >> (4 * (col % 2)) & 15;
    };
    uint8_t* out = bricks + brick * kBrickBytes;
    if constexpr (kBits == 4) {
      uint32_t words[4];
      for (int s = 0; s < 4; ++s) {
        words[s] = 0;
        for (int i = 0; i < 8; ++i)
          words[s] |= code(i % 2 * 8, 16 * s + 2 * q + i / 2 % 2 * 8 + i / 4) << (4 * i);
      }
      reinterpret_cast<uint4*>(out)[threadIdx.x] =
          make_uint4(words[0], words[1], words[2], words[3]);
    } else {
      for (int half = 0; half < 2; ++half) {
        uint32_t words[4];
        for (int w = 0; w < 4; ++w) {
          words[w] = 0;
          for (int i = 0; i < 4; ++i)
            words[w] |= code(i % 2 * 8, 16 * (2 * half + w / 2) + 2 * q + w % 2 * 8 + i / 2)
                        << (8 * i);
        }
        reinterpret_cast<uint4*>(out + 2048 * half)[threadIdx.x] =
            make_uint4(words[0], words[1], words[2], words[3]);
      }
    }
    if (q < 2) {
      const int64_t row = first_row + 8 * q, at = row * n_across + j;
      uint32_t pair = 0;
      if (row < rows.n_rows) pair = uint32_t(rows.scales[at]) | uint32_t(rows.biases[at]) << 16;
      reinterpret_cast<uint32_t*>(out + kCodeBytes)[(8 * warp + g) * 2 + q] = pair;
    }
  }
}

cudaStream_t raw_of(const Stream& stream) {
  return static_cast<cudaStream_t>(stream.raw());
}

}  // namespace

void fill_synthetic_cuda(const SyntheticBytes& bytes, std::byte* to, size_t n_bytes,
                         const Stream& stream) {
  ROOST_CHECK(bytes.first_byte % 8 == 0 && n_bytes % 8 == 0);
  Fill fill{.key = mix(mix(bytes.seed + kGolden) ^ bytes.tensor_id),
            .first_word = bytes.first_byte / 8,
            .n_words = n_bytes / 8,
            .kind = bytes.kind,
            .base = bytes.base};
  fill.code_max = static_cast<float>((1 << bytes.bits) - 1);
  const auto n_blocks = std::clamp<uint64_t>((fill.n_words + kThreads - 1) / kThreads, 1, 1 << 14);
  sm80_fill_synthetic<<<static_cast<unsigned>(n_blocks), kThreads, 0, raw_of(stream)>>>(
      fill, reinterpret_cast<uint64_t*>(to));
  check_launch();
}

void make_bricks_cuda(const AffineRows& rows, int bits, uint8_t* bricks, const Stream& stream) {
  ROOST_CHECK((bits == 4 || bits == 8) && rows.n_in % 64 == 0);
  const int64_t n_bricks = (rows.n_rows + 63) / 64 * (rows.n_in / 64);
  const auto n_blocks = static_cast<unsigned>(std::min<int64_t>(n_bricks, 1 << 16));
  if (bits == 4) {
    sm80_make_bricks<4><<<n_blocks, 128, 0, raw_of(stream)>>>(rows, bricks);
  } else {
    sm80_make_bricks<8><<<n_blocks, 128, 0, raw_of(stream)>>>(rows, bricks);
  }
  check_launch();
}

}  // namespace roost
