// The kernels behind weights on a card.
#pragma once

#include <cstdint>

#include "device/cuda/stream.h"

namespace roost {

// A run of a synthetic tensor's bytes, as synthetic.h defines them.
struct SyntheticBytes {
  enum class Kind : uint8_t { kCodes, kScales, kBiases };
  uint64_t seed = 0, tensor_id = 0;
  Kind kind = Kind::kCodes;
  float base = 0;           // of scales and biases
  int bits = 0;             // of the codes behind biases
  uint64_t first_byte = 0;  // a multiple of 8
};
void fill_synthetic_cuda(const SyntheticBytes& bytes, std::byte* to, size_t n_bytes,
                         const cuda::Stream& stream);

// Rows of an affine matrix in the packing of the checkpoint, groups of 64; places on the card.
struct AffineRows {
  const uint8_t* codes;
  const uint16_t *scales, *biases;
  int64_t n_rows, n_in;
};
// Their bricks (QuantMatrix, kBricks). bits: 4 or 8.
void make_bricks_cuda(const AffineRows& rows, int bits, uint8_t* bricks,
                      const cuda::Stream& stream);

}  // namespace roost
