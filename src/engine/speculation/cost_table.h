// What steps of so many rows have cost on this machine.
#pragma once

#include <array>
#include <cstdint>

namespace roost {

// Milliseconds by rows of a step and length of its longest context, learned from the steps
// themselves. A routed model's growing number of distinct experts is in its numbers like all else.
class CostTable {
 public:
  void record(int64_t n_rows, int64_t context, double ms);
  // Between measured row counts: on the line through them. Beyond: as measured counts suggest, so
  // that an untried count looks about right and is measured when it is tried. > 0.
  double estimate(int64_t n_rows, int64_t context) const;
  bool has_measured(int64_t n_rows, int64_t context) const;

 private:
  static constexpr int kCells = 128;   // 1 … 64 rows one by one, then 16 rows a cell
  static constexpr int kContexts = 6;  // below 1K, 4K, 16K, 64K, 256K, all
  struct Cell {
    double ms = 0;
    int64_t n = 0;
  };
  using Line = std::array<Cell, kCells>;
  static int cell_of(int64_t n_rows);
  static double rows_of(int cell);
  const Line& nearest_line(int64_t context) const;

  std::array<Line, kContexts> lines_{};
  std::array<int64_t, kContexts> n_measured_{};
};

}  // namespace roost
