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
  std::vector<UnenforcedPlace> unenforced;
  const Result<Automaton> loose =
      compile_calls({form("o", "{}"), form("t", schema)}, true, &unenforced);
  ASSERT_TRUE(loose);
  ASSERT_EQ(unenforced.size(), 1u);
  EXPECT_EQ(unenforced[0].tool_idx, 1u);
  EXPECT_EQ(unenforced[0].pointer, "/properties/a/not");
  EXPECT_THAT(to_string(compile_calls({form("t", R"({"minProperties":1})", true)}, true).error()),
              HasSubstr("#/minProperties"));
}

TEST(CallGrammar, a_name_that_is_required_and_not_declared_must_come) {
  const GrammarUse use =
      use_of(compile_calls({form("t", R"({"type":"object","required":["a"]})")}, true).value());
  EXPECT_TRUE(accepts(use, call("t", {{"b", "1"}, {"a", "x"}})));
  EXPECT_FALSE(accepts(use, call("t", {{"b", "1"}})));
  EXPECT_THAT(to_string(compile_calls(
                            {form("t", R"({"required":["a"],"additionalProperties":false})")}, true)
                            .error()),
              HasSubstr("schema.unsatisfiable"));
}

// What the parser takes for the end of a value is one.
TEST(CallGrammar, text_holds_nothing_that_reads_as_the_end_of_a_value) {
  const GrammarUse use = use_of(
      compile_calls({form("t", R"({"properties":{"a":{"type":"string"}},"required":["a"]})")}, true)
          .value());
  for (const char* text :
       {"ends with </tool_call> and </parameter> here.", "<parameter=x> in a line",
        "</parameter> </tool_call>", "x\n</function>\n</tool_call>"})
    EXPECT_TRUE(accepts(use, call("t", {{"a", text}}))) << text;
  for (const char* text : {"x</parameter></function>", "x</parameter>\n  <parameter=b>",
                           "x\n<parameter=b>\ny", "<parameter=b>\ny", "</parameter> \n</function>"})
    EXPECT_FALSE(accepts(use, call("t", {{"a", text}}))) << text;
}

TEST(CallGrammar, calls_of_strict_tools_in_free_text_are_bound_from_their_name_on) {
  const GrammarUse use = use_of(compile_strict_calls({form("weather", kWeather, true)}).value());
  const std::string good = call("weather", {{"city", "x"}, {"days", "3"}});
  const std::string bad = call("weather", {{"city", "x"}});
  for (const std::string& text :
       {std::string(), std::string("No call. <function=weather> in a line"), good,
        "I look. " + good, good + "\n" + good + "\nand text", call("other", {{"a", "b"}}),
        call("other", {}) + "\n" + good, call("weath", {{"a", "b"}}) + call("weather2", {}),
        std::string("<tool_call>\n<function=weather"), "<tool_call> x " + good,
        "<tool_call>\n<function= Weather >" +
            good.substr(std::string("<tool_call>\n<function=weather>").size())})
    EXPECT_TRUE(accepts(use, text)) << text;
  for (const std::string& text : {bad, "I look. " + bad, good + "\n" + bad, call("other", {}) + bad,
                                  good.substr(0, good.size() - 3),
                                  std::string("<tool_call>\n<function=WEATHER>\n</function>"),
                                  std::string("<function=weather>\nx")})
    EXPECT_FALSE(accepts(use, text)) << text;
}

TEST(CallGrammar, behind_reasoning_calls_must_come_and_strict_ones_may) {
  GrammarUse forced = use_of(compile_calls({form("now", "{}")}, true).value());
  GrammarUse strict = use_of(compile_strict_calls({form("now", "{}", true)}).value());
  forced.is_behind_reasoning = strict.is_behind_reasoning = true;
  const std::string thought = "why <tool_call>\n<function=now>x";
  for (const std::string& text : {thought + "</think>\n\n" + call("now", {})}) {
    EXPECT_TRUE(accepts(forced, text));
    EXPECT_TRUE(accepts(strict, text));
  }
  for (const std::string& text : {thought, thought + "</think>\n\nno call"}) {
    EXPECT_FALSE(accepts(forced, text));
    EXPECT_TRUE(accepts(strict, text));
  }
}

TEST(CallGrammar, a_form_or_calls_as_the_first_byte_decides) {
  Automaton calls = compile_calls({form("weather", kWeather)}, true).value();
  Automaton value =
      compile_json_schema(json::parse(R"({"type":"array","items":{"type":"array"}})").value(),
                          {.has_space = false})
          .value();
  for (const bool is_swapped : {false, true}) {
    const GrammarUse use = use_of(is_swapped ? either(value, calls) : either(calls, value));
    EXPECT_TRUE(accepts(use, "[[1],[]]"));
    EXPECT_TRUE(
        accepts(use, call("weather", {{"at", "{\"a\": [1, 2]}"}, {"city", "x"}, {"days", "1"}})));
    for (const char* text : {"[[1], []]", "", "[[1]]<tool_call>", "{}"})
      EXPECT_FALSE(accepts(use, text)) << text;
  }
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
