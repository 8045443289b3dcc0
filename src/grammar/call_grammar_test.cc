#include "grammar/call_grammar.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "grammar/test_vocabulary.h"

namespace roost {
namespace {

using testing::accepts;
using ::testing::HasSubstr;
using testing::use_of;

CallForm form(const std::string& name, const std::string& parameters, bool is_strict = false) {
  return {name, json::parse(parameters).value(), is_strict};
}

const std::string kWeather = R"({"type":"object","properties":{"city":{"type":"string"},
    "days":{"type":"integer","minimum":1},"unit":{"enum":["C","F"]},"at":{"type":["object","null"]}},
    "required":["city","days"],"additionalProperties":false})";

std::string call(const std::string& name,
                 const std::vector<std::pair<std::string, std::string>>& parameters) {
  std::string out = "<tool_call>\n<function=" + name + ">\n";
  for (const auto& [key, value] : parameters)
    out += "<parameter=" + key + ">\n" + value + "\n</parameter>\n";
  return out + "</function>\n</tool_call>";
}

TEST(CallGrammar, parameters_come_in_any_order_and_required_ones_must_come) {
  const GrammarUse use = use_of(compile_calls({form("weather", kWeather)}, true).value());
  for (const std::string& text :
       {call("weather", {{"city", "Köln"}, {"days", "3"}}),
        call("weather", {{"days", "12"}, {"unit", "C"}, {"city", "a\n</parameter> b"}}),
        "\n\n" + call("weather", {{"at", "{\"x\": 1}"}, {"days", "1"}, {"city", ""}})})
    EXPECT_TRUE(accepts(use, text)) << text;
  for (const std::string& text :
       {std::string(), call("weather", {{"city", "x"}}), call("weather", {}),
        call("weather", {{"city", "x"}, {"days", "0"}}),
        call("weather", {{"city", "x"}, {"days", "\"3\""}}),
        call("weather", {{"city", "x"}, {"days", "3"}, {"unit", "K"}}),
        call("weather", {{"city", "x"}, {"days", "3"}, {"days", "3"}}),
        call("weather", {{"city", "x"}, {"days", "3"}, {"other", "3"}}),
        call("weath", {{"city", "x"}, {"days", "3"}}), "Sure: " + call("weather", {}),
        call("weather", {{"city", "x"}, {"days", "3"}}) + "\n" +
            call("weather", {{"city", "x"}, {"days", "3"}})})
    EXPECT_FALSE(accepts(use, text)) << text;
}

TEST(CallGrammar, several_calls_of_offered_tools_follow_each_other) {
  const GrammarUse use =
      use_of(compile_calls({form("now", "{}"), form("weather", kWeather)}, false).value());
  const std::string one = call("now", {}), two = call("weather", {{"city", "x"}, {"days", "1"}});
  for (const std::string& text : {one, two, one + "\n" + two + "\n" + one,
                                  call("now", {{"any thing", "of\nany form"}, {"b", "2"}})})
    EXPECT_TRUE(accepts(use, text)) << text;
  for (const std::string& text :
       {one + two, one + "\nand", call("now", {{"a", "1"}, {"a", "2"}}) + "x"})
    EXPECT_FALSE(accepts(use, text)) << text;
}

TEST(CallGrammar, keywords_that_cannot_be_enforced_are_refused_of_strict_tools_alone) {
  const std::string schema =
      R"({"type":"object","properties":{"a":{"type":"integer","not":{}}},"required":["a"]})";
  EXPECT_THAT(to_string(compile_calls({form("t", schema, true)}, true).error()),
              HasSubstr("schema.unsupported_keyword"));
  std::vector<std::string> unenforced;
  const Result<Automaton> loose = compile_calls({form("t", schema)}, true, &unenforced);
  ASSERT_TRUE(loose);
  ASSERT_EQ(unenforced.size(), 1u);
  EXPECT_THAT(unenforced[0], HasSubstr("#/properties/a/not"));
}

TEST(CallGrammar, references_of_parameters_lead_into_their_schema) {
  const GrammarUse use = use_of(
      compile_calls(
          {form("t", R"({"type":"object","$defs":{"n":{"type":"array","items":{"$ref":"#/$defs/m"}},
          "m":{"type":"boolean"}},"properties":{"a":{"$ref":"#/$defs/n"}},"required":["a"],
          "additionalProperties":false})")},
          true)
          .value());
  EXPECT_TRUE(accepts(use, call("t", {{"a", "[true, false]"}})));
  EXPECT_FALSE(accepts(use, call("t", {{"a", "[1]"}})));
}

}  // namespace
}  // namespace roost
