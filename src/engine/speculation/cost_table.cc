#include "engine/speculation/cost_table.h"

#include <algorithm>

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

const CostTable::Line& CostTable::nearest_line(int64_t context) const {
  const int at = context_of(context);
  for (int distance = 0; distance < kContexts; ++distance) {
    for (const int other : {at - distance, at + distance}) {
      if (other >= 0 && other < kContexts && n_measured_[static_cast<size_t>(other)] > 0)
        return lines_[static_cast<size_t>(other)];
    }
  }
  return lines_[static_cast<size_t>(at)];
}

void CostTable::record(int64_t n_rows, int64_t context, double ms) {
  const auto at = static_cast<size_t>(context_of(context));
  Cell& cell = lines_[at][static_cast<size_t>(cell_of(n_rows))];
  ++cell.n;
  ++n_measured_[at];
  // What disturbs a measurement only ever lengthens it: follow quickly downwards, slowly upwards,
  // and no single step counts for more than twice what is known.
  if (cell.n == 1) {
    cell.ms = ms;
  } else if (ms < cell.ms) {
    cell.ms += 0.5 * (ms - cell.ms);
  } else {
    cell.ms += 0.1 * (std::min(ms, 2 * cell.ms) - cell.ms);
  }
}

bool CostTable::has_measured(int64_t n_rows, int64_t context) const {
  return lines_[static_cast<size_t>(context_of(context))][static_cast<size_t>(cell_of(n_rows))].n >
         0;
}

double CostTable::estimate(int64_t n_rows, int64_t context) const {
  const Line& line = nearest_line(context);
  const int at = cell_of(n_rows);
  int below = at, above = at;
  while (below >= 0 && line[static_cast<size_t>(below)].n == 0) --below;
  while (above < kCells && line[static_cast<size_t>(above)].n == 0) ++above;
  const auto rows = static_cast<double>(n_rows);
  if (below < 0 && above == kCells) return guess(rows);
  const auto ms = [&](int cell) { return line[static_cast<size_t>(cell)].ms; };
  if (below < 0) return ms(above) * guess(rows) / guess(rows_of(above));
  if (above < kCells && above != below) {
    const double share = (rows - rows_of(below)) / (rows_of(above) - rows_of(below));
    return ms(below) + share * (ms(above) - ms(below));
  }
  if (above == below) return ms(at);
  int first = 0;
  while (line[static_cast<size_t>(first)].n == 0) ++first;
  if (first == below) return ms(below) * guess(rows) / guess(rows_of(below));
  const double slope = (ms(below) - ms(first)) / (rows_of(below) - rows_of(first));
  return ms(below) + std::max(slope, 0.0) * (rows - rows_of(below));
}

}  // namespace roost
