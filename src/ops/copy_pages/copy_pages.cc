// What copy_pages demands of its arguments.
#include "ops/copy_pages/copy_pages.h"

#include "base/check.h"

namespace roost {

void check(const CopyPages& op) {
  ROOST_CHECK(op.pool.exists() && op.pool.shape.rank() >= 1);
  const int64_t n_pages = op.pool.dim(0);
  for (size_t i = 0; i < op.copies.size(); ++i) {
    const PageCopy& copy = op.copies[i];
    ROOST_CHECK(copy.from >= 0 && copy.from < n_pages && copy.to >= 0 && copy.to < n_pages);
    for (size_t j = 0; j < op.copies.size(); ++j) {
      ROOST_CHECK(copy.to != op.copies[j].from);
      ROOST_CHECK(i == j || copy.to != op.copies[j].to);
    }
  }
}

}  // namespace roost
