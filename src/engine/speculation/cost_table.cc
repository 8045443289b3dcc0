#include "engine/speculation/cost_table.h"

#include <algorithm>
#include <cfloat>
#include <cstdlib>

#include "base/check.h"

namespace roost {

namespace {

// Cost of a row more, as a share of a step of one row, where nothing is known: between a dense
// model on a card (next to nothing) and a routed one on a CPU (nearly a whole row).
constexpr double kUnknownRow = 0.35;

double guess(double n_rows) {
  return 1 + kUnknownRow * (n_rows - 1);
}

int context_of(int64_t context) {
  int at = 0;
  for (int64_t end = 1024; at < 5 && context >= end; end *= 4) ++at;
  return at;
}

}  // namespace

int CostTable::cell_of(int64_t n_rows) {
  ROOST_CHECK(n_rows >= 1);
  if (n_rows <= 64) return static_cast<int>(n_rows - 1);
  return static_cast<int>(std::min<int64_t>(64 + (n_rows - 65) / 16, kCells - 1));
}

double CostTable::rows_of(int cell) {
  return cell < 64 ? cell + 1 : 65 + 16 * (cell - 64) + 7.5;
}

// What disturbs a measurement only ever lengthens it: the lower quartile of the last ones.
double CostTable::Cell::typical() const {
  std::array<double, kRemembered> sorted = ms;
  for (auto i = static_cast<size_t>(n); i < sorted.size(); ++i) sorted[i] = DBL_MAX;
  std::sort(sorted.begin(), sorted.end());
  return sorted[static_cast<size_t>((std::min<int64_t>(n, kRemembered) - 1) / 4)];
}

const CostTable::Line* CostTable::nearest_line(int context, int n_known_min,
                                               const Line* other) const {
  const Line* found = nullptr;
  int distance = kContexts;
  for (int i = 0; i < kContexts; ++i) {
    const Line& line = lines_[static_cast<size_t>(i)];
    if (&line == other || line.n_known < n_known_min || std::abs(i - context) >= distance) continue;
    found = &line;
    distance = std::abs(i - context);
  }
  return found;
}

void CostTable::record(int64_t n_rows, int64_t context, double ms) {
  const int at = context_of(context);
  Line& line = lines_[static_cast<size_t>(at)];
  Cell& cell = line.cells[static_cast<size_t>(cell_of(n_rows))];
  line.n_known += cell.n == 0;
  cell.ms[static_cast<size_t>(cell.n++ % kRemembered)] = ms;
  fit(line, nearest_line(at, line.n_known + 1, &line));
}

// Neighbours that contradict each other about which of them costs more share their mean, weighted
// by how often they were measured: of all rising lines the nearest one.
void CostTable::fit(Line& line, const Line* shape) const {
  struct Level {
    double ms, weight;
    int last;  // cell
  };
  std::array<Level, kCells> levels;
  size_t n_levels = 0;
  int first = kCells, last = 0;
  for (int i = 0; i < kCells; ++i) {
    const Cell& cell = line.cells[static_cast<size_t>(i)];
    if (cell.n == 0) continue;
    first = std::min(first, i);
    last = i;
    Level level{cell.typical(), static_cast<double>(std::min<int64_t>(cell.n, kRemembered)), i};
    for (; n_levels > 0 && levels[n_levels - 1].ms >= level.ms; --n_levels) {
      const Level& below = levels[n_levels - 1];
      const double weight = below.weight + level.weight;
      level.ms = (below.ms * below.weight + level.ms * level.weight) / weight;
      level.weight = weight;
    }
    levels[n_levels++] = level;
  }
  auto& ms = line.fit;
  const auto known = [&](int i) { return line.cells[static_cast<size_t>(i)].n > 0; };
  int below = first;
  for (size_t level = 0, i = static_cast<size_t>(first); i <= static_cast<size_t>(last); ++i) {
    const int at = static_cast<int>(i);
    if (!known(at)) continue;
    while (levels[level].last < at) ++level;
    ms[i] = levels[level].ms;
    for (int between = below + 1; between < at; ++between)
      ms[static_cast<size_t>(between)] =
          ms[static_cast<size_t>(below)] + (rows_of(between) - rows_of(below)) /
                                               (rows_of(at) - rows_of(below)) *
                                               (ms[i] - ms[static_cast<size_t>(below)]);
    below = at;
  }
  const double at_first = ms[static_cast<size_t>(first)], at_last = ms[static_cast<size_t>(last)];
  const double slope = first == last ? 0 : (at_last - at_first) / (rows_of(last) - rows_of(first));
  const auto outside = [&](int i, int from) {
    const double known_ms = ms[static_cast<size_t>(from)];
    if (shape != nullptr)
      return known_ms * shape->fit[static_cast<size_t>(i)] / shape->fit[static_cast<size_t>(from)];
    if (i > from && first != last) return known_ms + slope * (rows_of(i) - rows_of(from));
    return known_ms * guess(rows_of(i)) / guess(rows_of(from));
  };
  for (int i = 0; i < first; ++i) ms[static_cast<size_t>(i)] = outside(i, first);
  for (int i = last + 1; i < kCells; ++i) ms[static_cast<size_t>(i)] = outside(i, last);
}

double CostTable::estimate(int64_t n_rows, int64_t context) const {
  const Line* line = nearest_line(context_of(context), 1, nullptr);
  const auto rows = static_cast<double>(n_rows);
  if (line == nullptr) return guess(rows);
  const int at = cell_of(n_rows);
  const double here = line->fit[static_cast<size_t>(at)];
  const int other = rows < rows_of(at) ? at - 1 : at + 1;
  if (at < 64 || other >= kCells) return here;
  const double share = (rows - rows_of(at)) / (rows_of(other) - rows_of(at));
  return here + share * (line->fit[static_cast<size_t>(other)] - here);
}

}  // namespace roost
