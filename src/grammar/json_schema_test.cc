#include "grammar/json_schema.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/file.h"
#include "grammar/schema_set.h"
#include "grammar/test_vocabulary.h"

namespace roost {
namespace {

using testing::accepts;
using ::testing::HasSubstr;
using testing::refusal_of_schema;
using testing::use_of_schema;

struct Question {
  std::string schema;
  std::vector<std::string> yes, no;
};

void ask(const std::vector<Question>& questions) {
  for (const Question& question : questions) {
    const GrammarUse use = use_of_schema(question.schema);
    for (const std::string& text : question.yes)
      EXPECT_TRUE(accepts(use, text)) << question.schema << " lets no " << text;
    for (const std::string& text : question.no)
      EXPECT_FALSE(accepts(use, text)) << question.schema << " lets " << text;
  }
}

TEST(JsonSchema, an_untyped_schema_is_any_value) {
  ask({{"{}",
        {"null", "true", "-0.5e3", R"("a\u00e9\ud83d\ude00")", "[]", "[1,[2]]", "{}",
         R"({"a": {"b":[1, {}]}})", "{\n    \"a\":\n    1\n}"},
        {"",        "nul",    "01",       "+1",  "1.",    ".5",          R"("a)",
         "[1,]",    "{,}",    "{a:1}",    "1 ",  " 1",    R"("\ud83d")", R"("\ude00")",
         R"("\x")", "\"\n\"", "\"\xFF\"", "\t1", "[\t1]", R"({"a":1,})", "1234567890123456789012"}},
       {"true", {"1"}, {""}}});
}

TEST(JsonSchema, types_are_those_named) {
  ask({{R"({"type":"integer"})",
        {"0", "-12", "1234567890123456789"},
        {"1.0", "1e3", "\"1\"", "00"}},
       {R"({"type":"number"})", {"0", "1.25", "1e10", "-1.5E-3"}, {"1e1234", "NaN", "true"}},
       {R"({"type":["string","null"]})", {"\"\"", "null"}, {"1", "nil"}},
       {R"({"type":"boolean"})", {"true", "false"}, {"True", "1"}},
       {R"({"type":"array"})", {"[]", "[1, \"a\", {}]"}, {"{}"}},
       {R"({"type":"object"})", {"{}", R"({"x":[]})"}, {"[]"}}});
}

TEST(JsonSchema, constants_are_printed_as_the_schema_spells_them) {
  ask({{R"({"enum":["red","gr\u00fcn",1.0,null,true,{"a":[1,2]}]})",
        {"\"red\"", "\"grün\"", "1.0", "null", "true", R"({"a":[1,2]})", R"({"a": [1, 2]})"},
        {"\"blue\"", "1", "\"gr\\u00fcn\"", R"({"a":[1]})", "{}"}},
       {R"({"const":"a\"b\n"})", {R"("a\"b\n")"}, {"\"a\""}},
       {R"({"enum":[1,2,3,4],"minimum":2,"multipleOf":2})", {"2", "4"}, {"1", "3"}},
       {R"({"enum":["a","bb","ccc"],"maxLength":2,"pattern":"b"})",
        {"\"bb\""},
        {"\"a\"", "\"ccc\""}},
       {R"({"type":"integer","enum":["a",2.0,2.5]})", {"2.0"}, {"2.5", "\"a\""}},
       {R"({"allOf":[{"enum":[1,2]},{"enum":[2.0,3]}]})", {"2.0"}, {"1", "3", "2"}}});
}

TEST(JsonSchema, properties_come_in_declared_order_then_others) {
  const std::string schema = R"({"type":"object","properties":{"a":{"type":"integer"},
      "b":{"type":"string"},"abc":{}},"required":["b"],"additionalProperties":)";
  ask({{schema + "false}",
        {R"({"b":"x"})", R"({"a":1,"b":"x"})", R"({"a":1,"b":"","abc":[]})", R"({"b":"","abc":1})"},
        {"{}", R"({"a":1})", R"({"b":"x","a":1})", R"({"b":"x","c":1})", R"({"b":1})",
         R"({"b":"x","b":"x"})", R"({"ab":1,"b":""})"}},
       {schema + R"({"type":"null"}})",
        {R"({"b":"x","z":null})", R"({"b":"x","ab":null,"abcd":null})"},
        {R"({"b":"x","z":1})", R"({"z":null,"b":"x"})", R"({"b":"x","z":null,"abc":1})",
         R"({"b":"x","a":null})", R"({"b":"x","z":null,"z":null})", R"({"b":"","\u0061":null})"}},
       {R"({"required":["x"]})", {R"({"x":1})", R"({"x":1,"y":2})", "3"}, {"{}", R"({"y":2})"}}});
}

TEST(JsonSchema, patterns_and_names_of_keys_bind) {
  ask({{R"({"type":"object","patternProperties":{"^n":{"type":"integer"},"_s$":{"type":"string"}},
           "additionalProperties":false})",
        {"{}", R"({"n":1,"nn":2,"a_s":""})"},
        {R"({"x":1})", R"({"n":"a"})", R"({"n_s":1})", R"({"n_s":"a"})"}},
       {R"({"type":"object","properties":{"na":{"minimum":3}},"patternProperties":{"^n":{"type":"integer"}}})",
        {R"({"na":3})", R"({"nb":1})", R"({"x":"y"})"},
        {R"({"na":2})", R"({"na":3.5})", R"({"nb":"y"})"}},
       {R"({"type":"object","propertyNames":{"pattern":"^[a-c]+$","maxLength":2}})",
        {"{}", R"({"a":1,"bc":2})"},
        {R"({"d":1})", R"({"abc":1})", R"({"":1})"}},
       {R"({"type":"object","propertyNames":{"enum":["u","v"]},"additionalProperties":{"type":"null"}})",
        {R"({"v":null,"u":null})"},
        {R"({"w":null})", R"({"v":1})"}},
       {R"({"type":"object","patternProperties":{"^abc$":{}},"additionalProperties":false,
           "properties":{"abcd":{"type":"null"}}})",
        {R"({"abc":1})", R"({"abcd":null,"abc":1})"},
        {R"({"abc":1,"abcd":null})", R"({"ab":1})"}}});
}

TEST(JsonSchema, members_are_counted) {
  ask({{R"({"type":"object","minProperties":2,"maxProperties":3})",
        {R"({"a":1,"b":1})", R"({"a":1,"b":1,"c":1})"},
        {"{}", R"({"a":1})", R"({"a":1,"a":2})", R"({"a":1,"b":1,"c":1,"d":1})"}},
       {R"({"type":"object","properties":{"a":{},"b":{},"c":{}},"required":["c"],"minProperties":2,
           "maxProperties":2,"additionalProperties":false})",
        {R"({"a":1,"c":1})", R"({"b":1,"c":1})"},
        {R"({"c":1})", R"({"a":1,"b":1})", R"({"a":1,"b":1,"c":1})"}}});
}

TEST(JsonSchema, items_are_counted_and_placed) {
  ask({{R"({"type":"array","items":{"type":"integer"},"minItems":1,"maxItems":3})",
        {"[1]", "[1,2,3]", "[ 1, 2]"},
        {"[]", "[1,2,3,4]", "[\"a\"]", "[1,2,]"}},
       {R"({"type":"array","prefixItems":[{"type":"string"},{"type":"null"}],"items":false})",
        {"[]", "[\"a\"]", "[\"a\",null]"},
        {"[null]", "[\"a\",null,1]"}},
       {R"({"type":"array","prefixItems":[{"type":"string"}],"items":{"type":"boolean"},"minItems":3})",
        {"[\"a\",true,false]", "[\"a\",true,false,true]"},
        {"[\"a\",true]", "[\"a\",1,2]"}},
       {R"({"type":"array","items":{"enum":[1,2,1.0,"x"]},"uniqueItems":true})",
        {"[]", "[2,1,\"x\"]"},
        {"[1,1]", "[1,2,\"x\",1]"}},
       {R"({"type":"array","items":{"type":["boolean","null"]},"uniqueItems":true,"minItems":2})",
        {"[true,false]", "[null,true,false]"},
        {"[true,true]", "[true]"}}});
}

TEST(JsonSchema, strings_have_lengths_patterns_and_formats) {
  ask({{R"({"type":"string","minLength":2,"maxLength":3})",
        {"\"ab\"", "\"日本語\"", R"("\n\ud83d\ude00")", R"("\\\"a")"},
        {"\"a\"", "\"abcd\"", R"("\u0041")", "\"é\""}},
       {R"({"type":"string","pattern":"b+"})",
        {"\"abc\"", "\"b\"", "\"\\\"b\\n\""},
        {"\"ac\"", "\"\""}},
       {R"({"type":"string","pattern":"^\\d{3}$|^x","maxLength":4})",
        {"\"123\"", "\"xyzz\""},
        {"\"1234\"", "\"axyz\"", "\"xyzzz\""}},
       {R"({"type":"string","format":"date"})",
        {"\"2024-02-29\"", "\"1999-12-31\"", "\"2000-02-29\""},
        {"\"2023-02-29\"", "\"1900-02-29\"", "\"2024-13-01\"", "\"2024-04-31\"", "\"0000-01-01\""}},
       {R"({"type":"string","format":"date-time"})",
        {"\"2024-02-29T23:59:59Z\"", "\"2024-01-01T00:00:00.123+01:30\""},
        {"\"2024-01-01\"", "\"2024-01-01T24:00:00Z\"", "\"2024-01-01T00:00:00\""}},
       {R"({"format":"ipv6","type":"string"})",
        {"\"::1\"", "\"fe80::1:2\"", "\"1:2:3:4:5:6:7:8\"", "\"::ffff:1.2.3.4\""},
        {"\":::\"", "\"1:2:3:4:5:6:7:8:9\"", "\"1::2::3\""}},
       {R"({"format":"uuid","type":"string"})",
        {"\"01234567-89ab-cdef-0123-456789ABCDEF\""},
        {"\"0123456789abcdef0123456789abcdef\""}},
       {R"({"format":"ipv4"})", {"\"0.255.19.1\"", "3"}, {"\"256.1.1.1\"", "\"01.1.1.1\""}}});
}

TEST(JsonSchema, numbers_keep_exact_bounds) {
  ask({{R"({"type":"integer","minimum":-3,"maximum":12})",
        {"-3", "0", "9", "10", "12"},
        {"-4", "13", "100", "-30"}},
       {R"({"type":"number","exclusiveMinimum":0,"maximum":1.5})",
        {"0.0001", "1", "1.5", "1.50", "1.25"},
        {"0", "0.0", "-0.1", "1.51", "1.500001", "2", "1e-3"}},
       {R"({"type":"integer","exclusiveMinimum":99,"exclusiveMaximum":101})",
        {"100"},
        {"99", "101"}},
       {R"({"type":"number","minimum":-0.5,"exclusiveMaximum":-0.25})",
        {"-0.5", "-0.26", "-0.251"},
        {"-0.25", "-0.51", "0", "-0"}},
       {R"({"type":"integer","multipleOf":7,"minimum":10})", {"14", "21", "700"}, {"7", "15", "0"}},
       {R"({"type":"number","multipleOf":0.05})", {"0.05", "1.1", "3", "-0.15"}, {"0.01", "0.125"}},
       {R"({"type":"integer","minimum":100000000000000000000000})",
        {"100000000000000000000000"},
        {"99999999999999999999999"}},
       {R"({"type":"integer","multipleOf":4,"allOf":[{"multipleOf":6}],"minimum":1})",
        {"12"},
        {"4", "6"}}});
}

TEST(JsonSchema, branches_and_parts_combine) {
  ask({{R"({"anyOf":[{"type":"integer"},{"type":"object","properties":{"k":{"const":1}},"required":["k"]},
                     {"type":"object","properties":{"kk":{"const":2}},"required":["kk"]}]})",
        {"5", R"({"k":1})", R"({"kk":2})"},
        {"\"a\"", "{}", R"({"k":2})"}},
       {R"({"oneOf":[{"type":"object","properties":{"t":{"const":"a"},"v":{"type":"integer"}},"required":["t","v"]},
                     {"type":"object","properties":{"t":{"const":"b"},"v":{"type":"string"}},"required":["t","v"]}]})",
        {R"({"t":"a","v":1})", R"({"t":"b","v":"x"})"},
        {R"({"t":"a","v":"x"})", R"({"t":"b"})"}},
       {R"({"allOf":[{"type":"object","properties":{"a":{"type":"integer"}},"additionalProperties":{"minimum":5}},
                     {"properties":{"b":{"type":"number"},"a":{"minimum":2}},"required":["a"]}]})",
        {R"({"a":2,"b":5.5})", R"({"a":2})"},
        {R"({"a":1})", R"({"a":2,"b":4})", R"({"b":6})"}},
       {R"({"anyOf":[{"minimum":3},{"maximum":1}],"type":"integer"})", {"0", "1", "3"}, {"2"}}});
}

TEST(JsonSchema, references_recurse_within_the_levels) {
  const std::string tree =
      R"({"$defs":{"n/o~de":{"type":"object","properties":{"v":{"type":"integer"},
      "next":{"$ref":"#/$defs/n~1o~0de"}},"required":["v"],"additionalProperties":false}},
      "$ref":"#/%24defs/n~1o~0de","description":"a list"})";
  ask({{tree,
        {R"({"v":1})", R"({"v":1,"next":{"v":2,"next":{"v":3}}})"},
        {"{}", R"({"next":{"v":1}})", R"({"v":1,"next":null})"}},
       {R"({"type":["array","integer"],"items":{"$ref":"#"}})", {"1", "[[1],[]]"}, {"[\"a\"]"}}});
  std::string deep;
  for (int i = 0; i < 64; ++i) deep += "[";
  const GrammarUse use = use_of_schema(R"({"type":"array","items":{"$ref":"#"}})");
  EXPECT_TRUE(accepts(use, deep + std::string(64, ']')));
  EXPECT_FALSE(accepts(use, "[" + deep + std::string(65, ']')));
}

TEST(JsonSchema, space_is_bounded_and_can_be_off) {
  const std::string schema =
      R"({"type":"object","properties":{"a":{}},"additionalProperties":false})";
  ask({{schema,
        {"{\"a\":1}", "{\n  \"a\" : 1\n}", "{" + std::string(20, ' ') + "\"a\":1}"},
        {"{" + std::string(21, ' ') + "\"a\":1}", "{\n\n\"a\":1}", "{\t\"a\":1}", "{\"a\":1} "}}});
  const GrammarUse tight = use_of_schema(schema, {.has_space = false});
  EXPECT_TRUE(accepts(tight, "{\"a\":1}"));
  EXPECT_FALSE(accepts(tight, "{\"a\": 1}"));
}

TEST(JsonSchema, keywords_that_cannot_be_enforced_are_refused_with_their_place) {
  for (const char* key :
       {"not", "if", "then", "else", "contains", "minContains", "maxContains", "dependentRequired",
        "dependentSchemas", "dependencies", "unevaluatedItems", "unevaluatedProperties",
        "$dynamicRef", "$anchor", "nullable", "additionalItems", "madeUp"}) {
    const std::string schema =
        std::string(R"({"properties":{"a/b":{"items":{")") + key + R"(":{}}}}})";
    EXPECT_THAT(refusal_of_schema(schema), HasSubstr("schema.unsupported_keyword"));
    EXPECT_THAT(refusal_of_schema(schema),
                HasSubstr(std::string("#/properties/a~1b/items/") + key + ":"));
  }
  for (const char* schema :
       {R"({"$ref":"other.json#/a"})", R"({"$ref":"#name"})", R"({"format":"iri","type":"string"})",
        R"({"multipleOf":1001})", R"({"multipleOf":1e-10})", R"({"uniqueItems":true})",
        R"({"uniqueItems":true,"items":{"enum":[1]},"prefixItems":[{}]})",
        R"({"oneOf":[{"type":"integer"},{"minimum":3}]})", R"({"items":[{}]})",
        R"({"const":{"a":1},"required":["a"]})", R"({"propertyNames":{"anyOf":[{}]}})",
        R"({"minProperties":1,"propertyNames":{"enum":["a"]}})",
        R"({"anyOf":[{"$ref":"#"},{"type":"null"}]})"})
    EXPECT_THAT(refusal_of_schema(schema), HasSubstr("schema.unsupported_keyword")) << schema;
  EXPECT_EQ(refusal_of_schema(R"({"title":1,"x-order":2,"default":{"not":1}})"), "");
}

TEST(JsonSchema, schemas_that_are_none_are_refused) {
  for (const char* schema :
       {"3",
        R"({"type":"text"})",
        R"({"type":3})",
        R"({"enum":1})",
        R"({"minimum":"1"})",
        R"({"maxLength":-1})",
        R"({"pattern":1})",
        R"({"required":"a"})",
        R"({"required":[1]})",
        R"({"properties":[]})",
        R"({"properties":{"a":3}})",
        R"({"anyOf":[]})",
        R"({"allOf":{}})",
        R"({"$ref":"#/nothing"})",
        R"({"$ref":"#"})",
        R"({"items":{"$ref":"#/$defs/a"},"$defs":{"a":{"allOf":[{"$ref":"#/$defs/a"}]}}})",
        R"({"$ref":3})",
        R"({"uniqueItems":1})",
        R"({"multipleOf":0})",
        R"({"patternProperties":1})",
        R"({"prefixItems":{}})"})
    EXPECT_THAT(refusal_of_schema(schema), HasSubstr("schema.invalid")) << schema;
  EXPECT_THAT(refusal_of_schema(R"({"properties":{"a":{"type":"null","type":"null"}}})"),
              HasSubstr("json.duplicate_key"));
  EXPECT_THAT(refusal_of_schema(R"x({"pattern":"(?=a)"})x"), HasSubstr("regex.unsupported"));
  EXPECT_THAT(refusal_of_schema(R"x({"pattern":"("})x"), HasSubstr("grammar.invalid"));
}

TEST(JsonSchema, schemas_without_a_value_are_refused) {
  for (const char* schema :
       {"false", R"({"type":"integer","minimum":3,"maximum":2})", R"({"enum":[]})",
        R"({"type":"integer","exclusiveMinimum":1,"exclusiveMaximum":2})",
        R"({"type":"string","minLength":3,"maxLength":2})", R"({"type":"string","const":1})",
        R"({"type":"array","minItems":1,"items":false})",
        R"({"type":"object","properties":{"a":false},"required":["a"]})",
        R"({"type":"object","properties":{"a":{"$ref":"#"}},"required":["a"]})",
        R"({"type":"object","maxProperties":1,"required":["a","b"]})",
        R"({"type":"object","maxProperties":1,"minProperties":2})",
        R"({"type":"string","pattern":"^a$","minLength":2})",
        R"({"type":"array","items":{"enum":[1]},"uniqueItems":true,"minItems":2})",
        R"({"allOf":[{"type":"string"},{"type":"null"}]})"})
    EXPECT_THAT(refusal_of_schema(schema), HasSubstr("schema.unsatisfiable")) << schema;
}

TEST(JsonSchema, what_cannot_be_satisfied_is_not_begun) {
  ask({{R"({"type":"object","properties":{"a":false,"b":{"type":"null"}},"additionalProperties":false})",
        {"{}", R"({"b":null})"},
        {R"({"a":1})"}}});
  GrammarMatcher matcher(use_of_schema(
      R"({"type":"object","properties":{"ab":false,"ac":{}},"additionalProperties":false})"));
  for (const char c : std::string_view("{\"a")) ASSERT_TRUE(matcher.accept(c));
  EXPECT_FALSE(matcher.accept('b'));
  EXPECT_TRUE(matcher.accept('c'));
}

TEST(JsonSchema, too_large_schemas_are_refused_in_bounded_time) {
  std::string nested = "{}";
  for (int i = 0; i < 60; ++i) nested = R"({"items":)" + nested + "}";
  EXPECT_EQ(refusal_of_schema(nested), "");
  for (int i = 0; i < 5; ++i) nested = R"({"items":)" + nested + "}";
  EXPECT_THAT(refusal_of_schema(nested), HasSubstr("schema.too_large"));
  EXPECT_THAT(refusal_of_schema(R"({"type":"string","pattern":"a","maxLength":20000})"),
              HasSubstr("schema.too_large"));
  EXPECT_THAT(refusal_of_schema(R"({"type":"string","pattern":"(a|b|c){9000}{9000}"})"),
              HasSubstr("grammar.invalid"));
  EXPECT_THAT(refusal_of_schema(R"({"type":"string","pattern":"^(([a-z]{1000}){1000}){1000}$"})"),
              HasSubstr("schema.too_large"));
  // The classic one: each of twenty places back must be remembered.
  EXPECT_THAT(refusal_of_schema(R"({"type":"string","pattern":"^[ab]*a[ab]{24}$"})"),
              HasSubstr("schema.too_large"));
  EXPECT_THAT(refusal_of_schema(R"({"minimum":1e500})"), HasSubstr("schema.too_large"));
  std::string groups = "{\"allOf\":[";
  for (int i = 0; i < 24; ++i)
    groups += std::string(i > 0 ? "," : "") + R"({"anyOf":[{"properties":{"p)" + std::to_string(i) +
              R"(":{"type":"null"}}},{"required":["q)" + std::to_string(i) + "\"]}]}";
  EXPECT_THAT(refusal_of_schema(groups + "]}"), HasSubstr("schema.too_large"));
}

TEST(JsonSchema, the_table_in_the_documentation_is_that_of_the_code) {
  const std::string page = read_file(ROOST_SOURCE_DIR "/docs/SERVER.md", 1 << 20).value();
  EXPECT_THAT(page, HasSubstr(schema_keyword_rows()));
}

}  // namespace
}  // namespace roost
