// copy_pages: pages of K/V, or slots of state, to other places of the same pool.
#pragma once

#include <cstdint>
#include <span>

#include "ops/backend.h"
#include "tensor/tensor.h"

namespace roost {

struct PageCopy {
  int32_t from = 0, to = 0;
};

// pool[to, …] = pool[from, …] for each copy, bytes. No `to` is a `from` or another `to`.
struct CopyPages {
  Tensor pool;  // [pages, …] of any type
  std::span<const PageCopy> copies;
};

void check(const CopyPages& op);  // shapes and types as above; a violation is a bug
void copy_pages_reference(const CopyPages& op, const ReferenceRules& rules);
void copy_pages_cpu(const CopyPages& op, CpuContext& context);

}  // namespace roost
