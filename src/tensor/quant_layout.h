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
struct QuantMatrix {
  enum class Format : uint8_t { kAffine, kPlain };

  Format format = Format::kAffine;
  int bits = 4;                // kAffine: 2, 3, 4, 5, 6, 8
  int group = 64;              // kAffine: 32, 64, 128; divides n_in
  DType dtype = DType::kBF16;  // kAffine: of scales and biases; kPlain: of the weights. bf16 or f32
  int64_t n_out = 0, n_in = 0;
  const std::byte* codes =
      nullptr;  // kAffine: [n_out][n_in · bits / 8]; kPlain: [n_out][n_in] of dtype
  const std::byte* scales = nullptr;  // kAffine: [n_out][n_in / group] of dtype
  const std::byte* biases = nullptr;  // kAffine: as scales

  bool exists() const { return codes != nullptr; }
  int64_t n_groups() const { return n_in / group; }
  size_t row_bytes() const;  // of codes
  size_t n_bytes() const;    // codes, scales and biases: what one product must read
  double decode(int64_t row, int64_t col) const;  // exact; for references and tests
  uint32_t code(int64_t row, int64_t col) const;  // kAffine
  QuantMatrix rows(int64_t begin, int64_t n) const;
};

// The three matrices of one SwiGLU network: y = (silu(x·Gᵀ) ⊙ (x·Uᵀ))·Dᵀ.
struct GatedMlp {
  QuantMatrix gate, up, down;  // [m, h], [m, h], [h, m]
};

}  // namespace roost
