// The extents of a tensor, outermost first.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <string>

#include "base/check.h"

namespace roost {

class Shape {
 public:
  static constexpr int kRankMax = 5;
  Shape() = default;
  Shape(std::initializer_list<int64_t> dims) {  // NOLINT: implicit by design
    ROOST_CHECK(dims.size() <= kRankMax);
    for (const int64_t d : dims) dims_[rank_++] = d;
  }

  int rank() const { return rank_; }
  int64_t operator[](int i) const {
    ROOST_DCHECK(i >= 0 && i < rank_);
    return dims_[i];
  }
  void append(int64_t dim) {
    ROOST_CHECK(rank_ < kRankMax);
    dims_[rank_++] = dim;
  }
  int64_t n_elements() const {
    int64_t n = 1;
    for (int i = 0; i < rank_; ++i) n *= dims_[i];
    return n;
  }
  friend bool operator==(const Shape&, const Shape&) = default;

 private:
  int rank_ = 0;
  std::array<int64_t, kRankMax> dims_{};
};

std::string to_string(const Shape& shape);  // "2x3"; "scalar" for rank 0

}  // namespace roost
