// Bricks made one code at a time from their description (QuantMatrix, kBricks): the yardstick of
// the kernel that makes them, and what the tests of products put in place of the checkpoint's
// packing.
#pragma once

#include <vector>

#include "tensor/quant_layout.h"

namespace roost::contract {

// Matrices that have such a form: 4 or 8 bits, groups of 64, numbers in bf16.
inline bool has_bricks(const QuantMatrix& w) {
  return w.format == QuantMatrix::Format::kAffine && (w.bits == 4 || w.bits == 8) &&
         w.group == 64 && w.dtype == DType::kBF16;
}

inline QuantMatrix brick_layout(const QuantMatrix& w) {
  QuantMatrix bricks = w;
  bricks.format = QuantMatrix::Format::kBricks;
  bricks.scales = bricks.biases = nullptr;
  return bricks;
}

inline std::vector<uint8_t> bricks_of(const QuantMatrix& w) {
  const size_t brick_bytes = brick_layout(w).brick_bytes(), code_bytes = brick_bytes - 256;
  std::vector<uint8_t> out(brick_layout(w).n_code_bytes());
  const int64_t n_across = w.n_in / 64;
  for (int64_t row = 0; row < w.n_out; ++row) {
    const auto r = static_cast<size_t>(row % 64);
    const size_t warp = r / 16, g = r % 8, low = r % 16 / 8;
    for (int64_t col = 0; col < w.n_in; ++col) {
      uint8_t* brick =
          out.data() + static_cast<size_t>(row / 64 * n_across + col / 64) * brick_bytes;
      const auto c = static_cast<size_t>(col % 64);
      const size_t step = c / 16, k = c % 16, q = k % 8 / 2, high = k / 8, odd = k % 2;
      const size_t thread = 32 * warp + 4 * g + q;
      const uint32_t code = w.code(row, col);
      if (w.bits == 4) {
        const size_t nibble = low + 2 * high + 4 * odd;
        uint8_t& byte = brick[16 * thread + 4 * step + nibble / 2];
        byte = static_cast<uint8_t>(byte | code << (4 * (nibble % 2)));
      } else {
        brick[2048 * (step / 2) + 16 * thread + 8 * (step % 2) + 4 * high + low + 2 * odd] =
            static_cast<uint8_t>(code);
      }
      if (c > 0) continue;
      const auto at = static_cast<size_t>(row * n_across + col / 64) * 2;
      const size_t to = code_bytes + 8 * (8 * warp + g) + 4 * low;
      for (size_t b = 0; b < 2; ++b) {
        brick[to + b] = static_cast<uint8_t>(w.scales[at + b]);
        brick[to + 2 + b] = static_cast<uint8_t>(w.biases[at + b]);
      }
    }
  }
  return out;
}

}  // namespace roost::contract
