// Tests of Result, the refusal table and the checks.
#include "base/result.h"

#include <gtest/gtest.h>

#include <memory>
#include <set>
#include <string>

namespace roost {
namespace {

constexpr Refusal kAll[] = {
#define ROOST_REFUSAL(name, code, status, sentence) Refusal::name,
#include "base/refusals.def"
#undef ROOST_REFUSAL
};

TEST(Refusals, have_stable_codes_of_a_group_and_a_name) {
  std::set<std::string> codes;
  for (const Refusal refusal : kAll) {
    const std::string code(code_of(refusal));
    EXPECT_TRUE(codes.insert(code).second) << code << " is there twice";
    EXPECT_EQ(code.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_."), std::string::npos)
        << code;
    const size_t dot = code.find('.');
    ASSERT_NE(dot, std::string::npos) << code;
    EXPECT_GT(dot, 0u) << code;
    EXPECT_LT(dot + 1, code.size()) << code;
  }
}

TEST(Refusals, have_an_http_status_of_an_error_and_a_sentence) {
  for (const Refusal refusal : kAll) {
    EXPECT_GE(http_status_of(refusal), 400) << code_of(refusal);
    EXPECT_LT(http_status_of(refusal), 600) << code_of(refusal);
    EXPECT_FALSE(sentence_of(refusal).empty()) << code_of(refusal);
  }
}

TEST(Refusals, are_shown_with_code_sentence_and_detail) {
  EXPECT_EQ(to_string(Error{Refusal::FileMissing, "a/b"}),
            "file.missing: a file is not there or cannot be opened (a/b)");
  EXPECT_EQ(to_string(Error{Refusal::EmptyPrompt, ""}),
            "request.empty_prompt: the prompt is empty");
}

Result<int> half(int n) {
  if (n % 2 != 0) return Error{Refusal::FieldValue, std::to_string(n) + " is odd"};
  return n / 2;
}

Result<void> want_even(int n) {
  ROOST_TRY_DO(half(n));
  return {};
}

Result<int> quarter(int n) {
  ROOST_TRY(const int h, half(n));
  ROOST_TRY(const int q, half(h));
  return q;
}

TEST(Result, carries_a_value_or_a_refusal) {
  ASSERT_TRUE(half(8));
  EXPECT_EQ(*half(8), 4);
  ASSERT_FALSE(half(7));
  EXPECT_EQ(half(7).error().refusal, Refusal::FieldValue);
  EXPECT_EQ(half(7).error().detail, "7 is odd");
}

TEST(Result, try_returns_the_first_refusal_to_the_caller) {
  EXPECT_EQ(*quarter(8), 2);
  EXPECT_EQ(quarter(7).error().detail, "7 is odd");
  EXPECT_EQ(quarter(6).error().detail, "3 is odd");
  EXPECT_TRUE(want_even(2));
  EXPECT_EQ(want_even(3).error().detail, "3 is odd");
}

TEST(Result, moves_values_that_cannot_be_copied) {
  Result<std::unique_ptr<int>> made = std::make_unique<int>(5);
  const std::unique_ptr<int> taken = std::move(made).value();
  EXPECT_EQ(*taken, 5);
}

TEST(ResultDeathTest, reading_the_value_of_a_refusal_is_a_bug) {
  const Result<int> refused = half(7);
  EXPECT_DEATH((void)refused.value(), "bug at .*result.h");
}

TEST(CheckDeathTest, a_failed_check_names_its_place_and_condition) {
  const int n = 3;
  ROOST_CHECK(n == 3);
  EXPECT_DEATH(ROOST_CHECK(n == 4), "roost: bug at .*result_test.cc:[0-9]+: n == 4");
}

}  // namespace
}  // namespace roost
