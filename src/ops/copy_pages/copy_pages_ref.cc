// The reference of copy_pages: byte by byte.
#include "ops/copy_pages/copy_pages.h"

namespace roost {

void copy_pages_reference(const CopyPages& op, const ReferenceRules&) {
  const size_t page_bytes = op.pool.n_bytes() / static_cast<size_t>(op.pool.dim(0));
  for (const PageCopy& copy : op.copies) {
    for (size_t i = 0; i < page_bytes; ++i)
      op.pool.data[static_cast<size_t>(copy.to) * page_bytes + i] =
          op.pool.data[static_cast<size_t>(copy.from) * page_bytes + i];
  }
}

}  // namespace roost
