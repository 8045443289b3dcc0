// Values counted by size, for people who look at distributions from outside.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

namespace roost {

inline constexpr std::array<double, 19> kTokenBounds = {
    1,    2,    5,     10,    20,    50,     100,    200,    500,    1000,
    2000, 5000, 10000, 20000, 50000, 100000, 200000, 500000, 1000000};
inline constexpr std::array<double, 22> kSecondBounds = {
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75,
    1,     2.5,   5,    7.5,  10,   20,   40,   80,  160,  640, 2560};

// How many values lay at or below each bound and above the one before it; the last: above all.
template <size_t N>
struct Counted {
  std::array<int64_t, N + 1> n{};
  double sum = 0;
  void add(double value, const std::array<double, N>& bounds) {
    ++n[static_cast<size_t>(std::lower_bound(bounds.begin(), bounds.end(), value) -
                            bounds.begin())];
    sum += value;
  }
};

}  // namespace roost
