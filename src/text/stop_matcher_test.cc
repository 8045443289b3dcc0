// Stop strings over every cut of a text, against a search of the whole text.
#include "text/stop_matcher.h"

#include <gtest/gtest.h>

#include "base/random.h"

namespace roost {
namespace {

struct Expected {
  std::string text;
  std::optional<std::string> matched;
};

// The rule itself, on the whole text: first end, then earliest start.
Expected search(const std::string& text, const std::vector<std::string>& stops, bool keeps) {
  for (size_t end = 0; end <= text.size(); ++end) {
    for (size_t start = 0; start < end; ++start) {
      for (const std::string& stop : stops)
        if (text.substr(start, end - start) == stop)
          return {text.substr(0, keeps ? end : start), stop};
    }
  }
  return {text, std::nullopt};
}

Expected feed(const std::vector<std::string>& pieces, const std::vector<std::string>& stops,
              bool keeps) {
  StopMatcher matcher(stops, keeps);
  Expected out;
  for (const std::string& piece : pieces) out.text += matcher.push(piece);
  out.text += matcher.finish();
  out.matched = matcher.matched();
  return out;
}

TEST(StopMatcher, every_cut_gives_what_a_search_of_the_whole_text_gives) {
  SeededRandom random(7);
  int n_matches = 0;
  for (int round = 0; round < 3000; ++round) {
    const auto word = [&](size_t n_max) {
      std::string out;
      for (size_t n = 1 + random.next_u64() % n_max; n > 0; --n)
        out += static_cast<char>('a' + random.next_u64() % 2);
      return out;
    };
    const std::string text = word(14);
    std::vector<std::string> stops;
    for (size_t n = 1 + random.next_u64() % 3; n > 0; --n) stops.push_back(word(5));
    const bool keeps = random.next_u64() % 2 == 0;
    const Expected want = search(text, stops, keeps);
    n_matches += want.matched.has_value();
    for (size_t cut = 0; cut <= text.size(); ++cut) {
      const Expected have = feed({text.substr(0, cut), text.substr(cut)}, stops, keeps);
      ASSERT_EQ(have.text, want.text) << text << " cut at " << cut;
      ASSERT_EQ(have.matched, want.matched) << text << " cut at " << cut;
    }
    std::vector<std::string> bytes;
    for (const char c : text) bytes.emplace_back(1, c);
    ASSERT_EQ(feed(bytes, stops, keeps).text, want.text) << text;
  }
  EXPECT_GT(n_matches, 500);
}

TEST(StopMatcher, holds_only_the_longest_beginning_of_a_stop_string) {
  StopMatcher matcher({"STOP!"}, false);
  EXPECT_EQ(matcher.push("abcST"), "abc");
  EXPECT_EQ(matcher.push("ST"), "ST");
  EXPECT_EQ(matcher.push("x"), "STx");
  EXPECT_EQ(matcher.push("STO"), "");
  EXPECT_EQ(matcher.finish(), "STO");
}

TEST(StopMatcher, of_two_that_complete_together_the_earlier_start_wins) {
  StopMatcher matcher({"d", "bcd"}, false);
  EXPECT_EQ(matcher.push("abcd"), "a");
  EXPECT_EQ(matcher.matched(), "bcd");
}

TEST(StopMatcher, nothing_follows_a_match) {
  StopMatcher matcher({"x"}, true);
  EXPECT_EQ(matcher.push("axb"), "ax");
  EXPECT_EQ(matcher.push("more"), "");
  EXPECT_EQ(matcher.finish(), "");
}

}  // namespace
}  // namespace roost
