// Texts that the JSON parser takes or refuses, and how they are written back.
#include <gtest/gtest.h>

#include <string>

#include "base/json.h"

namespace roost::json {
namespace {

// "code: detail" of the refusal, or the document written back.
std::string outcome(std::string_view text, size_t depth_max = limits::kJsonDepthMax) {
  const Result<Value> value = parse(text, depth_max);
  if (value) return write(*value);
  return std::string(code_of(value.error().refusal)) + ": " + value.error().detail;
}

bool is_refused(std::string_view text, std::string_view start) {
  return outcome(text).starts_with(start);
}

TEST(JsonParse, numbers_keep_their_spelling) {
  for (const std::string number :
       {"0", "-0", "5", "5.0", "1e5", "1E5", "1E+05", "-0.0", "1.50", "12345678901234567890",
        "123456789012345678901234567890", "1e-400", "1e400", "0.1e0"}) {
    const Result<Value> value = parse("[" + number + "]");
    ASSERT_TRUE(value) << number;
    EXPECT_EQ(value->items()[0].number_text(), number);
    EXPECT_EQ(outcome(" " + number + "\n"), number);
  }
}

TEST(JsonParse, documents_are_read_with_all_blanks_and_kinds) {
  EXPECT_EQ(
      outcome(
          " \t\r\n{ \"a\" : [ 1 , true , false , null , \"x\" , { } , [ ] ] , \"b\" : \"\" } \n"),
      R"({"a":[1,true,false,null,"x",{},[]],"b":""})");
  EXPECT_EQ(outcome("\"\""), "\"\"");
  EXPECT_EQ(outcome("[]"), "[]");
  EXPECT_EQ(outcome("null"), "null");
}

TEST(JsonParse, keys_keep_their_order_and_repetitions) {
  EXPECT_EQ(outcome(R"({"b":1,"a":2,"b":3,"":4})"), R"({"b":1,"a":2,"b":3,"":4})");
}

TEST(JsonParse, escapes_become_the_characters_that_they_name) {
  EXPECT_EQ(parse(R"("\"\\\/\b\f\n\r\t\u0041\u00e9\u20AC\ud83d\ude00\u0000")")->as_string(),
            std::string("\"\\/\b\f\n\r\tA\u00e9\u20AC\U0001F600\0", 19));
  EXPECT_EQ(parse(R"({"\u0061":1})")->members()[0].first, "a");
}

TEST(JsonParse, what_is_not_json_is_refused_at_its_first_wrong_byte) {
  struct Case {
    std::string_view text;
    size_t at;
  };
  const Case cases[] = {
      {"", 0},
      {"  ", 2},
      {"[1,]", 3},
      {"[1 2]", 3},
      {"[,1]", 1},
      {"{\"a\":1,}", 7},
      {"{a:1}", 1},
      {"{\"a\" 1}", 5},
      {"{\"a\":}", 5},
      {"{\"a\"}", 4},
      {"[1}", 2},
      {"{\"a\":1]", 6},
      {"[", 1},
      {"{", 1},
      {"[1", 2},
      {"01", 1},
      {"-", 1},
      {"-a", 1},
      {"+1", 0},
      {".5", 0},
      {"1.", 2},
      {"1.e5", 2},
      {"1e", 2},
      {"1e+", 3},
      {"0x10", 1},
      {"NaN", 0},
      {"Infinity", 0},
      {"-Infinity", 1},
      {"nul", 3},
      {"tru ", 3},
      {"True", 0},
      {"nullx", 4},
      {"1 1", 2},
      {"[] []", 3},
      {"'a'", 0},
      {"\"a", 2},
      {"\"\\x\"", 2},
      {"\"\\u12g4\"", 5},
      {"\"\\u123", 6},
      {"\"\\", 2},
      {"\"a\nb\"", 2},
      {"\"\t\"", 1},
      {"[1] // x", 4},
      {"/* */1", 0},
      {"\xEF\xBB\xBF[]", 0},
      {"[1,\xC2\xA0 2]", 3},
  };
  for (const Case& c : cases)
    EXPECT_TRUE(is_refused(c.text, "json.invalid: byte " + std::to_string(c.at) + ":"))
        << c.text << " gives " << outcome(c.text);
  EXPECT_TRUE(is_refused(std::string_view("[1\0]", 4), "json.invalid: byte 2:"));
  EXPECT_TRUE(is_refused(std::string_view("\"a\0\"", 4), "json.invalid: byte 2:"));
}

TEST(JsonParse, what_is_not_unicode_is_refused_where_it_begins) {
  struct Case {
    std::string_view text;
    size_t at;
  };
  const Case cases[] = {
      {"[1,\"ab\xFF\"]", 6},       {"\"\xC3\"", 1},     {"\"\xED\xA0\x80\"", 1},
      {"\"\xF4\x90\x80\x80\"", 1}, {"[\xFF]", 1},       {"\"\xE2\x82", 1},
      {"{\"k\x80\":1}", 3},        {"\"a\\ud800\"", 2}, {"\"\\ud800\\n\"", 1},
      {"\"\\ud800\\u0041\"", 1},   {"\"\\ude00\"", 1},  {"\"\\ud83d\\ud83d\"", 1},
      {"\"ab\\ude00\\ud83d\"", 3},
  };
  for (const Case& c : cases)
    EXPECT_TRUE(is_refused(c.text, "json.invalid_unicode: byte " + std::to_string(c.at) + ":"))
        << testing::PrintToString(c.text) << " gives " << outcome(c.text);
}

TEST(JsonParse, nesting_has_a_limit_that_counts_arrays_and_objects) {
  const auto nested = [](size_t n) { return std::string(n, '[') + std::string(n, ']'); };
  EXPECT_EQ(outcome(nested(128)), nested(128));
  EXPECT_TRUE(is_refused(nested(129), "json.too_deep: byte 128:")) << outcome(nested(129));
  EXPECT_TRUE(is_refused(std::string(10'000'000, '['), "json.too_deep: byte 128:"));
  EXPECT_EQ(outcome(R"({"a":[{"b":1}]})", 3), R"({"a":[{"b":1}]})");
  EXPECT_TRUE(outcome(R"({"a":[{"b":1}]})", 2).starts_with("json.too_deep: byte 6:"));
  EXPECT_EQ(outcome("1", 0), "1");
  EXPECT_EQ(outcome("[[],[],[]]", 2), "[[],[],[]]");
}

TEST(JsonParse, depth_costs_no_stack) {
  constexpr size_t kDepth = 1'000'000;
  std::string text;
  for (size_t i = 0; i < kDepth; ++i) text += i % 2 == 0 ? "[" : "{\"a\":";
  text += "1";
  for (size_t i = kDepth; i-- > 0;) text += i % 2 == 0 ? "]" : "}";
  Result<Value> value = parse(text, kDepth);
  ASSERT_TRUE(value);
  const Value copy = *value;
  EXPECT_TRUE(copy == *value);
  EXPECT_EQ(write(copy), text);
  EXPECT_FALSE(find_duplicate_key(copy));
}

TEST(JsonParse, the_number_of_values_has_a_limit) {
  std::string text = "[0";
  for (size_t i = 2; i < limits::kJsonValuesMax; ++i) text += ",0";
  EXPECT_TRUE(parse(text + "]"));
  EXPECT_TRUE(is_refused(text + ",0]", "request.too_many_items: more than 4194304"));
}

TEST(JsonParse, every_cut_of_a_document_is_refused_at_its_end) {
  const std::string text = "{\"a\":[1.5e-3,true,null,\"\\u00e9\xC3\xA9\\ud83d\\ude00\"],\"b\":{}}";
  ASSERT_TRUE(parse(text));
  for (size_t n = 0; n < text.size(); ++n) {
    const Result<Value> value = parse(std::string_view(text).substr(0, n));
    ASSERT_FALSE(value) << n;
    EXPECT_TRUE(value.error().refusal == Refusal::JsonInvalid ||
                value.error().refusal == Refusal::JsonUnicode);
  }
}

}  // namespace
}  // namespace roost::json
