// The noise of keyed draws, split so that a row's part of the hash is taken once.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

namespace roost {

struct GumbelRow {
  GumbelRow(uint64_t seed, int64_t position)
      : key(mix(mix(seed + 0x9E3779B97F4A7C15u) ^
                (static_cast<uint64_t>(position) * 0xD1B54A32D192ED03u))) {}

  static uint64_t mix(uint64_t x) {
    x ^= x >> 30;
    x *= 0xBF58476D1CE4E5B9u;
    x ^= x >> 27;
    x *= 0x94D049BB133111EBu;
    return x ^ (x >> 31);
  }
  uint64_t bits(int32_t id) const { return mix(key ^ static_cast<uint64_t>(id)); }
  static double noise(uint64_t bits) {
    const double u = static_cast<double>(bits >> 11) * 0x1p-53 + 0x1p-54;
    return -std::log(-std::log(u));
  }
  // Cheap, and never below the noise: with L leading ones in the bits 1 - u > 2^-(L+1), hence
  // noise < -ln(1 - u) < (L+1)·ln 2. All 53 ones round u to 1 and the noise to infinity.
  static double noise_limit(uint64_t bits) {
    const int n_ones = std::countl_one(bits);
    return n_ones >= 53 ? std::numeric_limits<double>::infinity() : (n_ones + 1) * 0.6931471806;
  }

  uint64_t key;
};

}  // namespace roost
