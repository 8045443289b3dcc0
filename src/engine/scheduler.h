// Which rows the next step runs: a pure function of what the sequences need and what rows cost.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

namespace roost {

// What a step of n rows costs on this machine. Up to 16 rows: measured at start, then averaged with
// what is seen while serving. Beyond: a line through the table's end whose slope follows the last
// steps, so that it also follows the length of the contexts.
class StepCosts {
 public:
  static constexpr int64_t kTableRows = 16;

  // ns of steps of these row counts (ascending, <= 16, at least one); what lies between is
  // interpolated, what lies behind is continued.
  struct Sample {
    int64_t n_rows, ns;
  };
  void set(std::span<const Sample> samples);
  void observe(int64_t n_rows, int64_t ns);  // a step that has run
  int64_t ns(int64_t n_rows) const;
  // The largest n with ns(n) <= ns_max, up to rows_max.
  int64_t rows_within(int64_t ns_max, int64_t rows_max) const;

 private:
  std::array<double, kTableRows + 1> table_{};  // [n] of n rows; 0: nothing is known yet
  double slope_ = 0;                            // of each row behind the table
};

struct SchedulerLimits {
  int64_t step_rows_max = 512;       // rows of one step
  int64_t gap_ns_max = 250'000'000;  // of a step that has decoding sequences
  int32_t overtaken_max = 8;         // prompts that may pass an earlier one of the same class
};

// A running sequence, as the planner sees it.
struct SequenceNeed {
  int64_t n_left = 0;  // tokens known and not run. 1: the newest token; its logits give the next
  bool is_background = false;
  int32_t n_overtaken = 0;  // prompts that came later and were done earlier
  uint64_t arrival = 0;
  bool is_decoding() const { return n_left == 1; }
};

struct Chunk {
  int32_t sequence_idx = 0;  // in the order of the input
  int64_t n_rows = 0;
};

// Whether a prompt is served before another: by class, then those overtaken often enough, in the
// order they came, then fewest rows left, then the order they came.
bool is_before(const SequenceNeed& a, const SequenceNeed& b, const SchedulerLimits& limits);

// Every decoding sequence brings its row; the prompts get, in the order of is_before, what is left
// of the step's rows, and beside decoding sequences only so many that the step stays within
// gap_ns_max: at least one, and those that the step can take for a quarter more than its decoding
// rows alone cost. plan is cleared first; it must have room for needs.size() chunks, so that
// nothing is allocated.
void plan_step(std::span<const SequenceNeed> needs, const SchedulerLimits& limits,
               const StepCosts& costs, std::vector<Chunk>& plan);

}  // namespace roost
