// Reading members: paths, quoting, types and bounds.
#include "server/request_fields.h"

#include <gtest/gtest.h>

namespace roost {
namespace {

json::Value parsed(std::string_view text) {
  return std::move(json::parse(text)).value();
}

TEST(RequestFields, a_pointer_becomes_the_path_that_people_write) {
  EXPECT_EQ(path_of_pointer("/messages/3/content/1"), "messages[3].content[1]");
  EXPECT_EQ(path_of_pointer("/a~1b/c~0d"), "a/b.c~d");
  EXPECT_EQ(path_of_pointer(""), "");
}

TEST(RequestFields, quoted_bytes_are_escaped_and_cut_between_characters) {
  EXPECT_EQ(quoted_short("a\n\"b"), R"("a\n\"b")");
  const std::string cut = quoted_short(std::string(63, 'x') + "é" + "tail");
  EXPECT_EQ(cut, "\"" + std::string(63, 'x') + "\"…");
}

TEST(RequestFields, an_object_with_a_key_twice_is_refused_by_name) {
  const json::Value value = parsed(R"({"a":1,"b":2,"a":3})");
  ParseNotes notes;
  const Result<Fields> fields = Fields::open(value, "/messages/0", notes);
  ASSERT_FALSE(fields);
  EXPECT_EQ(fields.error().refusal, Refusal::JsonDuplicateKey);
  EXPECT_EQ(notes.param, "messages[0]");
  EXPECT_NE(fields.error().detail.find("\"a\""), std::string::npos);
}

TEST(RequestFields, an_object_of_countless_members_is_refused) {
  std::string text = "{\"k0\":0";
  for (int i = 1; i <= 5000; ++i) text += ",\"k" + std::to_string(i) + "\":0";
  const json::Value value = parsed(text + "}");
  ParseNotes notes;
  const Result<Fields> fields = Fields::open(value, "", notes);
  ASSERT_FALSE(fields);
  EXPECT_EQ(fields.error().refusal, Refusal::TooManyItems);
}

Refusal refusal_of_integer(std::string_view number) {
  const json::Value value = parsed("{\"n\":" + std::string(number) + "}");
  ParseNotes notes;
  Fields fields = std::move(Fields::open(value, "", notes)).value();
  const auto n = fields.integer("n", 1, 100);
  EXPECT_FALSE(n) << number;
  return n.error().refusal;
}

TEST(RequestFields, an_integer_takes_every_spelling_of_an_integral_value) {
  for (const char* number : {"5", "5.0", "50e-1", "0.5e1"}) {
    const json::Value value = parsed("{\"n\":" + std::string(number) + "}");
    ParseNotes notes;
    Fields fields = std::move(Fields::open(value, "", notes)).value();
    const auto n = fields.integer("n", 1, 100);
    ASSERT_TRUE(n) << number;
    EXPECT_EQ(**n, 5) << number;
  }
  EXPECT_EQ(refusal_of_integer("1.5"), Refusal::FieldType);
  EXPECT_EQ(refusal_of_integer("\"5\""), Refusal::FieldType);
  EXPECT_EQ(refusal_of_integer("true"), Refusal::FieldType);
  EXPECT_EQ(refusal_of_integer("0"), Refusal::FieldRange);
  EXPECT_EQ(refusal_of_integer("101"), Refusal::FieldRange);
  EXPECT_EQ(refusal_of_integer("1e30"), Refusal::FieldRange);
  EXPECT_EQ(refusal_of_integer("-1e400"), Refusal::FieldRange);
}

TEST(RequestFields, what_nobody_takes_is_listed_and_null_is_absent) {
  const json::Value value = parsed(R"({"known":true,"other":1,"gone":null,"a/b":2})");
  ParseNotes notes;
  Fields fields = std::move(Fields::open(value, "", notes)).value();
  EXPECT_TRUE(**fields.boolean("known"));
  EXPECT_EQ(fields.take("gone"), nullptr);
  fields.ignore_rest();
  EXPECT_EQ(notes.ignored, (std::vector<std::string>{"/other", "/a~1b"}));
}

}  // namespace
}  // namespace roost
