// Randomness comes in through this interface, so that a run can be replayed from its seed.
#pragma once

#include <cstdint>
#include <string>

namespace roost {

class Random {
 public:
  virtual ~Random() = default;
  virtual uint64_t next_u64() = 0;  // callable from any thread
};

Random& system_random();  // the kernel's generator
std::string random_base62(Random& random, int n_chars);

// SplitMix64: a small generator for tests and for everything that is seeded.
class SeededRandom final : public Random {
 public:
  explicit SeededRandom(uint64_t seed) : state_(seed) {}
  uint64_t next_u64() override;  // one thread only

 private:
  uint64_t state_;
};

}  // namespace roost
