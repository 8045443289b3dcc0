// Rows of sequences over pages, as the cases of ops that read or write K/V have them.
#pragma once

#include <cstdint>
#include <vector>

#include "ops/rows.h"
#include "tests/contract/contract.h"

namespace roost::contract {

// Rows first_index, first_index + 1, … of one sequence, whose page table is `pages`.
struct Place {
  int32_t first_index, n_rows;
  std::vector<int32_t> pages;
};

inline int64_t n_rows_of(const std::vector<Place>& places) {
  int64_t n = 0;
  for (const Place& place : places) n += place.n_rows;
  return n;
}

// The places' rows one behind the other in the step.
inline std::span<const RowSpan> spans_of(const std::vector<Place>& places, Memory& memory) {
  std::vector<RowSpan> spans;
  int32_t first_row = 0;
  for (const Place& place : places) {
    spans.push_back({first_row, place.n_rows, place.first_index, memory.list(place.pages).data()});
    first_row += place.n_rows;
  }
  return memory.list(spans);
}

// Each row as a place of its own.
inline std::vector<Place> single_rows(const std::vector<Place>& places) {
  std::vector<Place> rows;
  for (const Place& place : places)
    for (int32_t r = 0; r < place.n_rows; ++r)
      rows.push_back({place.first_index + r, 1, place.pages});
  return rows;
}

}  // namespace roost::contract
