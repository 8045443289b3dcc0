#include "text/detokenizer.h"

#include <gtest/gtest.h>

#include <vector>

#include "base/random.h"
#include "base/utf8.h"

namespace roost {
namespace {

TEST(Detokenizer, holds_a_character_until_its_last_byte) {
  Detokenizer d;
  EXPECT_EQ(d.push("a\xF0"), "a");
  EXPECT_EQ(d.push("\x9F\x98"), "");
  EXPECT_EQ(d.push("\x80z"), "\U0001F600z");
  EXPECT_EQ(d.finish(), "");
}

TEST(Detokenizer, a_sequence_proven_wrong_becomes_one_replacement_at_once) {
  Detokenizer d;
  EXPECT_EQ(d.push("\xF0\x9F"), "");
  EXPECT_EQ(d.push("A"), "\uFFFDA");
  EXPECT_EQ(d.push("\xFF"), "\uFFFD");
  EXPECT_EQ(d.push("\xE2"), "");
  EXPECT_EQ(d.push("\xE2"), "\uFFFD");  // the second may still begin a character
  EXPECT_EQ(d.push("\x82\xAC"), "\u20AC");
}

TEST(Detokenizer, an_incomplete_end_is_one_replacement_and_the_next_text_begins_anew) {
  Detokenizer d;
  EXPECT_EQ(d.push("\xF0\x9F\x98"), "");
  EXPECT_EQ(d.finish(), "\uFFFD");
  EXPECT_EQ(d.finish(), "");
  EXPECT_EQ(d.push("\x80"), "\uFFFD");
}

TEST(Detokenizer, every_cut_of_any_bytes_gives_the_same_text_in_whole_characters) {
  SeededRandom random(11);
  static constexpr unsigned char kBytes[] = {'a',  0x80, 0xA0, 0xBF, 0xC3, 0xE0,
                                             0xE2, 0xED, 0xF0, 0xF4, 0xFF};
  for (int round = 0; round < 3000; ++round) {
    std::string bytes;
    for (uint64_t n = random.next_u64() % 12; n > 0; --n)
      bytes += static_cast<char>(kBytes[random.next_u64() % sizeof kBytes]);
    Detokenizer d;
    std::string text;
    for (size_t at = 0; at < bytes.size();) {
      const size_t n = 1 + random.next_u64() % 3;
      const std::string part = d.push(std::string_view(bytes).substr(at, n));
      EXPECT_EQ(replace_invalid_utf8(part), part);
      text += part;
      at += n;
    }
    text += d.finish();
    ASSERT_EQ(text, replace_invalid_utf8(bytes)) << testing::PrintToString(bytes);
  }
}

}  // namespace
}  // namespace roost
