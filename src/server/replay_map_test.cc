#include "server/replay_map.h"

#include <gtest/gtest.h>

namespace roost {
namespace {

TEST(ReplayMap, finds_a_reply_by_its_turn_and_its_owner) {
  ReplayMap map;
  map.put("a", "turn", {"lead", {1, 2, 3}});
  const std::optional<Replay> found = map.find("a", "turn");
  ASSERT_TRUE(found);
  EXPECT_EQ(found->lead, "lead");
  EXPECT_EQ(found->tokens, (std::vector<Token>{1, 2, 3}));
  EXPECT_FALSE(map.find("b", "turn"));
  EXPECT_FALSE(map.find("a", "turn "));
  EXPECT_FALSE(map.find("", "aturn"));
  map.put("a", "turn", {"lead", {4}});
  EXPECT_EQ(map.find("a", "turn")->tokens, std::vector<Token>{4});
}

TEST(ReplayMap, the_reply_that_was_used_longest_ago_goes_first) {
  ReplayMap few(2, 1 << 20);
  for (const char* turn : {"1", "2"}) few.put("", turn, {"", {7}});
  EXPECT_TRUE(few.find("", "1"));
  few.put("", "3", {"", {7}});
  EXPECT_TRUE(few.find("", "1"));
  EXPECT_FALSE(few.find("", "2"));

  ReplayMap small(100, 2000);
  for (const char* turn : {"1", "2", "3"}) small.put("", turn, {"", std::vector<Token>(200)});
  EXPECT_FALSE(small.find("", "2"));
  EXPECT_TRUE(small.find("", "3"));
  small.put("", "4", {"", std::vector<Token>(2000)});  // larger than all that may be kept
  EXPECT_FALSE(small.find("", "4"));
}

}  // namespace
}  // namespace roost
