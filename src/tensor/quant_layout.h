// A weight matrix as it lies in a checkpoint: affine codes in the MLX packing, or plain numbers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "tensor/dtype.h"

namespace roost {

// W [n_out, n_in], y = x·Wᵀ. Borrows its bytes, which may start at any address (MLX files do not
// align), so every read is an unaligned one.
//
// kAffine: w[r, i] = scale[r, i / group] · code[r, i] + bias[r, i / group]; the codes of a row are
// one little-endian bit string of n_in · bits bits, code i at bits [i·bits, (i+1)·bits).
//
// kBricks: the same weights (4 or 8 bits, groups of 64, bf16) in the order in which a card's matrix
// unit takes them, all in `codes`. Brick (i, j) holds rows [64·i, 64·i + 64) of inputs
// [64·j, 64·j + 64) and lies at (i·n_in/64 + j)·brick_bytes(); rows behind the last are zeros. In a
// brick, with thread = 32·warp + 4·g + q, q < 4, g < 8, warp < 4, holding rows r = 16·warp + g and
// r + 8, and of each step s of 16 inputs the inputs k = 16·s + 2·q + {0, 1, 8, 9}:
//   4 bits  word s of the 16 bytes at 16·thread: nibbles 0..3 are (r, k), (r + 8, k), (r, k + 8),
//           (r + 8, k + 8), nibbles 4..7 their neighbours at k + 1
//   8 bits  words 2·(s mod 2) and the next of the 16 bytes at 2048·(s div 2) + 16·thread: bytes of
//           the first are (r, k), (r + 8, k), (r, k + 1), (r + 8, k + 1), those of the second the
//           same at k + 8 and k + 9
//   then    at 8·(8·warp + g) behind the codes: scale and bias of r, scale and bias of r + 8
struct QuantMatrix {
  enum class Format : uint8_t { kAffine, kPlain, kBricks };

  Format format = Format::kAffine;
  int bits = 4;                // kAffine: 2, 3, 4, 5, 6, 8
  int group = 64;              // kAffine: 32, 64, 128; divides n_in
  DType dtype = DType::kBF16;  // kAffine: of scales and biases; kPlain: of the weights. bf16 or f32
  int64_t n_out = 0, n_in = 0;
  const std::byte* codes = nullptr;   // kAffine: [n_out][n_in·bits/8]; kPlain: [n_out][n_in] dtype
  const std::byte* scales = nullptr;  // kAffine: [n_out][n_in / group] of dtype
  const std::byte* biases = nullptr;  // kAffine: as scales

  bool exists() const { return codes != nullptr; }
  int64_t n_groups() const { return n_in / group; }
  size_t row_bytes() const;      // of codes; not of bricks
  size_t n_code_bytes() const;   // of codes, or of bricks
  size_t n_scale_bytes() const;  // of scales, and of biases as many; 0: there are none
  size_t n_bytes() const;        // codes, scales and biases: what one product must read
  size_t brick_bytes() const { return static_cast<size_t>(64 * 64 * bits / 8 + 256); }
  double decode(int64_t row, int64_t col) const;  // exact; for references and tests
  uint32_t code(int64_t row, int64_t col) const;  // kAffine
  QuantMatrix rows(int64_t begin, int64_t n) const;
};

// The three matrices of one SwiGLU network: y = (silu(x·Gᵀ) ⊙ (x·Uᵀ))·Dᵀ.
struct GatedMlp {
  QuantMatrix gate, up, down;  // [m, h], [m, h], [h, m]
};

}  // namespace roost
