#include "engine/speculation/walk.h"

#include "engine/speculation/acceptance.h"

namespace roost {

std::vector<int32_t> simulate_walk(std::span<const int32_t> sequence, int32_t n_prompt,
                                   const DraftAt& draft) {
  std::vector<int32_t> accepted;
  const auto last = static_cast<int32_t>(sequence.size()) - 1;
  for (int32_t position = n_prompt; position < last; position += accepted.back() + 1) {
    std::vector<int32_t> drafts = draft(position);
    // Nothing is drafted behind the end.
    const auto n_left = static_cast<size_t>(last - position);
    if (drafts.size() > n_left) drafts.resize(n_left);
    accepted.push_back(count_accepted(drafts, sequence.subspan(static_cast<size_t>(position) + 1)));
  }
  return accepted;
}

}  // namespace roost
