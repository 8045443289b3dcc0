#include "base/utf8.h"

#include <gtest/gtest.h>

namespace roost {
namespace {

bool is_unit(const Utf8Unit& unit, Utf8 kind, int n_bytes, char32_t code_point = 0) {
  return unit.kind == kind && unit.n_bytes == n_bytes && unit.code_point == code_point;
}

TEST(Utf8, every_scalar_value_is_written_and_read_back) {
  for (char32_t c = 0; c <= 0x10FFFF; ++c) {
    if (c == 0xD800) c = 0xE000;
    std::string bytes;
    append_utf8(c, bytes);
    const Utf8Unit unit = read_utf8(bytes, 0);
    ASSERT_TRUE(is_unit(unit, Utf8::kWhole, static_cast<int>(bytes.size()), c))
        << std::hex << uint32_t{c};
    // Every shorter form is a cut one, not a broken one.
    for (size_t n = 1; n < bytes.size(); ++n)
      ASSERT_TRUE(is_unit(read_utf8(bytes.substr(0, n), 0), Utf8::kCut, static_cast<int>(n)));
  }
}

TEST(Utf8, sequences_that_cannot_be_whole_end_at_the_first_wrong_byte) {
  struct Case {
    std::string_view bytes;
    int n_bytes;
  };
  const Case cases[] = {
      {"\x80", 1},      // a continuation byte alone
      {"\xC0\x80", 1},  // overlong forms
      {"\xC1\xBF", 1},
      {"\xE0\x9F\xBF", 1},
      {"\xF0\x8F\xBF\xBF", 1},
      {"\xED\xA0\x80", 1},      // a surrogate
      {"\xF4\x90\x80\x80", 1},  // beyond U+10FFFF
      {"\xF5\x80\x80\x80", 1},
      {"\xFF", 1},
      {"\xE2\x82"
       "A",
       2},
      {"\xF0\x9F\x98"
       "A",
       3},
      {"\xF0\x9F\xF0\x9F", 2},
      {"\xC3\xC3", 1},
  };
  for (const Case& c : cases)
    EXPECT_TRUE(is_unit(read_utf8(c.bytes, 0), Utf8::kBroken, c.n_bytes))
        << testing::PrintToString(c.bytes);
}

TEST(Utf8, each_maximal_subpart_becomes_one_replacement_character) {
  EXPECT_EQ(replace_invalid_utf8("a\xE2\x82"
                                 "b"),
            "a\uFFFDb");
  EXPECT_EQ(replace_invalid_utf8("\xE2\x82"), "\uFFFD");
  EXPECT_EQ(replace_invalid_utf8("\xED\xA0\x80"), "\uFFFD\uFFFD\uFFFD");
  EXPECT_EQ(replace_invalid_utf8("\xF0\x9F\x98\x80\xFF"), "\U0001F600\uFFFD");
  EXPECT_EQ(replace_invalid_utf8("zß水🍌"), "zß水🍌");
}

}  // namespace
}  // namespace roost
