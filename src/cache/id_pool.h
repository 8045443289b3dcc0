// Numbers of things of which there is a fixed stock: K/V pages, state slots.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace roost {

// Ids 0 … n-1, each either free or held. Engine thread only; allocates at construction only.
class IdPool {
 public:
  explicit IdPool(int32_t n);
  std::optional<int32_t> take();
  void give_back(int32_t id);  // id must be held
  int32_t n_free() const { return static_cast<int32_t>(free_.size()); }
  int32_t n_total() const { return static_cast<int32_t>(is_held_.size()); }

 private:
  std::vector<int32_t> free_;  // a stack: the id given back last is warmest in the caches
  std::vector<bool> is_held_;
};

}  // namespace roost
