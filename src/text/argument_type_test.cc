#include "text/argument_type.h"

#include <gtest/gtest.h>

namespace roost {
namespace {

json::Value parsed(const std::string& text) {
  Result<json::Value> value = json::parse(text);
  EXPECT_TRUE(value) << text;
  return std::move(value).value();
}

std::string convert(const std::string& schema, const std::string& text) {
  const json::Value value = parsed(schema);
  return ArgumentType::of(&value, value).convert(text).json;
}

// long: a table, one row a rule.
TEST(ArgumentType, texts_become_what_the_schema_declares) {
  const struct {
    const char *schema, *text, *want;
  } cases[] = {
      {R"({"type":"string"})", "02134", R"("02134")"},
      {R"({"type":"string"})", "null", R"("null")"},
      {R"({"type":"string"})", " a\n\"b\"\\", R"(" a\n\"b\"\\")"},
      {R"({"type":"string","enum":["a"]})", "b", R"("b")"},
      {R"({"type":["string","null"]})", "null", "null"},
      {R"({"type":["string","null"]})", "None", "null"},
      {R"({"type":["string","null"]})", " null", R"(" null")"},
      {R"({"anyOf":[{"type":"string"},{"type":"null"}]})", "null", "null"},
      {R"({"type":"integer"})", "5", "5"},
      {R"({"type":"integer"})", " -12 ", "-12"},
      {R"({"type":"integer"})", "5.0", "5"},
      {R"({"type":"integer"})", "1e5", "100000"},
      {R"({"type":"integer"})", "12.50e1", "125"},
      {R"({"type":"integer"})", "1200e-2", "12"},
      {R"({"type":"integer"})", "0.0", "0"},
      {R"({"type":"integer"})", "5.5", R"("5.5")"},
      {R"({"type":"integer"})", "1e-1", R"("1e-1")"},
      {R"({"type":"integer"})", "1e99999999999999999999", R"("1e99999999999999999999")"},
      {R"({"type":"integer"})", "02134", R"("02134")"},
      {R"({"type":"integer"})", "12345678901234567890", "12345678901234567890"},
      {R"({"type":"integer"})", "NaN", R"("NaN")"},
      {R"({"type":"integer"})", "five", R"("five")"},
      {R"({"type":"number"})", "1e5", "1e5"},
      {R"({"type":"number"})", "5.0", "5.0"},
      {R"({"type":"number"})", "Infinity", R"("Infinity")"},
      {R"({"type":"number"})", "true", R"("true")"},
      {R"({"type":"boolean"})", "True", "true"},
      {R"({"type":"boolean"})", "FALSE", "false"},
      {R"({"type":"boolean"})", "1", R"("1")"},
      {R"({"type":"null"})", "None", "null"},
      {R"({"type":"null"})", "no", R"("no")"},
      {R"({"type":"object"})", R"({"b": 1.0, "a":[2]})", R"({"b":1.0,"a":[2]})"},
      {R"({"type":"object"})", "{\"a\": \"x\ny\"}", R"({"a":"x\ny"})"},
      {R"({"type":"object"})", "{'a': True, 'b': None, 'c': (1, 2,),}",
       R"({"a":true,"b":null,"c":[1,2]})"},
      {R"({"type":"object"})", R"({'it\'s': "\u00e9\x41"})", R"({"it's":"éA"})"},
      {R"({"type":"object"})", "[1]", R"("[1]")"},
      {R"({"type":"object"})", "{'a': nan}", R"("{'a': nan}")"},
      {R"({"type":"array"})", "[1, 'a']", R"([1,"a"])"},
      {R"({"type":"array"})", "[1", R"("[1")"},
      {R"({"type":"array"})", "", R"("")"},
      {R"({"enum":["a",1,null,"two words"]})", "1", "1"},
      {R"({"enum":["a",1,null,"two words"]})", "\"a\"", R"("a")"},
      {R"({"enum":["a",1,null,"two words"]})", "two words", R"("two words")"},
      {R"({"enum":["a",1,null,"two words"]})", "null", "null"},
      {R"({"enum":["a"]})", "b", R"("b")"},
      {R"({"const":5})", "5", "5"},
      {R"({"type":["string","integer"]})", "5", "5"},
      {R"({"type":["string","integer"]})", "5.0", R"("5.0")"},
      {R"({"type":["string","number"]})", "5.0", "5.0"},
      {R"({"type":["string","number"]})", "5.00", R"("5.00")"},
      {R"({"type":["string","boolean"]})", "true", "true"},
      {R"({"type":["string","boolean"]})", "True", R"("True")"},
      {R"({"type":["string","array"]})", "[1, 2]", "[1,2]"},
      {R"({"type":["string","array"]})", "[1,  2]", R"("[1,  2]")"},
      {R"({"type":["integer","boolean"]})", "True", "true"},
      {R"({"oneOf":[{"type":"number"},{"type":"array"}]})", "[2]", "[2]"},
      {R"({"oneOf":[{"type":"number"},{"type":"array"}]})", "x", R"("x")"},
      {R"({})", "5", R"("5")"},
      {R"({})", "{\"a\":1}", R"({"a":1})"},
      {R"({})", "日本", R"("日本")"},
      {R"({"$ref":"#/$defs/i","$defs":{"i":{"type":"integer"}}})", "7", "7"},
      {R"({"$ref":"#/$defs/a~1b~0","$defs":{"a/b~":{"type":"boolean"}}})", "true", "true"},
      {R"({"$ref":"#"})", "5", R"("5")"},
  };
  for (const auto& c : cases) EXPECT_EQ(convert(c.schema, c.text), c.want) << c.schema << c.text;
}

TEST(ArgumentType, a_parameter_that_nobody_declared_takes_containers_and_text) {
  const ArgumentType type = ArgumentType::of(nullptr, json::Value());
  EXPECT_EQ(type.convert("[1, 2]").json, "[1,2]");
  EXPECT_EQ(type.convert("12").json, "\"12\"");
  EXPECT_FALSE(type.is_text());
}

TEST(ArgumentType, knows_whether_a_value_is_of_its_type) {
  const json::Value integer = parsed(R"({"type":"integer"})");
  EXPECT_TRUE(ArgumentType::of(&integer, integer).convert("5").fits);
  EXPECT_FALSE(ArgumentType::of(&integer, integer).convert("x").fits);
  const json::Value colour = parsed(R"({"type":"string","enum":["red"]})");
  EXPECT_TRUE(ArgumentType::of(&colour, colour).convert("red").fits);
  EXPECT_FALSE(ArgumentType::of(&colour, colour).convert("blue").fits);
}

TEST(ArgumentType, schemas_that_branch_without_end_are_read_to_a_bound) {
  const json::Value schema = parsed(
      R"({"anyOf":[{"$ref":"#"},{"$ref":"#"},{"$ref":"#"},{"$ref":"#"},{"type":"integer"}]})");
  EXPECT_EQ(ArgumentType::of(&schema, schema).convert("[1]").json, "[1]");
}

TEST(ArgumentType, deep_nesting_stays_text) {
  const std::string deep = std::string(100'000, '[') + std::string(100'000, ']');
  EXPECT_EQ(container_json(deep), "");
}

}  // namespace
}  // namespace roost
