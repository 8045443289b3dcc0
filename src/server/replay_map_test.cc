#include "server/replay_map.h"

#include <gtest/gtest.h>

namespace roost {
namespace {

constexpr std::string_view kBefore = "before";

TEST(ReplayMap, finds_a_reply_by_its_turn_and_its_owner) {
  ReplayMap map;
  map.put("a", kBefore, "turn", {"lead", {1, 2, 3}});
  const std::optional<Replay> found = map.find("a", kBefore, "turn");
  ASSERT_TRUE(found);
  EXPECT_EQ(found->lead, "lead");
  EXPECT_EQ(found->tokens, (std::vector<Token>{1, 2, 3}));
  EXPECT_FALSE(map.find("b", kBefore, "turn"));
  EXPECT_FALSE(map.find("a", kBefore, "turn "));
  EXPECT_FALSE(map.find("", kBefore, "aturn"));
  EXPECT_FALSE(map.find("a", "other", "turn"));  // the same words elsewhere
  map.put("a", kBefore, "turn", {"lead", {4}});
  EXPECT_EQ(map.find("a", kBefore, "turn")->tokens, std::vector<Token>{4});
}

TEST(ReplayMap, the_reply_that_was_used_longest_ago_goes_first) {
  ReplayMap few(2, 1 << 20);
  for (const char* turn : {"1", "2"}) few.put("", kBefore, turn, {"", {7}});
  EXPECT_TRUE(few.find("", kBefore, "1"));
  few.put("", kBefore, "3", {"", {7}});
  EXPECT_TRUE(few.find("", kBefore, "1"));
  EXPECT_FALSE(few.find("", kBefore, "2"));

  ReplayMap small(100, 2000);
  for (const char* turn : {"1", "2", "3"})
    small.put("", kBefore, turn, {"", std::vector<Token>(200)});
  EXPECT_FALSE(small.find("", kBefore, "2"));
  EXPECT_TRUE(small.find("", kBefore, "3"));
  small.put("", kBefore, "4", {"", std::vector<Token>(2000)});  // larger than all that may be kept
  EXPECT_FALSE(small.find("", kBefore, "4"));
}

}  // namespace
}  // namespace roost
