// The CPU's matrix products: activation rows brought into kernel form, and tiles of W·x over them.
// quant_linear and moe_experts are made of these.
#pragma once

#include <cstdint>

#include "device/arena.h"
#include "tensor/quant_layout.h"
#include "tensor/tensor.h"

namespace roost {

// Activation rows as the product kernels read them.
//
// Affine weights (rule kAligned16): 16-bit integers, zero-padded to `stride` values a row, permuted
// so that codes need no shuffling: in each vector of c·L codes (L 16-bit lanes, c codes packed in
// 16 bits), sub-vector s holds the inputs of codes s, c + s, 2c + s, …; widths that do not divide
// 16 bits are expanded to one code in 16 bits (c = 1). Where bytes are multiplied by one
// instruction the four sub-vectors of 4-bit codes are bytes instead: the upper ones of the even and
// of the odd inputs, then the lower ones of both. With them the sum of each group and the scale of
// the row. Plain weights (rule kExact): f32, zero-padded.
struct ProductRows {
  int codes_per_lane = 0;  // c; 0: plain f32 rows
  int group = 0;
  int64_t n_rows = 0, n_in = 0;
  int64_t stride = 0;  // values between rows
  int64_t sums_stride = 0;
  int16_t* values = nullptr;  // [n_rows, stride]
  float* sums = nullptr;      // [n_rows, sums_stride] sums of the integers of each group
  float* scales = nullptr;    // [n_rows]
  float* plain = nullptr;     // [n_rows, stride]

  bool fits(const QuantMatrix& w) const;  // these rows can be multiplied with w
};

// Takes memory for n_rows rows in w's form; fill_product_row then converts the rows, one by one.
ProductRows take_product_rows(const QuantMatrix& w, int64_t n_rows, Arena& arena);
size_t product_rows_bytes(int64_t n_in_max, int64_t n_rows);    // an upper bound for any form
ProductRows rows_from(const ProductRows& rows, int64_t begin);  // the rows from `begin` on
void fill_product_row(const uint16_t* x_bf16, const ProductRows& rows, int64_t row);

// Tiles of products, which threads claim. 32 outputs are 37 KB of 4-bit weights at 2,048 inputs:
// they stay in L2 while rows pass over them.
constexpr int64_t kTileOutputs = 32;
// Rows of a tile; few enough that small matrices still give every thread work.
constexpr int64_t kTileRows = 256;

inline int64_t div_ceil(int64_t n, int64_t unit) {
  return (n + unit - 1) / unit;
}

// out[i · out_stride + r] = Σ_k W[out_begin + r, k] · x[row_ids[i], k] for r < n_out, i < n_rows.
// row_ids null: rows 0, 1, …. The bits of an output depend on its weight row and input row alone.
// scratch: at least product_scratch_bytes(n_in), this thread's own.
void product_tile(const QuantMatrix& w, int64_t out_begin, int64_t n_out, const ProductRows& x,
                  const int32_t* row_ids, int64_t n_rows, float* out, int64_t out_stride,
                  std::byte* scratch);
size_t product_scratch_bytes(int64_t n_in_max);
// The part of product_tile that multiplies plain weights.
void plain_product_tile(const QuantMatrix& w, int64_t out_begin, int64_t n_out,
                        const ProductRows& x, const int32_t* row_ids, int64_t n_rows, float* out,
                        int64_t out_stride);

// out[i] = silu(gate[i])·up[i], silu(g) = g / (1 + e^-g), within 2^-20 relative; out may be gate.
void swiglu_values(const float* gate, const float* up, int64_t n, float* out);
void round_values(const float* values, int64_t n, uint16_t* out);  // to bf16

const char* product_target_name();                      // "avx3"
const char* product_kernel_name(const QuantMatrix& w);  // "q4_aligned16"

}  // namespace roost
