#include "base/random.h"

#include <gtest/gtest.h>

#include <set>

namespace roost {
namespace {

TEST(Random, the_system_gives_other_numbers_each_time) {
  std::set<uint64_t> seen;
  for (int i = 0; i < 1000; ++i) seen.insert(system_random().next_u64());
  EXPECT_EQ(seen.size(), 1000u);
}

TEST(Random, a_seed_replays) {
  // First outputs of SplitMix64 from seed 1234567, as its authors publish them.
  SeededRandom random(1234567);
  EXPECT_EQ(random.next_u64(), 6457827717110365317u);
  EXPECT_EQ(random.next_u64(), 3203168211198807973u);
  EXPECT_EQ(random.next_u64(), 9817491932198370423u);
}

TEST(Random, base62_has_the_length_asked_for_and_all_digits_alike) {
  SeededRandom random(1);
  EXPECT_EQ(random_base62(random, 0), "");
  EXPECT_EQ(random_base62(random, 24).size(), 24u);
  const int n_chars = 62 * 1000;
  int counts[256] = {};
  for (const char c : random_base62(random, n_chars)) counts[static_cast<unsigned char>(c)] += 1;
  int n_digits = 0;
  for (int c = 0; c < 256; ++c) {
    if (counts[c] == 0) continue;
    n_digits += 1;
    EXPECT_TRUE(std::isalnum(c)) << c;
    EXPECT_NEAR(counts[c], 1000, 200) << c;  // six standard deviations
  }
  EXPECT_EQ(n_digits, 62);
}

}  // namespace
}  // namespace roost
