#include "base/clock.h"

#include <gtest/gtest.h>

#include <ctime>

namespace roost {
namespace {

TEST(Clock, never_goes_back) {
  int64_t last_ns = system_clock().now_ns();
  const int64_t first_ns = last_ns;
  while (last_ns == first_ns) {  // ends: the clock moves
    const int64_t now_ns = system_clock().now_ns();
    ASSERT_GE(now_ns, last_ns);
    last_ns = now_ns;
  }
}

TEST(Clock, unix_seconds_are_those_of_the_system) {
  const int64_t before = std::time(nullptr);
  const int64_t now = system_clock().unix_seconds();
  EXPECT_GE(now, before - 1);  // the two clocks of the system tick apart by a few milliseconds
  EXPECT_LE(now, std::time(nullptr) + 1);
}

}  // namespace
}  // namespace roost
