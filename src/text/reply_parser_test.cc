#include "text/reply_parser.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace roost {
namespace {

std::shared_ptr<const ToolTable> tools() {
  const auto schema = [](const char* text) { return std::move(json::parse(text)).value(); };
  std::vector<OfferedTool> out;
  out.push_back({"write_file", schema(R"({"type":"object","properties":{"path":{"type":"string"},
      "text":{"type":"string"},"mode":{"type":"integer"}},"required":["path"]})")});
  out.push_back({"closed", schema(R"({"type":"object","properties":{"a":{"type":"string"},
      "b":{"type":"boolean"}},"additionalProperties":false})")});
  out.push_back({"now", schema(R"({"type":"object","properties":{}})")});
  out.push_back(
      {"free", schema(R"({"type":"object","properties":{"input":{"type":"string"}}})"), true});
  return std::make_shared<ToolTable>(std::move(out));
}

// Events as one line: R(…) C(…) <0 name …arguments…>
std::string line_of(const std::vector<ReplyEvent>& events) {
  std::string out;
  for (const ReplyEvent& event : events) {
    switch (event.kind) {
      case ReplyEvent::Kind::kReasoning:
        out += "R(" + event.text + ")";
        break;
      case ReplyEvent::Kind::kContent:
        out += "C(" + event.text + ")";
        break;
      case ReplyEvent::Kind::kCallStart:
        out += fmt::format("<{} {} ", event.call_idx, event.text);
        break;
      case ReplyEvent::Kind::kCallArguments:
        out += event.text;
        break;
      case ReplyEvent::Kind::kCallEnd:
        out += ">";
        break;
    }
  }
  return out;
}

// Pieces of one kind are one, as clients put them together.
void join(std::vector<ReplyEvent>& all, std::vector<ReplyEvent> more) {
  for (ReplyEvent& event : more) {
    const bool is_text = event.kind == ReplyEvent::Kind::kReasoning ||
                         event.kind == ReplyEvent::Kind::kContent ||
                         event.kind == ReplyEvent::Kind::kCallArguments;
    if (is_text)
      add_text(all, std::move(event));
    else
      all.push_back(std::move(event));
  }
}

struct Case {
  bool starts_in_reasoning = false;
  bool has_tools = true;
  bool is_cut = false;
  std::vector<std::string> stops;
  bool ends_at_first_call = false;
};

std::string parse(const Case& setup, const std::vector<std::string_view>& pieces) {
  ReplyParserOptions options;
  options.starts_in_reasoning = setup.starts_in_reasoning;
  options.stops = setup.stops;
  options.ends_at_first_call = setup.ends_at_first_call;
  if (setup.has_tools) options.tools = tools();
  ReplyParser parser(std::move(options));
  std::vector<ReplyEvent> all;
  for (const std::string_view piece : pieces) {
    std::vector<ReplyEvent> events;
    parser.push(piece, events);
    for (const ReplyEvent& event : events) {
      const bool is_mark = event.kind == ReplyEvent::Kind::kCallEnd;
      EXPECT_TRUE(is_mark || !event.text.empty()) << "an event of no text";
    }
    join(all, std::move(events));
  }
  std::vector<ReplyEvent> events;
  parser.finish(setup.is_cut, events);
  join(all, std::move(events));
  return line_of(all);
}

// The whole text, single bytes, and every cut in two give one and the same.
void expect(const Case& setup, const std::string& text, const std::string& want) {
  const std::string_view view = text;
  EXPECT_EQ(parse(setup, {view}), want) << text;
  std::vector<std::string_view> bytes;
  for (size_t i = 0; i < view.size(); ++i) bytes.push_back(view.substr(i, 1));
  EXPECT_EQ(parse(setup, bytes), want) << text << " in bytes";
  for (size_t i = 0; i <= view.size(); ++i)
    ASSERT_EQ(parse(setup, {view.substr(0, i), view.substr(i)}), want) << text << " cut at " << i;
}

const Case kThinking{.starts_in_reasoning = true};
const Case kContent{};

TEST(ReplyParser, splits_the_reply_at_its_markers) {
  const struct {
    bool starts_in_reasoning;
    const char *text, *want;
  } cases[] = {
      {true, "why\n</think>\n\nbecause", "R(why)C(because)"},
      {false, "hello\n\n", "C(hello\n\n)"},
      {true, "thinking on", "R(thinking on)"},
      {true, "\n\nthinking\n\non\n\n", "R(\nthinking\n\non)"},
      {true, "\n\n</think>\n\nhi", "C(hi)"},
      {true, "", ""},
      {false, "\n\n\n", "C(\n\n\n)"},
      {true, "</think>", ""},
      {false, "<think>\nwhy\n</think>\n\nso", "R(why)C(so)"},
      {false, " \n<think>\nwhy\n</think>\nso", "R(why)C(so)"},
      {false, "a <think>b</think>", "C(a <think>b</think>)"},
      {true, "a</think><think>b</think>", "R(a)C(<think>b</think>)"},
      {true, "a</think>b</think>c", "R(a)C(b</think>c)"},
      {false, "a</think>b", "C(a</think>b)"},
      {true, "a<think>b</think>c", "R(a<think>b)C(c)"},
      {true, "<<</<thi</thin</think </thinks>\n<</think>x",
       "R(<<</<thi</thin</think </thinks>\n<)C(x)"},
      {false, "<<th<think <thinking>", "C(<<th<think <thinking>)"},
      {true, " a \n\n b \n</think> \n c\n", "R( a \n\n b )C( \n c\n)"},
      {true, "a\n</thi", "R(a\n</thi)"},
      {false, "<thin", "C(<thin)"},
      {false, "\n  <thin", "C(\n  <thin)"},
      {false, "  <think>a</think>b", "R(a)C(b)"},
      {true, "\n \n</think>b", "R( )C(b)"},
      {false, " \n", "C( \n)"},
      {true, "a</thi</think>b", "R(a</thi)C(b)"},
      {true, "é日\n\n</think>\n🎉", "R(é日)C(🎉)"},
  };
  for (const auto& c : cases) {
    for (const bool has_tools : {false, true})
      expect({.starts_in_reasoning = c.starts_in_reasoning, .has_tools = has_tools}, c.text,
             c.want);
  }
}

std::string call(const std::string& name, const std::string& parameters) {
  return "<tool_call>\n<function=" + name + ">\n" + parameters + "</function>\n</tool_call>";
}
std::string parameter(const std::string& key, const std::string& value) {
  return "<parameter=" + key + ">\n" + value + "\n</parameter>\n";
}

TEST(ReplyParser, calls_are_found_behind_content_and_behind_each_other) {
  const std::string a = call("write_file", parameter("path", "/tmp/x") + parameter("mode", "5"));
  const std::string b = call("now", "");
  const std::string want_a = R"(<0 write_file {"path":"/tmp/x","mode":5}>)";
  expect(kContent, a, want_a);
  expect(kContent, "I write.\n\n" + a, "C(I write.)" + want_a);
  expect(kContent, a + "\n" + b, want_a + "<1 now {}>");
  expect(kContent, a + "\n\n", want_a);
  expect(kContent, a + " \n done \n", want_a + "C(done)");
  expect(kThinking, "why\n</think>\n\n" + a, "R(why)" + want_a);
  expect(kContent, " \n" + b, "<0 now {}>");
}

TEST(ReplyParser, values_are_verbatim) {
  const std::pair<const char*, const char*> cases[] = {
      {"a", "a"},
      {"a\n", R"(a\n)"},
      {"\na\n", R"(\na\n)"},
      {"", ""},
      {"  two\tblanks  ", R"(  two\tblanks  )"},
      {"A block ends with </tool_call> and </parameter> here.",
       "A block ends with </tool_call> and </parameter> here."},
      {"</parameter>\n</function>\nno end", R"(</parameter>\n</function>\nno end)"},
      {"<parameter=path>\nx", R"(<parameter=path>\nx)"},
      {"&lt;\\n \"q\"", R"(&lt;\\n \"q\")"},
      {"é日本😀", "é日本😀"},
      {"</parameter></parameter>", "</parameter></parameter>"},
  };
  for (const auto& [value, escaped] : cases) {
    expect(kContent, call("write_file", parameter("path", value)),
           fmt::format(R"(<0 write_file {{"path":"{}"}}>)", escaped));
  }
  expect(kContent, call("write_file", "<parameter=path>x</parameter>"),
         R"(<0 write_file {"path":"x"}>)");
  expect(kContent, call("write_file", "<parameter=path>\n</parameter>"),
         R"(<0 write_file {"path":""}>)");
}

TEST(ReplyParser, a_closer_counts_only_where_the_call_can_go_on_behind_it) {
  // A key that is given already, or one that a closed schema does not know, is value.
  expect(
      kContent,
      call("write_file", "<parameter=path>\na\n</parameter>\n<parameter=path>\nb\n</parameter>\n"),
      R"(<0 write_file {"path":"a\n</parameter>\n<parameter=path>\nb"}>)");
  expect(kContent,
         call("closed", "<parameter=a>\nx\n</parameter>\n<parameter=z>\ny\n</parameter>\n"),
         R"(<0 closed {"a":"x\n</parameter>\n<parameter=z>\ny"}>)");
  expect(kContent, call("write_file", parameter("path", "a") + parameter("other", "[1]")),
         R"(<0 write_file {"path":"a","other":[1]}>)");
}

TEST(ReplyParser, damage_that_can_be_repaired_is) {
  // A value without its closer, before a line that opens a declared parameter.
  expect(kContent,
         "<tool_call>\n<function=write_file>\n<parameter=path>\na\n<parameter=text>\nb\n"
         "</parameter>\n</function>\n</tool_call>",
         R"(<0 write_file {"path":"a","text":"b"}>)");
  // The end of the turn supplies what is missing.
  const std::string open = "<tool_call>\n<function=write_file>\n<parameter=path>\na";
  for (const char* rest : {"", "\n", "\n</par", "\n</parameter>", "\n</parameter>\n</function>",
                           "\n</parameter>\n</function>\n</tool"})
    expect(kContent, open + rest, R"(<0 write_file {"path":"a"}>)");
  // Without parameters the last closer may be missing.
  expect(kContent, "<tool_call>\n<function=now>\n</function>\nDone.", "<0 now {}>C(Done.)");
  expect(kContent, "<tool_call>\n<function=now>\n</function>", "<0 now {}>");
  // A function of an offered tool at a line's start needs no opening tag.
  expect(kContent, "So:\n<function=now>\n</function>\n</tool_call>", "C(So:)<0 now {}>");
  expect(kContent, "So: <function=now>\n</function>", "C(So: <function=now>\n</function>)");
  expect(kContent, "<function=Now>\n</function>", "C(<function=Now>\n</function>)");
}

TEST(ReplyParser, a_reply_that_was_cut_leaves_arguments_that_parse) {
  const Case cut{.is_cut = true};
  const std::string open = "<tool_call>\n<function=write_file>\n<parameter=path>\na";
  expect(cut, open, R"(<0 write_file {"path":"a"}>)");
  expect(cut, open + "\n</par", R"(<0 write_file {"path":"a\n</par"}>)");
  expect(cut, "<tool_call>\n<function=write_file>\n<parameter=mode>\n1",
         R"(<0 write_file {"mode":1}>)");
  expect(cut, "<tool_call>\n<function=write_file>\n<param",
         "C(<tool_call>\n<function=write_file>\n<param)");
}

TEST(ReplyParser, what_is_no_call_is_content_unchanged) {
  for (const char* text : {
           "<tool_call>\n{\"name\": \"now\"}\n</tool_call>",
           "<tool_call> is a tag",
           "<tool_call>\n<function=a<b>\n",
           "<tool_call>\n<function=>\n</function>",
           "a < b and <tool",
           "<tool_call>\n<function=now>\ntext",
           "<tool_call>\n<tool_call>\n",
       })
    expect(kContent, text, fmt::format("C({})", text));
  expect(kContent, "<tool_call>\n" + call("now", ""), "C(<tool_call>)<0 now {}>");
  const std::string a = call("now", "");
  expect({.has_tools = false}, a, "C(" + a + ")");
}

TEST(ReplyParser, names_are_found_in_any_case_and_unknown_ones_are_calls) {
  expect(kContent, call("Write_File", parameter("path", "1")), R"(<0 write_file {"path":"1"}>)");
  expect(kContent, call(" now ", ""), "<0 now {}>");
  expect(kContent, call("other", parameter("x", "1") + parameter("y", "{\"a\": 1}")),
         R"(<0 other {"x":"1","y":{"a":1}}>)");
}

TEST(ReplyParser, free_text_leaves_as_it_is) {
  expect(kContent, call("free", parameter("input", "say \"hi\"\n")), "<0 free say \"hi\"\n>");
}

TEST(ReplyParser, a_limit_of_one_call_ends_the_reply) {
  const Case one{.ends_at_first_call = true};
  expect(one, "x" + call("now", "") + call("now", "") + "y", "C(x)<0 now {}>");
}

TEST(ReplyParser, calls_in_reasoning_count_only_when_nothing_else_follows) {
  const std::string a = call("write_file", parameter("path", "p"));
  const std::string want = R"(<0 write_file {"path":"p"}>)";
  expect(kThinking, "I think\n" + a, "R(I think)" + want);
  expect(kThinking, "I think\n" + a + "\n</think>\n\n", "R(I think)" + want);
  expect(kThinking, a + "\n" + call("now", ""), want + "<1 now {}>");
  expect(kThinking, "t\n" + a + "\nno, wait\n</think>\nok", "R(t\n" + a + "\nno, wait)C(ok)");
  expect(kThinking, "t\n" + a + "\n</think>\n\nDone", "R(t\n" + a + ")C(Done)");
  expect(kThinking, "t\n" + a + "\n</think>\n\n" + call("now", ""), "R(t\n" + a + ")<0 now {}>");
  // Not complete, not offered, or against the schema: thoughts.
  const std::string half = "<tool_call>\n<function=write_file>\n<parameter=path>\nx";
  expect(kThinking, "t " + half, "R(t " + half + ")");
  expect(kThinking, "t " + half + "\n</think>\n\nok", "R(t " + half + ")C(ok)");
  const std::string unknown = call("other", "");
  expect(kThinking, "t " + unknown, "R(t " + unknown + ")");
  const std::string empty = call("write_file", parameter("text", "x"));
  expect(kThinking, "t " + empty, "R(t " + empty + ")");
  expect(kThinking, "t <tool_call> is a tag</think>c", "R(t <tool_call> is a tag)C(c)");
  expect(kThinking, "t <tool_call></think>c", "R(t <tool_call>)C(c)");
  expect(kThinking, "t\n" + a + "</thi", "R(t\n" + a + "</thi)");
  expect({.starts_in_reasoning = true, .is_cut = true}, "t\n" + a, "R(t\n" + a + ")");
}

TEST(ReplyParser, stop_strings_end_the_visible_content) {
  expect({.stops = {"END"}}, "one END two", "C(one )");
  expect({.starts_in_reasoning = true, .stops = {"x"}}, "axb</think>cxd", "R(axb)C(c)");
  expect({.stops = {"\n\n"}}, "one\n\ntwo", "C(one)");
  expect({.stops = {"\n\n"}}, "one\n\n" + call("now", ""), "C(one)");
  expect({.stops = {"now", "</tool_call>"}}, "a" + call("now", ""), "C(a)<0 now {}>");
  expect({.stops = {"EN"}}, "E" + call("now", ""), "C(E)<0 now {}>");
}

TEST(ReplyParser, text_that_is_certain_is_not_held) {
  ReplyParserOptions options;
  options.starts_in_reasoning = true;
  options.tools = tools();
  ReplyParser parser(std::move(options));
  const auto push = [&](std::string_view text) {
    std::vector<ReplyEvent> events;
    parser.push(text, events);
    return line_of(events);
  };
  EXPECT_EQ(push("abc"), "R(abc)");
  EXPECT_EQ(push("\n<"), "");
  EXPECT_EQ(push("x"), "R(\n<x)");
  EXPECT_EQ(push("</think>a"), "C(a)");
  EXPECT_EQ(push("<"), "");
  EXPECT_EQ(push("b<tool_call>\n<function=write_file>\n"), "C(<b)");
  EXPECT_EQ(push("<parameter=path>"), "<0 write_file {\"path\":\"");
  EXPECT_EQ(push("\nab"), "ab");
  EXPECT_EQ(push("\n"), "");
  EXPECT_EQ(push("c</param"), "\\nc");
  EXPECT_EQ(push("eter>\n</function>\n</tool_call>"), "\"}>");
}

TEST(ReplyParser, the_work_per_byte_does_not_grow) {
  ReplyParserOptions options;
  options.tools = tools();
  ReplyParser parser(std::move(options));
  std::vector<ReplyEvent> events;
  std::string text = "<tool_call>\n<function=write_file>\n<parameter=path>\n";
  for (int i = 0; i < 20'000; ++i)
    text += "</parameter>\n</function>\n\n\n<tool_call>\n<function=x>\n";
  for (const char& c : text) {
    events.clear();
    parser.push({&c, 1}, events);
  }
  parser.finish(false, events);
  EXPECT_EQ(parser.n_calls(), 1);
  for (const char* unit :
       {"<tool_call>\n\n\n", "\n", "<tool_call><function=now></function>", "<"}) {
    ReplyParserOptions more;
    more.starts_in_reasoning = true;
    more.tools = tools();
    ReplyParser thinking(std::move(more));
    std::string thoughts;
    for (int i = 0; i < 20'000; ++i) thoughts += unit;
    thinking.push(thoughts, events);
    thinking.finish(false, events);
    EXPECT_TRUE(thinking.was_reasoning());
  }
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
