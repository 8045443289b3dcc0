#include "cache/id_pool.h"

#include "base/check.h"

namespace roost {

IdPool::IdPool(int32_t n) : is_held_(static_cast<size_t>(n), false) {
  free_.reserve(static_cast<size_t>(n));
  for (int32_t id = n - 1; id >= 0; --id) free_.push_back(id);
}

std::optional<int32_t> IdPool::take() {
  if (free_.empty()) return std::nullopt;
  const int32_t id = free_.back();
  free_.pop_back();
  is_held_[static_cast<size_t>(id)] = true;
  return id;
}

void IdPool::give_back(int32_t id) {
  ROOST_CHECK(id >= 0 && id < n_total() && is_held_[static_cast<size_t>(id)]);
  is_held_[static_cast<size_t>(id)] = false;
  free_.push_back(id);
}

}  // namespace roost
