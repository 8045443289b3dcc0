#include "grammar/text_grammar.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "grammar/test_vocabulary.h"
#include "grammar/unicode_properties.h"

namespace roost {
namespace {

using testing::accepts;
using ::testing::HasSubstr;
using testing::use_of;

void ask_regex(std::string_view pattern, const std::vector<std::string>& yes,
               const std::vector<std::string>& no) {
  Result<Automaton> automaton = compile_regex_grammar(pattern);
  ASSERT_TRUE(automaton) << pattern << ": " << to_string(automaton.error());
  const GrammarUse use = use_of(*std::move(automaton));
  for (const std::string& text : yes) EXPECT_TRUE(accepts(use, text)) << pattern << " on " << text;
  for (const std::string& text : no) EXPECT_FALSE(accepts(use, text)) << pattern << " on " << text;
}

std::string refusal_of_regex(std::string_view pattern) {
  const Result<Automaton> automaton = compile_regex_grammar(pattern);
  return automaton ? "" : to_string(automaton.error());
}

TEST(Regex, matches_the_whole_reply_over_code_points) {
  ask_regex("a|bc*", {"a", "b", "bccc"}, {"", "ac", "bb"});
  ask_regex("^[a-c]+$|x", {"abc", "x"}, {"", "d", "xa"});
  ask_regex(".{2}", {"ab", "日本", "😀é"}, {"a", "abc", "\n\n", "a\xFF"});
  ask_regex("[^a-y]", {"z", "é", "\n", "日"}, {"a", "y", ""});
  ask_regex("\\d{2,3}?", {"12", "123"}, {"1", "1234", "1a"});
  ask_regex("(?:x|(y)|(?<n>z)|(?P<m>w)){2,}", {"xy", "zwx"}, {"x", ""});
  ask_regex("\\x41\\u0042\\u{1F600}\\/\\.\\-\\ud83d\\ude00", {"AB😀/.-😀"}, {"AB"});
  ask_regex("[\\w-]+\\s\\S\\W\\D", {"a-_9 x-x"}, {"a-_9 x-1"});
  ask_regex("[]a]|[-x]|[\\]]", {}, {"b"});
  ask_regex("a{3}b{0}c?", {"aaa", "aaac"}, {"aa", "aaab"});
  ask_regex("\\0\\t\\f\\v\\r", {std::string("\0\t\f\v\r", 5)}, {""});
}

TEST(Regex, properties_are_general_categories_and_scripts) {
  ask_regex("\\p{Lu}\\p{Ll}", {"Ab", "Éé"}, {"ab", "AB"});
  ask_regex("\\p{Greek}+|\\p{sc=Han}|\\p{Script=Cyrl}", {"αβγ", "日", "ж"}, {"a", "ab"});
  ask_regex("\\P{L}[\\p{Nd}x]", {"1٣", "-x"}, {"a1"});
  EXPECT_FALSE(unicode_property("Alphabetic"));
  EXPECT_FALSE(unicode_property("gc=Greek"));
  EXPECT_EQ(unicode_property("Uppercase_Letter"), unicode_property("gc=Lu"));
}

TEST(Regex, constructs_that_are_no_sets_of_texts_are_refused_with_their_place) {
  for (const auto& [pattern, place] :
       std::vector<std::pair<std::string, std::string>>{{"a(?=b)", "offset 1: look-ahead"},
                                                        {"(?!b)", "offset 0: look-ahead"},
                                                        {"(?<=b)", "look-behind"},
                                                        {"(?<!b)", "look-behind"},
                                                        {"(a)\\1", "offset 3: the back-reference"},
                                                        {"\\k<a>", "back-reference by name"},
                                                        {"(?P=a)", "back-reference by name"},
                                                        {"a\\b", "offset 1: \\b"},
                                                        {"a++", "possessive"},
                                                        {"(?i)a", "flags"},
                                                        {"a^b", "^ that does not begin a branch"},
                                                        {"a$b", "$ inside a branch"},
                                                        {"(a$)", "$ inside a group"},
                                                        {"\\p{Emoji}", "property"},
                                                        {"\\a", "escape of this letter"},
                                                        {"\\ud800", "lone surrogate"},
                                                        {"\\012", "octal"}}) {
    EXPECT_THAT(refusal_of_regex(pattern), HasSubstr("regex.unsupported")) << pattern;
    EXPECT_THAT(refusal_of_regex(pattern), HasSubstr(place)) << pattern;
  }
  for (const char* pattern : {"(", ")", "[a", "*a", "a**", "a{2,1}", "{", "[b-a]", "\\x1", "\\",
                              "\\u{110000}", "a)b", "(?<n", "\\p", "[^\\s\\S]"})
    EXPECT_THAT(refusal_of_regex(pattern), HasSubstr("grammar.invalid")) << pattern;
  EXPECT_THAT(refusal_of_regex("a{10001}"), HasSubstr("grammar.too_large"));
  EXPECT_THAT(refusal_of_regex(std::string(100, '(') + std::string(100, ')')),
              HasSubstr("grammar.too_large"));
}

TEST(Choice, is_exactly_one_of_the_texts) {
  const GrammarUse use = use_of(compile_choice({"yes", "yes, sir", "né"}).value());
  for (const char* text : {"yes", "yes, sir", "né"}) EXPECT_TRUE(accepts(use, text));
  for (const char* text : {"", "ye", "yes,", "no", "yes "}) EXPECT_FALSE(accepts(use, text));
}

void ask_ebnf(std::string_view text, const std::vector<std::string>& yes,
              const std::vector<std::string>& no) {
  Result<Automaton> automaton = compile_ebnf(text);
  ASSERT_TRUE(automaton) << text << ": " << to_string(automaton.error());
  const GrammarUse use = use_of(*std::move(automaton));
  for (const std::string& one : yes) EXPECT_TRUE(accepts(use, one)) << text << " on " << one;
  for (const std::string& one : no) EXPECT_FALSE(accepts(use, one)) << text << " on " << one;
}

std::string refusal_of_ebnf(std::string_view text) {
  const Result<Automaton> automaton = compile_ebnf(text);
  return automaton ? "" : to_string(automaton.error());
}

TEST(Ebnf, rules_nest_and_repeat) {
  ask_ebnf(
      "# sums\nroot  ::= term (\" + \" term)*   # with spaces\n"
      "term  ::= number | \"(\" root \")\"\nnumber ::= \"-\"? [0-9]{1,3}",
      {"1", "1 + -22", "(1 + (2)) + 3"}, {"", "1+2", "(1", "1234", "()", "1 + "});
  ask_ebnf("root ::= \"a\" root \"b\" | \"\"", {"", "ab", "aaabbb"}, {"a", "aab", "ba"});
  ask_ebnf("root ::= item+\nitem ::= \"- \" [^\\n]+ \"\\n\"", {"- x\n", "- a\n- é\n"},
           {"", "- \n"});
  ask_ebnf("root ::= (\"a\" | x)? . \"\\x41\\u00e9\\\"\\\\\"\nx ::= \"b\"\n  | \"c\"",
           {"acAé\"\\", "cxAé\"\\", "xAé\"\\"}, {"aAé\""});
  ask_ebnf("root ::= l\nl ::= \"x\" l | \"x\"", {std::string(1000, 'x')}, {""});
  ask_ebnf("root ::= a{2} b{1,} c{,2}\na ::= \"a\"\nb ::= \"(\" b* \")\"\nc ::= \"c\"",
           {"aa()", "aa()(())cc"}, {"a()", "aacc", "aa()ccc"});
  const std::string deep(300, '(');
  ask_ebnf("root ::= \"(\" root \")\" | \"x\"", {"((x))"}, {deep + "x" + std::string(300, ')')});
}

TEST(Ebnf, what_is_wrong_is_refused_with_line_and_column) {
  for (const auto& [text, place] : std::vector<std::pair<std::string, std::string>>{
           {"", "line 1, column 1: the rule root is missing"},
           {"start: \"a\"", "line 1, column 6: ::= is missing"},
           {"root ::= a\na ::= b", "line 2, column 7: the rule b is not defined"},
           {"root ::= root \"a\" | \"b\"", "line 1, column 1: the rule root may begin with itself"},
           {"root ::= \"a\" b\nb ::= c b\nc ::= \"\" | \"x\"", "line 2, column 1: the rule b may"},
           {"root ::= \"a", "line 1, column 10: the literal is not closed"},
           {"root ::= [a", "line 1, column 10: the class"},
           {"root ::= (\"a\"", "line 1, column 10: this bracket is not closed"},
           {"root ::= \"a\" )", "line 1, column 14: this is not expected"},
           {"root ::= \"a\"\nroot ::= \"b\"", "line 2, column 1: root is defined twice"},
           {"root ::= \"\\q\"", "line 1, column 11: this escape"},
           {"root ::= \"a\"{3,2}", "line 1, column 13: the counts"},
           {"root ::= \"a\"*+", "line 1, column 14: a repetition of a repetition"},
           {"root ::= \"a\" root", "nothing satisfies the whole"}}) {
    EXPECT_THAT(refusal_of_ebnf(text), HasSubstr("grammar.invalid")) << text;
    EXPECT_THAT(refusal_of_ebnf(text), HasSubstr(place)) << text;
  }
}

TEST(Ebnf, too_large_grammars_are_refused_in_bounded_time) {
  EXPECT_THAT(refusal_of_ebnf("root ::= \"a\"{20000}"), HasSubstr("grammar.too_large"));
  EXPECT_THAT(refusal_of_ebnf("root ::= " + std::string(100, '(') + std::string(100, ')')),
              HasSubstr("grammar.too_large"));
  EXPECT_THAT(refusal_of_ebnf(std::string((1 << 20) + 1, ' ')), HasSubstr("grammar.too_large"));
  std::string many = "root ::= r0\n", doubling = "root ::= r0\n";
  for (int i = 0; i < 1100; ++i) many += "r" + std::to_string(i) + " ::= \"x\"\n";
  EXPECT_THAT(refusal_of_ebnf(many), HasSubstr("grammar.too_large"));
  for (int i = 0; i < 60; ++i) {
    const std::string next = " r" + std::to_string(i + 1);
    doubling += "r" + std::to_string(i) + " ::=" + next + next + "\n";
  }
  EXPECT_EQ(refusal_of_ebnf(doubling + "r60 ::= \"\""), "");
}

}  // namespace
}  // namespace roost
