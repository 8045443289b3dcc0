// copy_pages on the CPU: one copy an item of the pool.
#include "ops/copy_pages/copy_pages.h"

#include <cstring>

namespace roost {

void copy_pages_cpu(const CopyPages& op, CpuContext& context) {
  check(op);
  const size_t page_bytes = op.pool.n_bytes() / static_cast<size_t>(op.pool.dim(0));
  context.pool.parallel_for(static_cast<int64_t>(op.copies.size()), [&](int64_t i) {
    const PageCopy& copy = op.copies[static_cast<size_t>(i)];
    std::memcpy(op.pool.data + static_cast<size_t>(copy.to) * page_bytes,
                op.pool.data + static_cast<size_t>(copy.from) * page_bytes, page_bytes);
  });
}

}  // namespace roost
