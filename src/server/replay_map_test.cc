#include "server/replay_map.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "base/file.h"
#include "base/hash.h"
#include "weights/test_checkpoint.h"

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

// A file of replies and what the next process finds in it.
class ReplayFile : public ::testing::Test {
 protected:
  std::string path() const { return folder_.path() + "/replies"; }
  std::string bytes() const { return read_file(path(), 1 << 20).value(); }
  void write(const std::string& bytes) const { folder_.write("replies", bytes); }
  static std::vector<Token> found(ReplayMap& map, const char* turn) {
    const std::optional<Replay> replay = map.find("a", kBefore, turn);
    return replay ? replay->tokens : std::vector<Token>{};
  }
  // Two replies, as a process leaves them.
  void keep_two() const {
    ReplayMap map;
    ASSERT_TRUE(map.keep_in(path(), "tokens 1", 100));
    map.put("a", kBefore, "one", {"<think>\n", {1, 2, 99}});
    map.put("a", kBefore, "two", {"\xC3\xA4\n", {3}});
  }

  test::TempFolder folder_;
};

TEST_F(ReplayFile, the_next_process_finds_what_was_kept) {
  keep_two();
  ReplayMap next;
  ASSERT_TRUE(next.keep_in(path(), "tokens 1", 100));
  EXPECT_EQ(found(next, "one"), (std::vector<Token>{1, 2, 99}));
  EXPECT_EQ(next.find("a", kBefore, "two")->lead, "\xC3\xA4\n");
  next.put("a", kBefore, "three", {"", {4}});
  ReplayMap third;
  ASSERT_TRUE(third.keep_in(path(), "tokens 1", 100));
  EXPECT_EQ(found(third, "one").size(), 3u);
  EXPECT_EQ(found(third, "three"), std::vector<Token>{4});
}

TEST_F(ReplayFile, tokens_of_another_meaning_are_dropped) {
  keep_two();
  ReplayMap other;
  ASSERT_TRUE(other.keep_in(path(), "tokens 2", 100));
  EXPECT_EQ(found(other, "one"), std::vector<Token>{});
  EXPECT_EQ(bytes(), "tokens 2\n");

  keep_two();
  ReplayMap smaller;  // an id that is none takes its reply along
  ASSERT_TRUE(smaller.keep_in(path(), "tokens 1", 99));
  EXPECT_EQ(found(smaller, "one"), std::vector<Token>{});
  EXPECT_EQ(found(smaller, "two"), std::vector<Token>{3});
}

// Every byte of the file changed, and the file cut off at every place: replies are whole or gone.
TEST_F(ReplayFile, what_is_damaged_is_left_out) {
  keep_two();
  const std::string good = bytes();
  for (size_t i = 0; i < good.size(); ++i) {
    for (const bool is_cut : {false, true}) {
      std::string bad = is_cut ? good.substr(0, i) : good;
      if (!is_cut) bad[i] ^= 1;
      write(bad);
      ReplayMap map;
      ASSERT_TRUE(map.keep_in(path(), "tokens 1", 100));
      const std::vector<Token> one = found(map, "one"), two = found(map, "two");
      EXPECT_TRUE(one.empty() || one == (std::vector<Token>{1, 2, 99})) << i;
      EXPECT_TRUE(two.empty() || two == std::vector<Token>{3}) << i;
      EXPECT_FALSE(!one.empty() && !two.empty() && i + 1 < good.size()) << i;
    }
  }
}

TEST_F(ReplayFile, lines_of_other_forms_are_left_out) {
  keep_two();
  for (const char* line :
       {R"([])", R"({"key":1,"lead":"","tokens":[1]})", R"({"key":"k","lead":null,"tokens":[1]})",
        R"({"key":"k","lead":"","tokens":{}})", R"({"key":"k","lead":"","tokens":["1"]})",
        R"({"key":"k","lead":"","tokens":[-1]})", R"({"key":"k","lead":"","tokens":[1e99]})"}) {
    const Hash128 sum = xxh3_128(std::as_bytes(std::span(std::string_view(line))), 0);
    write("tokens 1\n" + hex_of(sum) + line + "\n");
    ReplayMap map;
    EXPECT_TRUE(map.keep_in(path(), "tokens 1", 100));
    EXPECT_EQ(bytes(), "tokens 1\n") << line;
  }
}

TEST_F(ReplayFile, is_bounded_and_private) {
  ReplayMap map(4, 2000);
  ASSERT_TRUE(map.keep_in(path(), "tokens 1", 100));
  for (int i = 0; i < 1000; ++i) {
    map.put("a", kBefore, std::to_string(i), {"", {i % 100}});
    ASSERT_LE(bytes().size(), 4000u + 200);
  }
  ReplayMap next(4, 2000);
  ASSERT_TRUE(next.keep_in(path(), "tokens 1", 100));
  EXPECT_EQ(found(next, "999"), std::vector<Token>{99});
  EXPECT_EQ(std::filesystem::status(path()).permissions(), std::filesystem::perms(0600));
}

TEST_F(ReplayFile, a_folder_that_takes_no_file_is_refused) {
  ReplayMap map;
  const Result<void> kept = map.keep_in(folder_.path() + "/none/replies", "tokens 1", 100);
  ASSERT_FALSE(kept);
  EXPECT_EQ(kept.error().refusal, Refusal::FileWrite);
  map.put("a", kBefore, "one", {"", {1}});
  EXPECT_EQ(found(map, "one"), std::vector<Token>{1});
}

}  // namespace
}  // namespace roost
