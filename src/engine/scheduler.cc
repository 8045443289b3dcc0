#include "engine/scheduler.h"

#include <algorithm>

#include "base/check.h"

namespace roost {

void plan_step(std::span<const SequenceNeed> needs, const SchedulerLimits& limits,
               std::vector<Chunk>& plan) {
  ROOST_CHECK(plan.capacity() >= needs.size());
  plan.clear();
  int64_t rows_left = limits.step_rows_max;
  int64_t n_prompts = 0;
  for (size_t i = 0; i < needs.size(); ++i) {
    if (!needs[i].is_decoding()) {
      ++n_prompts;
    } else if (rows_left > 0) {
      plan.push_back({static_cast<int32_t>(i), 1});
      --rows_left;
    }
  }
  if (n_prompts == 0) return;
  if (!plan.empty()) rows_left = std::min(rows_left, limits.prompt_rows_beside_max);

  // Shares go round until the rows or the prompts are used up; each round at least one prompt is
  // served in full or all rows are given away.
  const size_t first_prompt = plan.size();
  for (size_t i = 0; i < needs.size(); ++i) {
    if (!needs[i].is_decoding() && needs[i].n_left() > 0)
      plan.push_back({static_cast<int32_t>(i), 0});
  }
  int64_t n_open = static_cast<int64_t>(plan.size() - first_prompt);
  while (rows_left > 0 && n_open > 0) {
    const int64_t share = std::max<int64_t>(rows_left / n_open, 1);
    n_open = 0;
    for (size_t c = first_prompt; c < plan.size() && rows_left > 0; ++c) {
      const int64_t wants =
          needs[static_cast<size_t>(plan[c].sequence_idx)].n_left() - plan[c].n_rows;
      const int64_t n = std::min({wants, share, rows_left});
      plan[c].n_rows += n;
      rows_left -= n;
      n_open += wants > n;
    }
  }
  std::erase_if(plan, [](const Chunk& chunk) { return chunk.n_rows == 0; });
}

}  // namespace roost
