// The launch of moe_experts over bricks for few rows.
#pragma once

#include "ops/cuda_backend.h"

namespace roost {

// True where all matrices are bricks of one width and the experts lie at equal distances.
bool has_equal_bricks(const MoeExperts& op);
// That, and the rows are few.
bool takes_experts_few(const MoeExperts& op);
size_t experts_few_scratch_bytes(const MoeSizes& sizes);
void experts_few_cuda(const MoeExperts& op, CudaContext& context);

}  // namespace roost
