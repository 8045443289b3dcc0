// Which rows the next step runs: a pure function of what the sequences need.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace roost {

struct SchedulerLimits {
  int64_t step_rows_max = 512;  // rows of one step
  int64_t prompt_rows_beside_max =
      256;  // prompt rows of a step that also decodes: bounds the wait of the streams
};

// A running sequence, as the planner sees it.
struct SequenceNeed {
  int64_t n_tokens = 0;    // tokens known: prompt and generated
  int64_t n_computed = 0;  // of these, rows already run
  int64_t n_left() const { return n_tokens - n_computed; }
  // One row is missing: the newest token. Its logits give the next one.
  bool is_decoding() const { return n_left() == 1; }
};

struct Chunk {
  int32_t sequence_idx = 0;  // in the order of the input
  int64_t n_rows = 0;
};

// Every decoding sequence brings its row; prompts share the rows that are left equally, so that a
// short prompt ends early beside a long one; what one does not use the next ones get. plan is
// cleared first; it must have room for needs.size() chunks, so that nothing is allocated.
void plan_step(std::span<const SequenceNeed> needs, const SchedulerLimits& limits,
               std::vector<Chunk>& plan);

}  // namespace roost
