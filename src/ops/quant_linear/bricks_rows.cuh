// The launch of quant_linear over bricks for few rows.
#pragma once

#include "ops/cuda_backend.h"

namespace roost {

// True where all weights of the call are bricks and its rows are few.
bool takes_bricks_rows(const QuantLinear& op);
void bricks_rows_cuda(const QuantLinear& op, CudaContext& context);

}  // namespace roost
