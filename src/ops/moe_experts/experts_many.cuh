// The launch of moe_experts over bricks for many rows.
#pragma once

#include "ops/cuda_backend.h"

namespace roost {

// The places (t·K + s) of expert e are order[first[e] .. first[e + 1]), ascending; on the card.
struct ExpertLists {
  const int32_t *first, *order;
};

// True where the card has a kernel for all matrices, and the experts lie at equal distances.
bool takes_experts_many(const MoeExperts& op);
// Routed experts and the shared one. Takes scratch for the rows between the products.
void experts_many_cuda(const MoeExperts& op, const ExpertLists& lists, CudaContext& context);

}  // namespace roost
