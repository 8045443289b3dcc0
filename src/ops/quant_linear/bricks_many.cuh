// The launch of quant_linear over bricks for many rows.
#pragma once

#include "ops/cuda_backend.h"

namespace roost {

// Products of many rows with one matrix of bricks, or with a SwiGLU pair.
struct BrickProduct {
  Tensor x;  // [T, n_in]
  const QuantMatrix *w = nullptr, *up = nullptr;
  Tensor y;  // bf16 or f32; the rows of y lie y_stride apart
  int64_t y_stride = 0;
  bool in_quarters = false;
};

// True where the card and the width have a kernel; rows are then better taken by it than by the
// plain one.
bool takes_bricks_many(const BrickProduct& product);
void bricks_many_cuda(const BrickProduct& product, CudaContext& context);

}  // namespace roost
