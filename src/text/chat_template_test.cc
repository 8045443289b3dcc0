#include "text/chat_template.h"

#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace roost {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr int64_t kNow = 1'700'000'000;  // 2023-11-14 22:13:20 UTC

json::Value object(const std::string& text) {
  Result<json::Value> value = json::parse(text);
  EXPECT_TRUE(value) << to_string(value.error()) << " in " << text;
  return value ? *value : json::Value::object();
}

Result<std::string> try_render(const std::string& source, const std::string& data = "{}") {
  ROOST_TRY(const ChatTemplate chat_template, ChatTemplate::parse(source));
  return chat_template.render(object(data), kNow);
}

std::string render(const std::string& source, const std::string& data = "{}") {
  const Result<std::string> text = try_render(source, data);
  return text ? *text : "refused: " + to_string(text.error());
}

std::string code(const std::string& source, const std::string& data = "{}") {
  const Result<std::string> text = try_render(source, data);
  return text ? "rendered " + text->substr(0, 200) : std::string(code_of(text.error().refusal));
}

std::string detail(const std::string& source, const std::string& data = "{}") {
  const Result<std::string> text = try_render(source, data);
  return text ? "rendered " + text->substr(0, 200) : text.error().detail;
}

std::string repeated(const std::string& text, int n) {
  std::string out;
  for (int i = 0; i < n; ++i) out += text;
  return out;
}

std::string template_of(const std::string& name) {
  const std::string path =
      std::string(ROOST_SOURCE_DIR) + "/tests/templates/" + name + "_rules.jinja";
  std::ifstream file(path);
  EXPECT_TRUE(file) << path;
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

const char* const kFamily[] = {"qwen35", "qwen36", "ornith15"};

// The texts around the tools that the templates of the tests have.
const std::string kToolHead = "# Tools\n\nThe functions that can be called stand here:\n\n<tools>";
const std::string kToolRules =
    "\n\nA call is written like this, and nothing follows it:\n\n<tool_call>\n<function=NAME>\n"
    "<parameter=KEY>\nVALUE\n</parameter>\n</function>\n</tool_call>";

const std::string kThinking = "<|im_start|>assistant\n<think>\n";
const std::string kNotThinking = "<|im_start|>assistant\n<think>\n\n</think>\n\n";

// The worked renderings of docs/MODEL.md, chat template.

TEST(ChatTemplate, a_user_turn_is_stripped_and_thinking_begins) {
  for (const char* name : kFamily)
    EXPECT_EQ(render(template_of(name), R"({"messages": [{"role": "user",
                      "content": "  Name a river in Peru.\n"}], "add_generation_prompt": true})"),
              "<|im_start|>user\nName a river in Peru.<|im_end|>\n" + kThinking)
        << name;
}

TEST(ChatTemplate, thinking_off_writes_an_empty_block) {
  for (const char* name : kFamily)
    EXPECT_EQ(render(template_of(name), R"({"messages": [
                {"role": "system", "content": "Answer in one word."},
                {"role": "user", "content": "Capital of Ghana?"}],
                "add_generation_prompt": true, "enable_thinking": false})"),
              "<|im_start|>system\nAnswer in one word.<|im_end|>\n"
              "<|im_start|>user\nCapital of Ghana?<|im_end|>\n" +
                  kNotThinking)
        << name;
}

const char* const kSums = R"({"messages": [{"role": "user", "content": "2+2?"},
    {"role": "assistant", "content": "4", "reasoning_content": "easy sum"},
    {"role": "user", "content": "and 3+3?"}], "add_generation_prompt": true})";

std::string sums(const std::string& reply) {
  return "<|im_start|>user\n2+2?<|im_end|>\n<|im_start|>assistant\n" + reply +
         "<|im_end|>\n<|im_start|>user\nand 3+3?<|im_end|>\n" + kThinking;
}

TEST(ChatTemplate, earlier_thinking_is_dropped_by_35_and_36_and_kept_by_ornith) {
  const std::string kept = "<think>\neasy sum\n</think>\n\n4";
  EXPECT_EQ(render(template_of("qwen35"), kSums), sums("4"));
  EXPECT_EQ(render(template_of("qwen36"), kSums), sums("4"));
  EXPECT_EQ(render(template_of("ornith15"), kSums), sums(kept));
}

TEST(ChatTemplate, preserve_thinking_of_36_must_be_true_itself) {
  const std::string kept = "<think>\neasy sum\n</think>\n\n4";
  json::Value data = object(kSums);
  const auto with = [&](const char* name, json::Value value) {
    data.set("preserve_thinking", std::move(value));
    return ChatTemplate::parse(template_of(name)).value().render(data, kNow).value();
  };
  EXPECT_EQ(with("qwen36", json::Value::boolean(true)), sums(kept));
  EXPECT_EQ(with("qwen36", json::Value::boolean(false)), sums("4"));
  EXPECT_EQ(with("qwen36", json::Value::integer(1)), sums("4"));
  EXPECT_EQ(with("qwen35", json::Value::boolean(true)), sums("4"));
}

TEST(ChatTemplate, a_call_and_its_result_are_written_out) {
  const std::string tool =
      R"({"type": "function", "function": {"name": "tide_at", "description": "Tide height at a port", )"
      R"("parameters": {"type": "object", "properties": {"port": {"type": "string"}, "hours": {"type": )"
      R"("array", "items": {"type": "integer"}}, "metric": {"type": "boolean"}}, "required": ["port"]}}})";
  const std::string data = R"({"tools": [)" + tool + R"(], "messages": [
      {"role": "system", "content": "You know tides."},
      {"role": "user", "content": "Tide in Brest at 6 and 18?"},
      {"role": "assistant", "content": "Checking.", "reasoning_content": "need the tool",
       "tool_calls": [{"type": "function", "function": {"name": "tide_at",
          "arguments": {"port": "Brest", "hours": [6, 18], "metric": true}}}]},
      {"role": "tool", "content": "{\"6\": 3.1, \"18\": 2.9}"}], "add_generation_prompt": true})";
  for (const char* name : kFamily) {
    const std::string metric = std::string(name) == "qwen36" ? "true" : "True";
    EXPECT_EQ(render(template_of(name), data),
              "<|im_start|>system\n" + kToolHead + "\n" + tool + "\n</tools>" + kToolRules +
                  "\n\nYou know tides.<|im_end|>\n"
                  "<|im_start|>user\nTide in Brest at 6 and 18?<|im_end|>\n"
                  "<|im_start|>assistant\n<think>\nneed the tool\n</think>\n\nChecking.\n\n"
                  "<tool_call>\n<function=tide_at>\n<parameter=port>\nBrest\n</parameter>\n"
                  "<parameter=hours>\n[6, 18]\n</parameter>\n<parameter=metric>\n" +
                  metric +
                  "\n</parameter>\n</function>\n</tool_call><|im_end|>\n"
                  "<|im_start|>user\n<tool_response>\n{\"6\": 3.1, \"18\": 2.9}\n"
                  "</tool_response><|im_end|>\n" +
                  kThinking)
        << name;
  }
}

TEST(ChatTemplate, pictures_and_videos_stand_where_their_parts_are) {
  for (const char* name : kFamily) {
    EXPECT_EQ(render(template_of(name), R"({"messages": [{"role": "user", "content": [
                {"type": "image"}, {"type": "text", "text": "What breed is this?"}]}],
                "add_generation_prompt": true, "enable_thinking": false})"),
              "<|im_start|>user\n<|vision_start|><|image_pad|><|vision_end|>What breed is this?"
              "<|im_end|>\n" +
                  kNotThinking)
        << name;
    EXPECT_EQ(render(template_of(name), R"({"messages": [{"role": "user", "content": [
                {"image_url": {"url": "x"}}, {"video": "v"}, {"text": "Same place?"}]}],
                "add_vision_id": true})"),
              "<|im_start|>user\nPicture 1: <|vision_start|><|image_pad|><|vision_end|>"
              "Video 1: <|vision_start|><|video_pad|><|vision_end|>Same place?<|im_end|>\n")
        << name;
  }
}

const std::string kTwoCalls =
    R"({"role": "user", "content": "Tides for Brest and Cork?"},
       {"role": "assistant", "content": "", "tool_calls": [
         {"function": {"name": "tide_at", "arguments": {"port": "Brest"}}},
         {"function": {"name": "tide_at", "arguments": {"port": "Cork", "metric": null}}}]},
       {"role": "tool", "content": "3.1"}, {"role": "tool", "content": "2.2"},
       {"role": "assistant", "content": "<think>\nboth known\n</think>\n\nBrest 3.1 m, Cork 2.2 m."})";

std::string two_calls(const std::string& first, const std::string& second,
                      const std::string& none) {
  return "<|im_start|>user\nTides for Brest and Cork?<|im_end|>\n<|im_start|>assistant\n" + first +
         "<tool_call>\n<function=tide_at>\n<parameter=port>\nBrest\n</parameter>\n</function>\n"
         "</tool_call>\n<tool_call>\n<function=tide_at>\n<parameter=port>\nCork\n</parameter>\n"
         "<parameter=metric>\n" +
         none +
         "\n</parameter>\n</function>\n</tool_call><|im_end|>\n"
         "<|im_start|>user\n<tool_response>\n3.1\n</tool_response>\n<tool_response>\n2.2\n"
         "</tool_response><|im_end|>\n<|im_start|>assistant\n" +
         second + "Brest 3.1 m, Cork 2.2 m.<|im_end|>\n";
}

const std::string kEmptyBlock = "<think>\n\n</think>\n\n";
const std::string kBothKnown = "<think>\nboth known\n</think>\n\n";

TEST(ChatTemplate, two_calls_and_results_share_their_turns) {
  const std::string data =
      R"({"messages": [)" + kTwoCalls +
      R"(, {"role": "user", "content": "Thanks"}], "add_generation_prompt": true})";
  const std::string rest = "<|im_start|>user\nThanks<|im_end|>\n" + kThinking;
  EXPECT_EQ(render(template_of("qwen35"), data), two_calls("", "", "None") + rest);
  EXPECT_EQ(render(template_of("qwen36"), data), two_calls("", "", "null") + rest);
  EXPECT_EQ(render(template_of("ornith15"), data),
            two_calls(kEmptyBlock, kBothKnown, "None") + rest);
}

TEST(ChatTemplate, turns_after_the_last_query_keep_their_thinking) {
  const std::string data = R"({"messages": [)" + kTwoCalls + "]}";
  EXPECT_EQ(render(template_of("qwen35"), data), two_calls(kEmptyBlock, kBothKnown, "None"));
  EXPECT_EQ(render(template_of("qwen36"), data), two_calls(kEmptyBlock, kBothKnown, "null"));
  EXPECT_EQ(render(template_of("ornith15"), data), two_calls(kEmptyBlock, kBothKnown, "None"));
}

TEST(ChatTemplate, a_tool_response_written_by_the_user_is_no_query) {
  EXPECT_EQ(render(template_of("qwen35"), R"({"messages": [{"role": "user", "content": "q"},
              {"role": "assistant", "content": "a"},
              {"role": "user", "content": "<tool_response>\nx\n</tool_response>"}]})"),
            "<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\na"
            "<|im_end|>\n<|im_start|>user\n<tool_response>\nx\n</tool_response><|im_end|>\n");
}

TEST(ChatTemplate, reasoning_given_as_a_field_leaves_the_content_alone) {
  EXPECT_EQ(render(template_of("qwen35"), R"({"messages": [{"role": "user", "content": "q"},
              {"role": "assistant", "reasoning_content": "", "content": "a</think>b"}]})"),
            "<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"
            "a</think>b<|im_end|>\n");
}

TEST(ChatTemplate, the_templates_refuse_with_their_own_words) {
  const std::pair<const char*, const char*> kCases[] = {
      {R"({"messages": []})", "there are no messages"},
      {R"({})", "there are no messages"},
      {R"({"messages": [{"role": "system", "content": "s"}]})",
       "no message of the user is a query"},
      {R"({"messages": [{"role": "user", "content": "<tool_response>a</tool_response>"}]})",
       "no message of the user is a query"},
      {R"({"messages": [{"role": "user", "content": "a"}, {"role": "system", "content": "s"}]})",
       "a system message must come first"},
      {R"({"messages": [{"role": "user", "content": "a"}, {"role": "critic", "content": "s"}]})",
       "unknown role critic"},
      {R"({"messages": [{"role": "system", "content": [{"type": "image"}]},
           {"role": "user", "content": "a"}]})",
       "a system message cannot hold pictures"},
      {R"({"messages": [{"role": "user", "content": [{"type": "smell"}]}]})",
       "a part of a content is of no known kind"},
      {R"({"messages": [{"role": "user", "content": 5}]})", "a content is neither text nor parts"},
      {R"({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "",
           "tool_calls": [{"function": {"name": "f", "arguments": "{}"}}]}]})",
       "the arguments of a call are no mapping"}};
  for (const auto& [data, message] : kCases)
    for (const char* name : kFamily) {
      EXPECT_EQ(code(template_of(name), data), "request.template") << data;
      EXPECT_EQ(detail(template_of(name), data), message) << data;
    }
}

// What is not supported is refused when the template is read, by its name.

TEST(ChatTemplate, unsupported_things_are_refused_by_name) {
  const std::pair<const char*, const char*> kCases[] = {
      {"{% include 'x' %}", "'include'"},
      {"{% block a %}{% endblock %}", "'block'"},
      {"{% extends 'x' %}", "'extends'"},
      {"{% import 'x' as y %}", "'import'"},
      {"{% call f() %}{% endcall %}", "'call'"},
      {"{% filter upper %}{% endfilter %}", "'filter'"},
      {"{% with a = 1 %}{% endwith %}", "'with'"},
      {"{% do x %}", "'do'"},
      {"{% generation %}{% endgeneration %}", "'generation'"},
      {"{% for x in y recursive %}{% endfor %}", "'recursive'"},
      {"{{ x | urlize }}", "'urlize'"},
      {"{{ x | e }}", "'e'"},
      {"{{ x | map('pprint') }}", "'pprint'"},
      {"{{ x | select('callable') }}", "'callable'"},
      {"{{ x | selectattr('a', 'sameas', 1) }}", "'sameas'"},
      {"{{ x | map(y) }}", "'map'"},
      {"{{ x | tojson(default=1) }}", "'default'"},
      {"{{ x | trim(1, 2) }}", "'trim'"},
      {"{{ x is sameas y }}", "'sameas'"},
      {"{{ x.format(1) }}", "'format'"},
      {"{{ x.append(1) }}", "'append'"},
      {"{{ x.encode('utf-8') }}", "'encode'"},
      {"{{ loop.changed(1) }}", "'changed'"},
      {"{{ f(*x) }}", "'*'"},
      {"{{ f(**x) }}", "'**'"},
      {"{{ x.__class__ }}", "'__class__'"},
      {"{{ cycler(1, 2) }}", "'cycler'"},
      {"{{ dict(a=1) }}", "'dict'"},
      {"{% macro m() %}{{ caller() }}{% endmacro %}", "'caller'"},
      {"{% macro m() %}{{ varargs }}{% endmacro %}", "'varargs'"}};
  for (const auto& [source, name] : kCases) {
    EXPECT_EQ(code(source), "template.feature") << source;
    EXPECT_THAT(detail(source), HasSubstr(name)) << source;
  }
}

TEST(ChatTemplate, a_refusal_names_the_line) {
  EXPECT_EQ(detail("a\n{{ 1 }}\n{% nope %}"), "line 3: tag 'nope'");
  EXPECT_EQ(detail("a\n{{ 1 }}\n\n{{ 1 + }}"), "line 4: unexpected end of a tag");
  EXPECT_EQ(detail("a\n\n{{ x.y }}"), "line 3: 'x' is undefined");
  EXPECT_EQ(detail("a\n{% for i in 5 %}{% endfor %}"), "line 2: 'int' cannot be walked");
  EXPECT_EQ(detail("\n{{ raise_exception('no ' ~ 1) }}"), "no 1");
}

TEST(ChatTemplate, bytes_that_are_not_utf8_are_refused) {
  EXPECT_EQ(code("a\xFF"), "template.syntax");
  EXPECT_EQ(code("{{ '\xE2\x82' }}"), "template.syntax");
}

// Behaviour beyond what the comparison with the reference covers.

TEST(ChatTemplate, variables_are_the_names_read_from_outside) {
  const auto names = [](const char* source) {
    return ChatTemplate::parse(source).value().variables();
  };
  EXPECT_THAT(names("{% for m in messages %}{{ m.role }}{{ loop.index }}{% endfor %}{{ tools }}"),
              ElementsAre("messages", "tools"));
  EXPECT_THAT(
      names("{% set x = 1 %}{{ x }}{% macro f(a, b=c) %}{{ a }}{{ d }}{% endmacro %}{{ f(x) }}"),
      ElementsAre("c", "d"));
  EXPECT_THAT(names("{% if not x is defined %}{% set x = 1 %}{% endif %}{{ x }}"),
              ElementsAre("x"));
  EXPECT_THAT(names("{% set ns = namespace(a=range(3)) %}{{ strftime_now('%Y') }}"), ElementsAre());
}

TEST(ChatTemplate, null_is_none_and_absent_is_undefined) {
  const char* source = "{{ x is none }} {{ x is defined }} [{{ x }}]";
  EXPECT_EQ(render(source, R"({"x": null})"), "True True [None]");
  EXPECT_EQ(render(source), "False False []");
}

TEST(ChatTemplate, a_variable_hides_a_global_function) {
  EXPECT_EQ(render("{{ range }}", R"({"range": 5})"), "5");
}

TEST(ChatTemplate, time_is_given_and_utc) {
  EXPECT_EQ(render("{{ strftime_now('%d %B %Y, %H:%M:%S') }}"), "14 November 2023, 22:13:20");
  EXPECT_EQ(code("{{ strftime_now('%Z') }}"), "request.template");
}

TEST(ChatTemplate, numbers_of_any_size_are_printed_as_they_came) {
  EXPECT_EQ(render("{{ x }} {{ x | tojson }}", R"({"x": 123456789012345678901234567890})"),
            "123456789012345678901234567890 123456789012345678901234567890");
  EXPECT_EQ(render("{{ x | tojson }}", R"({"x": [1.0, 1e3, 1e-5, -0, 1E400]})"),
            "[1.0, 1000.0, 1e-05, 0, Infinity]");
  EXPECT_EQ(code("{{ x + 1 }}", R"({"x": 123456789012345678901234567890})"), "request.template");
  EXPECT_EQ(code("{{ 9223372036854775807 + 1 }}"), "request.template");
  EXPECT_EQ(code("{{ 99999999999999999999 }}"), "template.syntax");
}

TEST(ChatTemplate, of_a_repeated_key_the_last_value_counts) {
  EXPECT_EQ(render("{{ x }}", R"({"x": {"a": 1, "b": 2, "a": 3}})"), "{'a': 3, 'b': 2}");
}

TEST(ChatTemplate, one_template_renders_many_times) {
  const ChatTemplate t =
      ChatTemplate::parse("{% set ns = namespace(n=0) %}{% set ns.n = ns.n + x %}{{ ns.n }}")
          .value();
  EXPECT_EQ(t.render(object(R"({"x": 2})"), kNow).value(), "2");
  EXPECT_EQ(t.render(object(R"({"x": 3})"), kNow).value(), "3");
}

TEST(ChatTemplate, a_loop_that_outlives_its_end_answers_what_it_knows) {
  const std::string source =
      "{% set ns = namespace() %}{% for x in [1, 2] if x %}{% set ns.l = loop %}{% endfor %}";
  EXPECT_EQ(render(source + "{{ ns.l.index }}"), "2");
  EXPECT_EQ(code(source + "{{ ns.l.last }}"), "request.template");
  EXPECT_EQ(code("{% set ns = namespace(l=0) %}{% for x in [1, 2, 3] if x == 1 or ns.l.length %}"
                 "{% set ns.l = loop %}{{ loop.last }}{% endfor %}"),
            "request.template");
}

TEST(ChatTemplate, a_namespace_may_hold_itself) {
  EXPECT_EQ(render("{% set ns = namespace() %}{% set ns.a = [ns] %}{{ ns.a[0] == ns }}"), "True");
}

// Bounds: hostile templates and data end in a refusal.

TEST(ChatTemplate, endless_work_is_refused) {
  const std::string loops = "{% for a in range(100000) %}{% for b in range(100000) %}";
  EXPECT_THAT(detail(loops + "{% endfor %}{% endfor %}"), HasSubstr("steps"));
  EXPECT_THAT(detail("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}"), HasSubstr("deep"));
}

TEST(ChatTemplate, huge_values_are_refused) {
  EXPECT_THAT(detail("{{ 'a' * 10 ** 9 }}"), HasSubstr("bytes"));
  EXPECT_THAT(detail("{{ 'a' * 2 ** 62 }}"), HasSubstr("bytes"));
  EXPECT_EQ(code("{{ [1] * 10 ** 12 }}"), "request.template");
  EXPECT_THAT(detail("{{ range(10 ** 12) | length }}"), HasSubstr("range"));
  EXPECT_THAT(detail("{{ ('a' * 10 ** 6) | replace('a', 'b' * 10 ** 6) }}"), HasSubstr("bytes"));
  EXPECT_THAT(detail("{{ ('a' * 10 ** 6) | indent(10 ** 12) }}"), HasSubstr("bytes"));
  EXPECT_THAT(detail("{{ [[1]] | tojson(indent=10 ** 12) }}"), HasSubstr("bytes"));
  EXPECT_THAT(detail("{{ ('a' * 10 ** 6).join(range(10 ** 5) | map('string')) }}"),
              HasSubstr("bytes"));
  EXPECT_THAT(detail("{% set a = 'a' * 10 ** 7 %}{% for i in range(100) %}{{ a }}{% endfor %}"),
              HasSubstr("bytes"));
}

TEST(ChatTemplate, shared_values_with_a_huge_text_are_refused) {
  const std::string source =
      "{% set ns = namespace(x=['a']) %}{% for i in range(100) %}{% set ns.x = [ns.x, ns.x] %}"
      "{% endfor %}";
  EXPECT_EQ(code(source + "{{ ns.x }}"), "request.template");
  EXPECT_EQ(code(source + "{{ ns.x | tojson }}"), "request.template");
  EXPECT_EQ(code(source + "{{ ns.x == ns.x[0] }}"), "rendered False");
  EXPECT_EQ(code(source + "{{ ns.x[0] == ns.x[1] }}"), "request.template");
}

TEST(ChatTemplate, deep_values_are_refused) {
  EXPECT_THAT(
      detail("{% set ns = namespace(x=1) %}{% for i in range(1000) %}{% set ns.x = [ns.x] %}"
             "{% endfor %}"),
      HasSubstr("deep"));
  EXPECT_THAT(detail("{% set ns = namespace(x=[1]) %}{% for i in range(1000) %}"
                     "{% set ns.x = ns.x | map('string') %}{% endfor %}"),
              HasSubstr("deep"));
  json::Value nested = json::Value::integer(1);
  for (int i = 0; i < 300; ++i) nested = json::Value::array({std::move(nested)});
  const auto text = ChatTemplate::parse("{{ x }}").value().render(
      json::Value::object({{"x", std::move(nested)}}), kNow);
  ASSERT_FALSE(text);
  EXPECT_THAT(text.error().detail, HasSubstr("deep"));
}

TEST(ChatTemplate, deep_syntax_is_refused) {
  for (const char* opening : {"(", "[", "{1: ", "not ", "-", "x[", "f(", "1 if x else ", "x[:"})
    EXPECT_EQ(code("{{ " + repeated(opening, 100'000) + "1 }}"), "template.syntax") << opening;
  EXPECT_EQ(code(repeated("{% if 1 %}", 10'000)), "template.syntax");
  EXPECT_EQ(code(repeated("{% for x in y %}", 10'000)), "template.syntax");
  EXPECT_EQ(code(repeated("{% set x %}", 10'000)), "template.syntax");
  EXPECT_EQ(code("{{ 1" + repeated(" if x", 10'000) + " }}"), "template.syntax");
  EXPECT_EQ(code("{% for " + repeated("(", 10'000) + "x %}"), "template.syntax");
}

TEST(ChatTemplate, long_chains_are_not_deep) {
  const auto renders = [](const std::string& source) {
    return code("{{ " + source + " }}", R"({"a": {"b": 1}})").substr(0, 8);
  };
  EXPECT_EQ(renders("1" + repeated(" + 1", 20'000)), "rendered");
  EXPECT_EQ(renders("'a'" + repeated(" ~ 'a'", 20'000)), "rendered");
  EXPECT_EQ(renders("1" + repeated(" and 1", 20'000)), "rendered");
  EXPECT_EQ(renders("1" + repeated(" < 2", 20'000)), "rendered");
  EXPECT_EQ(renders("1" + repeated(" | string", 20'000)), "rendered");
  EXPECT_EQ(render("{% if 0 %}" + repeated("{% elif 0 %}", 5'000) + "{% else %}x{% endif %}"), "x");
  EXPECT_EQ(render("{% set a = namespace() %}{% set a.b = a %}{{ a" + repeated(".b", 20'000) +
                   " == a }}"),
            "True");
}

TEST(ChatTemplate, a_template_of_too_many_bytes_is_refused) {
  EXPECT_EQ(code(std::string((size_t{1} << 20) + 1, 'a')), "template.syntax");
  EXPECT_EQ(render(std::string(size_t{1} << 20, 'a')).size(), size_t{1} << 20);
}

}  // namespace
}  // namespace roost
