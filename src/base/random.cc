#include "base/random.h"

#include <sys/random.h>
#include <unistd.h>

#include "base/check.h"

namespace roost {
namespace {

class SystemRandom final : public Random {
 public:
  uint64_t next_u64() override {
    uint64_t value = 0;
    // The library's form of getrandom that other systems have too; it fails only on bad arguments.
    ROOST_CHECK(getentropy(&value, sizeof value) == 0);
    return value;
  }
};

}  // namespace

Random& system_random() {
  static SystemRandom random;
  return random;
}

std::string random_base62(Random& random, int n_chars) {
  static constexpr char kDigits[] =
      "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
  ROOST_CHECK(n_chars >= 0);
  std::string text;
  uint64_t bits = 0;
  int n_bits = 0;
  while (static_cast<int>(text.size()) < n_chars) {
    if (n_bits < 6) {
      bits = random.next_u64();
      n_bits = 64;
    }
    const uint64_t digit = bits & 63;
    bits >>= 6;
    n_bits -= 6;
    if (digit < 62) text += kDigits[digit];  // 62 and 63 are thrown away: every digit is as likely
  }
  return text;
}

uint64_t SeededRandom::next_u64() {
  // SplitMix64 (Steele, Lea, Flood 2014): a counter of golden-ratio steps through a mixing
  // function.
  state_ += 0x9E3779B97F4A7C15u;
  uint64_t z = state_;
  z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
  z = (z ^ z >> 27) * 0x94D049BB133111EBu;
  return z ^ z >> 31;
}

}  // namespace roost
