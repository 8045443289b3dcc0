#include "engine/scheduler.h"

#include <algorithm>

#include "base/check.h"

namespace roost {
namespace {

constexpr double kNewShare = 0.25;       // of an observation in an average of the table
constexpr double kNewSlopeShare = 0.5;   // steps of a long prompt are few, and their costs grow
constexpr double kCheapShare = 1.25;     // prompt rows that cost this little are always taken
constexpr double kUnknownSlope = 0.125;  // of one row's cost, while nothing else is known

}  // namespace

// ----------------------------------------------------------------------------------------- costs

void StepCosts::set(std::span<const Sample> samples) {
  ROOST_CHECK(!samples.empty() && samples[0].n_rows >= 1);
  const auto value = [&](size_t i) { return static_cast<double>(samples[i].ns); };
  slope_ = value(0) * kUnknownSlope;
  for (size_t i = 0; i < samples.size(); ++i) {
    const int64_t n = samples[i].n_rows;
    ROOST_CHECK(n <= kTableRows && (i == 0 || n > samples[i - 1].n_rows));
    const int64_t from = i == 0 ? 0 : samples[i - 1].n_rows;
    const double before = i == 0 ? value(0) : value(i - 1);
    const double step = (value(i) - before) / static_cast<double>(n - from);
    for (int64_t r = from + 1; r <= n; ++r)
      table_[static_cast<size_t>(r)] = before + step * static_cast<double>(r - from);
    if (i > 0) slope_ = std::max(step, 0.0);
  }
  for (int64_t r = samples.back().n_rows + 1; r <= kTableRows; ++r)
    table_[static_cast<size_t>(r)] = table_[static_cast<size_t>(r - 1)] + slope_;
  // More rows never cost less: what a measurement says otherwise is noise.
  for (size_t r = 2; r < table_.size(); ++r) table_[r] = std::max(table_[r], table_[r - 1]);
}

void StepCosts::observe(int64_t n_rows, int64_t ns) {
  if (n_rows < 1) return;
  const auto seen = static_cast<double>(ns);
  if (n_rows <= kTableRows) {
    double& entry = table_[static_cast<size_t>(n_rows)];
    entry = entry == 0 ? seen : entry + kNewShare * (seen - entry);
    return;
  }
  const double slope =
      std::max(0.0, (seen - table_.back()) / static_cast<double>(n_rows - kTableRows));
  slope_ = slope_ == 0 ? slope : slope_ + kNewSlopeShare * (slope - slope_);
}

int64_t StepCosts::ns(int64_t n_rows) const {
  const auto n = static_cast<size_t>(std::clamp<int64_t>(n_rows, 0, kTableRows));
  const double behind = static_cast<double>(std::max<int64_t>(n_rows - kTableRows, 0)) * slope_;
  return static_cast<int64_t>(table_[n] + behind);
}

int64_t StepCosts::rows_within(int64_t ns_max, int64_t rows_max) const {
  int64_t low = 0, high = rows_max;
  while (low < high) {
    const int64_t middle = (low + high + 1) / 2;
    if (ns(middle) <= ns_max) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  return low;
}

// ------------------------------------------------------------------------------------------ plan

bool is_before(const SequenceNeed& a, const SequenceNeed& b, const SchedulerLimits& limits) {
  if (a.is_background != b.is_background) return b.is_background;
  const bool a_is_due = a.n_overtaken >= limits.overtaken_max;
  const bool b_is_due = b.n_overtaken >= limits.overtaken_max;
  if (a_is_due != b_is_due) return a_is_due;
  if (!a_is_due && a.n_left != b.n_left) return a.n_left < b.n_left;
  return a.arrival < b.arrival;
}

void plan_step(std::span<const SequenceNeed> needs, const SchedulerLimits& limits,
               const StepCosts& costs, std::vector<Chunk>& plan) {
  ROOST_CHECK(plan.capacity() >= needs.size());
  plan.clear();
  int64_t rows_left = limits.step_rows_max;
  for (size_t i = 0; i < needs.size() && rows_left > 0; ++i) {
    if (!needs[i].is_decoding()) continue;
    plan.push_back({static_cast<int32_t>(i), 1});
    --rows_left;
  }
  const auto n_decoding = static_cast<int64_t>(plan.size());
  if (n_decoding > 0) {
    const auto cheap =
        static_cast<int64_t>(static_cast<double>(costs.ns(n_decoding)) * kCheapShare);
    const int64_t n =
        costs.rows_within(std::max(limits.gap_ns_max, cheap), limits.step_rows_max) - n_decoding;
    rows_left = std::min(rows_left, std::max<int64_t>(n, 1));
  }
  for (size_t i = 0; i < needs.size(); ++i) {
    if (needs[i].n_left > 1) plan.push_back({static_cast<int32_t>(i), 0});
  }
  const auto first_prompt = plan.begin() + n_decoding;
  std::sort(first_prompt, plan.end(), [&](const Chunk& a, const Chunk& b) {
    return is_before(needs[static_cast<size_t>(a.sequence_idx)],
                     needs[static_cast<size_t>(b.sequence_idx)], limits);
  });
  for (auto chunk = first_prompt; chunk != plan.end(); ++chunk) {
    chunk->n_rows = std::min(needs[static_cast<size_t>(chunk->sequence_idx)].n_left, rows_left);
    rows_left -= chunk->n_rows;
  }
  std::erase_if(plan, [](const Chunk& chunk) { return chunk.n_rows == 0; });
}

}  // namespace roost
