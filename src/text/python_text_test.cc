#include "text/python_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "text/unicode_case.h"

namespace roost {
namespace {

using testing::ElementsAre;

TEST(PythonText, strips_the_blanks_that_python_knows) {
  EXPECT_EQ(strip("\x1c \u00a0\u3000a b\u2028\t", std::nullopt), "a b");
  EXPECT_EQ(strip("\u200ba\u200b", std::nullopt), "\u200ba\u200b");
  EXPECT_EQ(strip("éaé", "é"), "a");
  EXPECT_EQ(strip("aaa", "a", true, true), "");
  EXPECT_EQ(strip(" a ", std::nullopt, false, true), " a");
}

TEST(PythonText, splits_as_python_does) {
  EXPECT_THAT(split("a,b,,c", ",", -1), ElementsAre("a", "b", "", "c"));
  EXPECT_THAT(split("a,b,c", ",", 1), ElementsAre("a", "b,c"));
  EXPECT_THAT(split_at_blanks("  a \u2003b\n", -1), ElementsAre("a", "b"));
  EXPECT_THAT(split_at_blanks(" a b c ", 1), ElementsAre("a", "b c "));
  EXPECT_THAT(split_lines("a\r\nb\rc\x0b\x1c\u2028"), ElementsAre("a", "b", "c", "", ""));
}

TEST(PythonText, counts_and_picks_code_points) {
  EXPECT_EQ(count_points("aé日🎉"), 4u);
  EXPECT_EQ(pick_points("aé日🎉", 3, -2, 2), "🎉é");
  EXPECT_EQ(pick_points("aé日🎉", 0, 3, 2), "a🎉");
  EXPECT_EQ(count_points("a\xFF\xE2\x82"), 4u);  // stray bytes count one each
  EXPECT_EQ(pick_points("a\xFF\xE2\x82z", 4, -1, 5),
            "z\x82\xE2\xFF"
            "a");
}

TEST(PythonText, maps_case_with_the_rules_of_unicode) {
  EXPECT_EQ(to_upper("straße ﬁ ŉ"), "STRASSE FI ʼN");
  EXPECT_EQ(to_lower("ὈΔΥΣΣΕΎΣ Σ ΑΣ."), "ὀδυσσεύς σ ας.");
  EXPECT_EQ(to_title("they're ǆ 1st ﬁn"), "They'Re ǅ 1St Fin");
  EXPECT_EQ(capitalize("ǆA"), "ǅa");
  EXPECT_EQ(to_lower("a\xFF"
                     "B"),
            "a\xFF"
            "b");
}

TEST(PythonText, shows_text_as_python_source) {
  std::string out;
  append_repr("it's", out);
  append_repr("\"'\\\n\x01\u00ad\u200b\U000e0001é", out);
  EXPECT_EQ(out, "\"it's\"'\"\\'\\\\\\n\\x01\\xad\\u200b\\U000e0001é'");
}

TEST(PythonText, reads_numbers_as_python_does) {
  EXPECT_EQ(parse_int(" -1_000 ", 10), "-1000");
  EXPECT_EQ(parse_int("0x1F", 16), "31");
  EXPECT_EQ(parse_int("-0", 10), "0");
  EXPECT_EQ(parse_int("012", 0), std::nullopt);
  EXPECT_EQ(parse_int("1__0", 10), std::nullopt);
  EXPECT_EQ(parse_int("", 10), std::nullopt);
  EXPECT_EQ(parse_float(" 1_0.5e1 "), 105.0);
  EXPECT_EQ(parse_float("0x10"), std::nullopt);
  EXPECT_EQ(parse_float("infinit"), std::nullopt);
  EXPECT_EQ(float_repr(*parse_float("-Infinity")), "-inf");
}

TEST(PythonText, replaces_an_empty_text_around_each_code_point) {
  EXPECT_EQ(replace("é日", "", "-", count_occurrences("é日", "")), "-é-日-");
  EXPECT_EQ(replace("aaa", "aa", "b", 5), "ba");
}

}  // namespace
}  // namespace roost
