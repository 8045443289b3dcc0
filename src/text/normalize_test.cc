#include "text/normalize.h"

#include <gtest/gtest.h>

#include <string>

namespace roost {
namespace {

std::string nfc(std::string_view text) {
  std::string storage = "left over";
  return std::string(normalize_nfc(text, storage));
}

TEST(Normalize, text_that_needs_nothing_is_not_copied) {
  std::string storage;
  const std::string text = "plain ASCII, and café below U+0300";
  EXPECT_EQ(normalize_nfc(text, storage).data(), text.data());
  EXPECT_EQ(nfc(""), "");
}

TEST(Normalize, composes_orders_and_keeps) {
  EXPECT_EQ(nfc("cafe\u0301"), "caf\u00E9");
  EXPECT_EQ(nfc("a\u0302\u0323!"), "\u1EAD!");  // marks in the other order
  EXPECT_EQ(nfc("\u1112\u1161\u11AB"), "\uD55C");
  EXPECT_EQ(nfc("\uD55C"), "\uD55C");
  EXPECT_EQ(nfc("\uAC00\u11A7"),
            "\uAC00\u11A7");  // no final consonant, though it stands before them
  EXPECT_EQ(nfc("\u1100\u1161\u11A7\u11A8"), "\uAC00\u11A7\u11A8");
  EXPECT_EQ(nfc("\u212B \u2126"), "\u00C5 \u03A9");
  EXPECT_EQ(nfc("\u0958"), "\u0915\u093C");  // excluded from composition
  EXPECT_EQ(nfc("\uFB01"), "\uFB01");        // compatibility is not touched
  EXPECT_EQ(nfc("日本語 👩\u200D👧"), "日本語 👩\u200D👧");
  EXPECT_EQ(nfc("\u0301a"), "\u0301a");
}

TEST(Normalize, bytes_that_are_no_text_stay_and_part_what_would_compose) {
  EXPECT_EQ(nfc("e\xFF\u0301"), "e\xFF\u0301");
  EXPECT_EQ(nfc("e\u0301\xE2\x82"), "\u00E9\xE2\x82");
  EXPECT_EQ(nfc("\xED\xA0\x80\u4E2D"), "\xED\xA0\x80\u4E2D");
}

TEST(Normalize, a_long_run_of_marks_in_the_worst_order_takes_no_quadratic_time) {
  // A million marks: ordering them by swaps of neighbours would take hours.
  std::string text = "a";
  std::string ordered;
  for (int i = 0; i < 500'000; ++i) text += "\u0315\u0323";  // classes 232 and 220
  const std::string normalized = nfc(text);
  EXPECT_EQ(normalized.substr(0, 5), "\u1EA1\u0323");
  EXPECT_EQ(normalized.substr(normalized.size() - 2), "\u0315");
}

}  // namespace
}  // namespace roost
