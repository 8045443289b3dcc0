#include "grammar/follow_bytes.h"

#include <gtest/gtest.h>

#include <string>

#include "base/json.h"
#include "grammar/json_schema.h"
#include "grammar/text_grammar.h"

namespace roost {
namespace {

// What may follow the automaton that accepts exactly this text.
std::string behind(const Automaton& automaton, std::string_view text) {
  const auto all = follow_bytes(automaton);
  for (const Rule& rule : automaton.rules) {
    if (!rule.dfa || !rule.dfa->accepts_text(text)) continue;
    std::string out;
    for (size_t byte = 0; byte < 256; ++byte)
      if (all.at(rule.dfa.get())[byte]) out += static_cast<char>(byte);
    return out;
  }
  return "none accepts it";
}

TEST(FollowBytes, are_those_of_what_stands_behind_an_automaton) {
  const Automaton lists = compile_ebnf(
                              "root ::= list\nlist ::= \"(\" (item (\",\" item)*)? \")\"\n"
                              "item ::= list | \"a\" | \"b\"\n")
                              .value();
  EXPECT_EQ(behind(lists, "("), "()ab");
  EXPECT_EQ(behind(lists, "a"), "),");
  EXPECT_EQ(behind(lists, ","), "(ab");
  EXPECT_EQ(behind(lists, ")"), "),");
}

TEST(FollowBytes, see_through_what_may_be_empty) {
  const Automaton twice =
      compile_ebnf("root ::= \"x\" pair pair \"!\" \ntail ::= \"y\" pair \"z\"\npair ::= tail?\n")
          .value();
  EXPECT_EQ(behind(twice, "x"), "!y");
  EXPECT_EQ(behind(twice, "z"), "!yz");
}

TEST(FollowBytes, in_objects_and_arrays_anything_of_the_grammar_may_follow) {
  const Automaton object =
      compile_json_schema(
          json::parse(R"({"type":"object","properties":{"k":{"const":"v"}},"required":["k"],
                          "additionalProperties":false})")
              .value(),
          {.has_space = false})
          .value();
  // A newline may stand behind reasoning.
  EXPECT_EQ(behind(object, "{"),
            "\n"
            R"(",:[]{})");
  EXPECT_EQ(behind(object, R"("v")"),
            "\n"
            R"(",:[]{})");
}

}  // namespace
}  // namespace roost
