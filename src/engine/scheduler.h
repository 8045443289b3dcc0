// Which rows the next step runs: a pure function of what the sequences need and what rows cost.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

namespace roost {

// What a step has to do.
struct StepWork {
  int64_t n_rows = 0;
  int64_t n_attended = 0;  // tokens in front of each row, summed over the rows

  // n rows more, of which the first has so many tokens in front of it.
  StepWork with(int64_t n, int64_t context) const {
    return {n_rows + n, n_attended + n * context + n * (n - 1) / 2};
  }
};

// What steps cost on this machine. Up to 16 rows: a table, measured at start, then averaged with
// what is seen while serving; as a row more never makes a step cheaper, nor costs more than the
// rows before it did on average, what is seen of one count bounds the others, and a cost that was
// once disturbed is not believed for ever because it is never tried again. Each row behind it, and
// each token in front of a row, adds its share; both shares are fitted to the steps that run (a
// Kalman filter of two shares that drift). How far steps have lately been slower than expected is
// kept too: a machine that others use is not trusted to the last millisecond.
class StepCosts {
 public:
  static constexpr int64_t kTableRows = 16;

  // attended_guess: what kAttendedUnit tokens in front of a row cost as a share of the row, while
  // nothing else is known.
  static constexpr double kAttendedUnit = 16'384;
  explicit StepCosts(double attended_guess = 0) : attended_guess_(attended_guess) {}

  // ns of steps of these row counts (ascending, <= 16, at least one) without a context; what lies
  // between is interpolated, what lies behind is continued.
  struct Sample {
    int64_t n_rows, ns;
  };
  void set(std::span<const Sample> samples);
  void observe(const StepWork& work, int64_t ns);  // a step that has run
  int64_t ns(const StepWork& work) const;
  // ns_max less what a step planned for it may be late.
  int64_t with_care(int64_t ns_max) const;
  // The largest n with ns(work.with(n, context)) <= ns_max, up to rows_max.
  int64_t rows_within(int64_t ns_max, const StepWork& work, int64_t context,
                      int64_t rows_max) const;

 private:
  double fitted(const StepWork& work) const;
  void observe_table(size_t n, double error);

  const double attended_guess_;
  std::array<double, kTableRows + 1> table_{};  // [n] of n rows; 0: nothing is known yet
  // Of each row behind the table, and of kAttendedUnit tokens in front of a row; and how uncertain
  // both are: variances and what they have in common.
  double row_ = 0, attended_ = 0;
  double row_variance_ = 0, covariance_ = 0, attended_variance_ = 0;
  double late_ = 0.1;  // share by which steps took longer than expected
  bool has_fit_ = false;
};

struct SchedulerLimits {
  int64_t step_rows_max = 512;       // rows of one step
  int64_t gap_ns_max = 250'000'000;  // of a step that has decoding sequences
  int32_t overtaken_max = 8;         // prompts that may pass an earlier one of the same class
};

// A running sequence, as the planner sees it.
struct SequenceNeed {
  int64_t n_left = 0;  // tokens known and not run. 1: the newest token; its logits give the next
  int64_t n_computed = 0;   // tokens in front of them
  int64_t n_drafts = 0;     // rows that may join its own when it decodes
  int32_t priority = 0;     // lower goes first
  double n_served = 0;      // tokens that those whose it is have had lately
  int32_t n_overtaken = 0;  // prompts that came later and were done earlier
  uint64_t arrival = 0;
  bool is_decoding() const { return n_left == 1; }
};

struct Chunk {
  int32_t sequence_idx = 0;  // in the order of the input
  int64_t n_rows = 0;
};

// Whether a prompt is served before another: by class, then those overtaken often enough, in the
// order they came, then those of whom has had least, then fewest rows left, then the order they
// came.
bool is_before(const SequenceNeed& a, const SequenceNeed& b, const SchedulerLimits& limits);

// Every decoding sequence brings its row; the prompts get, in the order of is_before, what is left
// of the step's rows, and beside decoding sequences only so many that the step stays within
// gap_ns_max: at least one, and those that the step can take for a quarter more than its decoding
// rows and drafts alone cost. plan is cleared first; it must have room for needs.size() chunks, so
// that nothing is allocated.
void plan_step(std::span<const SequenceNeed> needs, const SchedulerLimits& limits,
               const StepCosts& costs, std::vector<Chunk>& plan);

}  // namespace roost
