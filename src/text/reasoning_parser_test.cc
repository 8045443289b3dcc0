#include "text/reasoning_parser.h"

#include <vector>

#include <gtest/gtest.h>

namespace roost {
namespace {

struct Case {
  const char* name;
  bool starts_in_reasoning;
  const char* text;
  const char* reasoning;
  const char* content;
};

const Case kCases[] = {
    {"plain", true, "why\n</think>\n\nbecause", "why", "because"},
    {"content alone", false, "hello\n\n", "", "hello\n\n"},
    {"no end", true, "thinking on", "thinking on", ""},
    {"no end, newlines", true, "\n\nthinking\n\non\n\n", "thinking\n\non", ""},
    {"empty block", true, "\n\n</think>\n\nhi", "", "hi"},
    {"nothing at all", true, "", "", ""},
    {"newlines alone", false, "\n\n\n", "", ""},
    {"only the marker", true, "</think>", "", ""},
    {"opening generated first", true, "<think>\nwhy\n</think>\n\nso", "why", "so"},
    {"opening generated in content", false, " \n<think>\nwhy\n</think>\nso", "why", "so"},
    {"opening behind text is content", false, "a <think>b</think>", "", "a <think>b</think>"},
    {"second opening is content", true, "a</think><think>b</think>", "a", "<think>b</think>"},
    {"second closing is content", true, "a</think>b</think>c", "a", "b</think>c"},
    {"closing without opening is content", false, "a</think>b", "", "a</think>b"},
    {"opening inside reasoning is text", true, "a<think>b</think>c", "a<think>b", "c"},
    {"false starts", true, "<<</<thi</thin</think </thinks>\n<</think>x",
     "<<</<thi</thin</think </thinks>\n<", "x"},
    {"false starts in content", false, "<<th<think <thinking>", "", "<<th<think <thinking>"},
    {"blanks kept inside", true, " a \n\n b \n</think> \n c\n", " a \n\n b ", " \n c\n"},
    {"cut marker in reasoning", true, "a\n</thi", "a\n</thi", ""},
    {"cut marker in content", false, "<thin", "", "<thin"},
    {"cut marker behind blanks", false, "\n  <thin", "", "  <thin"},
    {"blanks before the opening", true, "  <think>a</think>b", "a", "b"},
    {"blanks before the closing", true, "\n \n</think>b", " ", "b"},
    {"blanks alone in reasoning", true, " \n", " ", ""},
    {"blanks alone in content", false, " \n", "", " \n"},
    {"marker twice begun", true, "a</thi</think>b", "a</thi", "b"},
    {"characters beyond ASCII", true, "é日\n\n</think>\n🎉", "é日", "🎉"},
};

ReplyDelta parse(bool starts_in_reasoning, const std::vector<std::string_view>& pieces) {
  ReasoningParser parser(starts_in_reasoning);
  ReplyDelta whole;
  const auto add = [&](const ReplyDelta& delta) {
    whole.reasoning += delta.reasoning;
    whole.content += delta.content;
  };
  for (const std::string_view piece : pieces) add(parser.push(piece));
  add(parser.finish());
  return whole;
}

TEST(ReasoningParser, splits_the_reply_at_its_markers) {
  for (const Case& c : kCases) {
    const ReplyDelta got = parse(c.starts_in_reasoning, {c.text});
    EXPECT_EQ(got.reasoning, c.reasoning) << c.name;
    EXPECT_EQ(got.content, c.content) << c.name;
  }
}

// All ways to cut short texts, and all pairs of cuts of the long ones.
TEST(ReasoningParser, no_cut_changes_the_whole) {
  for (const Case& c : kCases) {
    const std::string_view text = c.text;
    const auto expect_same = [&](const std::vector<std::string_view>& pieces) {
      const ReplyDelta got = parse(c.starts_in_reasoning, pieces);
      ASSERT_EQ(got.reasoning, c.reasoning) << c.name << ", " << pieces.size() << " pieces";
      ASSERT_EQ(got.content, c.content) << c.name << ", " << pieces.size() << " pieces";
    };
    for (size_t i = 0; i <= text.size(); ++i)
      for (size_t k = i; k <= text.size(); ++k)
        expect_same({text.substr(0, i), text.substr(i, k - i), text.substr(k)});
    std::vector<std::string_view> bytes;
    for (size_t i = 0; i < text.size(); ++i) bytes.push_back(text.substr(i, 1));
    expect_same(bytes);
    if (text.size() > 14) continue;
    for (uint32_t cuts = 0; cuts < uint32_t{1} << text.size(); ++cuts) {
      std::vector<std::string_view> pieces;
      size_t begin = 0;
      for (size_t i = 1; i <= text.size(); ++i) {
        if (i < text.size() && (cuts >> i & 1) == 0) continue;
        pieces.push_back(text.substr(begin, i - begin));
        begin = i;
      }
      expect_same(pieces);
    }
  }
}

TEST(ReasoningParser, text_that_is_certain_is_not_held) {
  ReasoningParser parser(true);
  EXPECT_EQ(parser.push("abc").reasoning, "abc");
  EXPECT_EQ(parser.push("\n<").reasoning, "");
  EXPECT_EQ(parser.push("x").reasoning, "\n<x");
  EXPECT_TRUE(parser.in_reasoning());
  EXPECT_EQ(parser.push("</think>a").content, "a");
  EXPECT_EQ(parser.push("\n").content, "\n");
  EXPECT_EQ(parser.push("<").content, "<");
  EXPECT_FALSE(parser.in_reasoning());
}

TEST(ReasoningParser, knows_whether_there_was_reasoning) {
  ReasoningParser content(false);
  content.push("a");
  EXPECT_FALSE(content.was_reasoning());
  ReasoningParser opened(false);
  opened.push("<think>a</think>b");
  EXPECT_TRUE(opened.was_reasoning());
  EXPECT_FALSE(opened.in_reasoning());
  EXPECT_TRUE(ReasoningParser(true).was_reasoning());
}

TEST(ReasoningParser, many_newlines_cost_no_more_than_their_number) {
  ReasoningParser parser(true);
  const std::string newlines(1'000'000, '\n');
  parser.push("a");
  for (const char& c : newlines) parser.push({&c, 1});
  EXPECT_EQ(parser.push("b").reasoning.size(), newlines.size() + 1);
}

TEST(PromptStartsInReasoning, iff_the_last_opening_comes_after_the_last_closing) {
  EXPECT_TRUE(prompt_starts_in_reasoning("<|im_start|>assistant\n<think>\n"));
  EXPECT_FALSE(prompt_starts_in_reasoning("<|im_start|>assistant\n<think>\n\n</think>\n\n"));
  EXPECT_FALSE(prompt_starts_in_reasoning("<|im_start|>assistant\n"));
  EXPECT_TRUE(prompt_starts_in_reasoning("<think>a</think> b <think>"));
  EXPECT_FALSE(prompt_starts_in_reasoning("</think>"));
}

}  // namespace
}  // namespace roost
