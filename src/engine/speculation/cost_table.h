// What steps of so many rows have cost on this machine.
#pragma once

#include <array>
#include <cstdint>

namespace roost {

// Milliseconds by rows of a step and length of its longest context, learned from the steps
// themselves. A routed model's growing number of distinct experts is in its numbers like all else.
// More rows never cost less here: what a measurement says otherwise is noise.
class CostTable {
 public:
  void record(int64_t n_rows, int64_t context, double ms);
  // Between measured row counts: on the line through them. Outside of those of its context: with
  // the shape of the nearest context that has more, else as measured counts suggest, so that an
  // untried count looks about right and is measured when it is tried. > 0.
  double estimate(int64_t n_rows, int64_t context) const;

 private:
  static constexpr int kCells = 128;     // 1 … 64 rows one by one, then 16 rows a cell
  static constexpr int kContexts = 6;    // below 1K, 4K, 16K, 64K, 256K, all
  static constexpr int kRemembered = 8;  // measurements of a cell
  struct Cell {
    std::array<double, kRemembered> ms{};  // a ring
    int64_t n = 0;
    double typical() const;
  };
  struct Line {
    std::array<Cell, kCells> cells;
    std::array<double, kCells> fit{};  // of every cell, rising
    int n_known = 0;                   // cells that were measured
  };
  static int cell_of(int64_t n_rows);
  static double rows_of(int cell);
  // The line whose context is nearest, of those with at least so many measured cells, but `other`;
  // null: there is none.
  const Line* nearest_line(int context, int n_known_min, const Line* other) const;
  void fit(Line& line, const Line* shape) const;

  std::array<Line, kContexts> lines_;
};

}  // namespace roost
