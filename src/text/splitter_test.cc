#include "text/splitter.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "text/unicode_table.h"

namespace roost {
namespace {

std::vector<std::string> pieces_of(std::string_view text) {
  std::vector<std::string> pieces;
  while (!text.empty()) {
    const size_t n = first_piece(text);
    if (n == 0 || n > text.size()) return {"a piece of " + std::to_string(n) + " bytes"};
    pieces.emplace_back(text.substr(0, n));
    text.remove_prefix(n);
  }
  return pieces;
}

using Pieces = std::vector<std::string>;

TEST(Splitter, contractions_are_cut_off_in_either_case_and_before_further_letters) {
  EXPECT_EQ(pieces_of("I'll we've"), (Pieces{"I", "'ll", " we", "'ve"}));
  EXPECT_EQ(pieces_of("'sound"), (Pieces{"'s", "ound"}));
  EXPECT_EQ(pieces_of("'S'T'RE'VE'M'LL'D"), (Pieces{"'S", "'T", "'RE", "'VE", "'M", "'LL", "'D"}));
  EXPECT_EQ(pieces_of("'rE'lx'"), (Pieces{"'rE", "'lx", "'"}));
  EXPECT_EQ(pieces_of("'\u017Fx"), (Pieces{"'\u017F", "x"}));
  EXPECT_EQ(pieces_of("''s"), (Pieces{"''", "s"}));
}

TEST(Splitter, letters_and_marks_stay_together_and_take_one_character_before_them) {
  EXPECT_EQ(pieces_of("(foo bar\tbaz_qux"), (Pieces{"(foo", " bar", "\tbaz", "_qux"}));
  EXPECT_EQ(pieces_of("e\u0301te\u0301"), (Pieces{"e\u0301te\u0301"}));
  EXPECT_EQ(pieces_of("1\u0301a"), (Pieces{"1", "\u0301a"}));
  EXPECT_EQ(pieces_of("\nfoo"), (Pieces{"\n", "foo"}));
  EXPECT_EQ(pieces_of("\u00A0foo"), (Pieces{"\u00A0foo"}));
  EXPECT_EQ(pieces_of("..foo"), (Pieces{"..", "foo"}));
}

TEST(Splitter, every_number_character_stands_alone) {
  EXPECT_EQ(pieces_of("a12 3"), (Pieces{"a", "1", "2", " ", "3"}));
  EXPECT_EQ(pieces_of("½Ⅷ३"), (Pieces{"½", "Ⅷ", "३"}));
}

TEST(Splitter, other_characters_take_a_blank_before_and_line_ends_after_them) {
  EXPECT_EQ(pieces_of(" ->x"), (Pieces{" ->", "x"}));
  EXPECT_EQ(pieces_of(";\r\n\n x"), (Pieces{";\r\n\n", " x"}));
  EXPECT_EQ(pieces_of("\u00A0!"), (Pieces{"\u00A0", "!"}));
  EXPECT_EQ(pieces_of("  !"), (Pieces{" ", " !"}));
}

TEST(Splitter, spaces_end_after_the_last_line_end_or_before_the_last_space) {
  EXPECT_EQ(pieces_of("a \n \n  b"), (Pieces{"a", " \n \n", " ", " b"}));
  EXPECT_EQ(pieces_of("a   "), (Pieces{"a", "   "}));
  EXPECT_EQ(pieces_of("a   1"), (Pieces{"a", "  ", " ", "1"}));
  EXPECT_EQ(pieces_of("\u3000\u2003x"), (Pieces{"\u3000", "\u2003x"}));
  EXPECT_EQ(pieces_of("\r\n\t"), (Pieces{"\r\n", "\t"}));
}

TEST(Splitter, bytes_that_are_no_text_count_as_other_characters) {
  EXPECT_EQ(pieces_of("a\xFF\xFE!"), (Pieces{"a", "\xFF\xFE!"}));
  EXPECT_EQ(pieces_of(" \xC3"), (Pieces{" \xC3"}));
  EXPECT_EQ(pieces_of("\xFF"
                      "a"),
            (Pieces{"\xFF"
                    "a"}));
}

TEST(Splitter, only_the_pattern_of_the_family_is_known) {
  const std::string pattern =
      R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}|)"
      R"( ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
  EXPECT_TRUE(is_known_split_pattern(pattern));
  // The one of the family before: marks do not stay with letters.
  EXPECT_FALSE(
      is_known_split_pattern(R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}|)"
                             R"( ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"));
  EXPECT_FALSE(is_known_split_pattern(pattern + " "));
  EXPECT_FALSE(is_known_split_pattern(""));
}

TEST(UnicodeTable, ascii_in_the_header_is_what_the_table_says) {
  for (char32_t c = 0; c < 0x80; ++c)
    EXPECT_EQ(char_class(c), char_class_beyond_ascii(c)) << uint32_t{c};
}

TEST(UnicodeTable, knows_the_classes_of_far_code_points) {
  EXPECT_EQ(kUnicodeVersion, "15.0.0");
  EXPECT_EQ(char_class(0xE9), CharClass::kLetter);
  EXPECT_EQ(char_class(0x301), CharClass::kMark);
  EXPECT_EQ(char_class(0xBD), CharClass::kNumber);
  EXPECT_EQ(char_class(0x85), CharClass::kSpace);
  EXPECT_EQ(char_class(0x200B), CharClass::kOther);  // a format character, no White_Space
  EXPECT_EQ(char_class(0x4E00), CharClass::kLetter);
  EXPECT_EQ(char_class(0x11F02), CharClass::kLetter);  // of Unicode 15.0
  EXPECT_EQ(char_class(0x1F600), CharClass::kOther);
  EXPECT_EQ(char_class(0xE0100), CharClass::kMark);
  EXPECT_EQ(char_class(0x10FFFF), CharClass::kOther);
}

}  // namespace
}  // namespace roost
