#include "engine/scheduler.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace roost {
namespace {

constexpr double kNewShare = 0.25;       // of an observation in an average of the table
constexpr double kGuessError = 0.5;      // of a share before a step has told of it
constexpr double kDrift = 0.05;          // of a share from step to step
constexpr double kNoise = 0.1;           // of a step's time
constexpr double kLateLeft = 0.98;       // of the lateness, from step to step
constexpr double kLateMin = 0.05;        // no machine keeps its times
constexpr double kLateMax = 0.4;         // beyond, the fit must follow
constexpr double kCare = 2;              // times the lateness is planned for
constexpr double kCheapShare = 1.25;     // prompt rows that cost this little are always taken
constexpr double kUnknownSlope = 0.125;  // of one row's cost, while nothing else is known

double square(double x) {
  return x * x;
}

}  // namespace

// ---- Costs --------------------------------------------------------------------------------------

void StepCosts::set(std::span<const Sample> samples) {
  ROOST_CHECK(!samples.empty() && samples[0].n_rows >= 1);
  const auto value = [&](size_t i) { return static_cast<double>(samples[i].ns); };
  row_ = value(0) * kUnknownSlope;
  for (size_t i = 0; i < samples.size(); ++i) {
    const int64_t n = samples[i].n_rows;
    ROOST_CHECK(n <= kTableRows && (i == 0 || n > samples[i - 1].n_rows));
    const int64_t from = i == 0 ? 0 : samples[i - 1].n_rows;
    const double before = i == 0 ? value(0) : value(i - 1);
    const double step = (value(i) - before) / static_cast<double>(n - from);
    for (int64_t r = from + 1; r <= n; ++r)
      table_[static_cast<size_t>(r)] = before + step * static_cast<double>(r - from);
    if (i > 0) row_ = std::max(step, 0.0);
  }
  for (int64_t r = samples.back().n_rows + 1; r <= kTableRows; ++r)
    table_[static_cast<size_t>(r)] = table_[static_cast<size_t>(r - 1)] + row_;
  // More rows never cost less: what a measurement says otherwise is noise.
  for (size_t r = 2; r < table_.size(); ++r) table_[r] = std::max(table_[r], table_[r - 1]);
  attended_ = row_ * attended_guess_;
  row_ = std::min(row_, table_.back() / kTableRows);
  row_variance_ = square(kGuessError * std::max(row_, value(0) * kUnknownSlope));
  attended_variance_ = row_variance_ * square(attended_guess_);
}

double StepCosts::fitted(const StepWork& work) const {
  const auto n = static_cast<size_t>(std::clamp<int64_t>(work.n_rows, 0, kTableRows));
  const auto behind = static_cast<double>(std::max<int64_t>(work.n_rows - kTableRows, 0));
  return table_[n] + behind * row_ +
         static_cast<double>(work.n_attended) / kAttendedUnit * attended_;
}

// A step of few rows behind the table says little about a row, and its share in the fit is small.
void StepCosts::observe(const StepWork& work, int64_t ns) {
  if (work.n_rows < 1) return;
  const double expected_ns = fitted(work);
  // Something else held up a step that took more than twice what it should.
  const double seen = expected_ns > 0 ? std::min(static_cast<double>(ns), 2 * expected_ns)
                                      : static_cast<double>(ns);
  const double error = seen - expected_ns;
  if (work.n_rows <= kTableRows) return observe_table(static_cast<size_t>(work.n_rows), error);
  const auto rows = static_cast<double>(work.n_rows - kTableRows);
  const double attended = static_cast<double>(work.n_attended) / kAttendedUnit;
  const double of_rows = row_variance_ * rows + covariance_ * attended;
  const double of_attended = covariance_ * rows + attended_variance_ * attended;
  const double expected = rows * of_rows + attended * of_attended + square(kNoise * seen);
  row_ = std::max(row_ + of_rows * error / expected, 0.0);
  attended_ = std::max(attended_ + of_attended * error / expected, 0.0);
  // A share of nothing drifts too.
  const auto drift = [&](double share) { return kDrift * std::max(share, table_.back() * 1e-3); };
  row_variance_ += square(drift(row_)) - square(of_rows) / expected;
  covariance_ -= of_rows * of_attended / expected;
  if (attended_guess_ > 0)
    attended_variance_ += square(drift(attended_)) - square(of_attended) / expected;
  if (std::exchange(has_fit_, true))
    late_ = std::clamp(error / expected_ns, std::max(late_ * kLateLeft, kLateMin), kLateMax);
  row_ = std::min(row_, table_.back() / kTableRows);
}

void StepCosts::observe_table(size_t n, double error) {
  const bool is_first = table_[n] == 0;
  table_[n] = std::max(table_[n] + (is_first ? 1 : kNewShare) * error, 1.0);
  for (size_t other = 1; other < table_.size(); ++other) {
    const double in_proportion = table_[n] * static_cast<double>(other) / static_cast<double>(n);
    table_[other] = std::clamp(table_[other], std::min(table_[n], in_proportion),
                               std::max(table_[n], in_proportion));
  }
  row_ = std::min(row_, table_.back() / kTableRows);
}

int64_t StepCosts::ns(const StepWork& work) const {
  return static_cast<int64_t>(fitted(work));
}

int64_t StepCosts::with_care(int64_t ns_max) const {
  return static_cast<int64_t>(static_cast<double>(ns_max) / (1 + kCare * late_));
}

int64_t StepCosts::rows_within(int64_t ns_max, const StepWork& work, int64_t context,
                               int64_t rows_max) const {
  int64_t low = 0, high = rows_max;
  while (low < high) {
    const int64_t middle = (low + high + 1) / 2;
    if (ns(work.with(middle, context)) <= ns_max) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  return low;
}

// ---- Plan ---------------------------------------------------------------------------------------

bool is_before(const SequenceNeed& a, const SequenceNeed& b, const SchedulerLimits& limits) {
  if (a.priority != b.priority) return a.priority < b.priority;
  const bool a_is_due = a.n_overtaken >= limits.overtaken_max;
  const bool b_is_due = b.n_overtaken >= limits.overtaken_max;
  if (a_is_due != b_is_due) return a_is_due;
  if (!a_is_due && a.n_served != b.n_served) return a.n_served < b.n_served;
  if (!a_is_due && a.n_left != b.n_left) return a.n_left < b.n_left;
  return a.arrival < b.arrival;
}

void plan_step(std::span<const SequenceNeed> needs, const SchedulerLimits& limits,
               const StepCosts& costs, std::vector<Chunk>& plan) {
  ROOST_CHECK(plan.capacity() >= needs.size());
  plan.clear();
  int64_t rows_left = limits.step_rows_max;
  StepWork work;  // drafts included
  for (size_t i = 0; i < needs.size() && rows_left > 0; ++i) {
    if (!needs[i].is_decoding()) continue;
    plan.push_back({static_cast<int32_t>(i), 1});
    --rows_left;
    work = work.with(1 + needs[i].n_drafts, needs[i].n_computed);
  }
  const auto n_decoding = static_cast<int64_t>(plan.size());
  const auto cheap = static_cast<int64_t>(static_cast<double>(costs.ns(work)) * kCheapShare);
  const int64_t ns_max = std::max(costs.with_care(limits.gap_ns_max), cheap);
  for (size_t i = 0; i < needs.size(); ++i) {
    if (needs[i].n_left > 1) plan.push_back({static_cast<int32_t>(i), 0});
  }
  const auto first_prompt = plan.begin() + n_decoding;
  std::sort(first_prompt, plan.end(), [&](const Chunk& a, const Chunk& b) {
    return is_before(needs[static_cast<size_t>(a.sequence_idx)],
                     needs[static_cast<size_t>(b.sequence_idx)], limits);
  });
  for (auto chunk = first_prompt; chunk != plan.end(); ++chunk) {
    const SequenceNeed& need = needs[static_cast<size_t>(chunk->sequence_idx)];
    int64_t n_rows = std::min(need.n_left, rows_left);
    if (n_decoding > 0 && n_rows > 0) {
      const bool is_first = chunk == first_prompt;
      n_rows =
          std::max<int64_t>(costs.rows_within(ns_max, work, need.n_computed, n_rows), is_first);
    }
    chunk->n_rows = n_rows;
    rows_left -= n_rows;
    work = work.with(n_rows, need.n_computed);
  }
  std::erase_if(plan, [](const Chunk& chunk) { return chunk.n_rows == 0; });
}

}  // namespace roost
