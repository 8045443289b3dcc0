// Calls in every dialect that has them: forced, typed, cut anywhere, echoed.
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/sim/behaviour_fixture.h"

namespace roost {
namespace {

class CallBehaviour : public BehaviourFixture {
 protected:
  const std::string off_ = R"("enable_thinking":false,)";

  std::string tools_of(const std::string& schema) const {
    return R"("tools":[)" + tool_of(dialect(), "f", schema) + "]";
  }
  // The arguments of the one call that the text is.
  std::string arguments_of(const std::string& text, const std::string& schema) {
    serve(says(text));
    const ToldReply reply = told(off_ + tools_of(schema));
    EXPECT_EQ(reply.calls.size(), 1u) << text << "\n" << reply.content;
    return reply.calls.empty() ? "" : reply.calls[0].substr(2);
  }
};

INSTANTIATE_TEST_SUITE_P(All, CallBehaviour, testing::ValuesIn(cells_of_parts()), cell_name);

std::string call_of(const std::string& key, const std::string& value) {
  return "<tool_call>\n<function=f>\n<parameter=" + key + ">\n" + value +
         "\n</parameter>\n</function>\n</tool_call>";
}

// {"a": value} as the dialects print it.
std::string object_of(const std::string& value) {
  return R"({"a":)" + value + "}";
}

// One byte a token, which no tokenizer would write: a prompt holds these only where it holds the
// reply itself.
std::vector<int32_t> byte_tokens(const std::string& text) {
  std::vector<int32_t> out;
  for (const char c : text) {
    const std::vector<int32_t> ids = fledgling_tokenizer().encode(std::string(1, c));
    out.insert(out.end(), ids.begin(), ids.end());
  }
  return out;
}

TEST_P(CallBehaviour, S36_two_calls_in_one_reply) {
  serve(says("why\n</think>\n\nI look.\n\n" + kCall + "\n" + kOtherCall));
  const ToldReply reply = told(thinking() + "," + tools());
  EXPECT_EQ(reply.reasoning, "why");
  EXPECT_EQ(reply.content, "I look.");
  EXPECT_EQ(reply.calls, (std::vector<std::string>{R"(get_weather {"city":"Oslo","days":3})",
                                                   R"(get_weather {"city":"Rio \"de\"\n"})"}));
  EXPECT_EQ(reply.finish, called());
}

TEST_P(CallBehaviour, S36_no_parallel_calls_end_the_reply_after_the_first) {
  serve(says(kCall + "\n" + kOtherCall));
  const std::string one = dialect() == Dialect::kMessages
                              ? R"("tool_choice":{"type":"auto","disable_parallel_tool_use":true})"
                              : R"("parallel_tool_calls":false)";
  const ToldReply reply = told(R"("enable_thinking":false,)" + tools() + "," + one);
  EXPECT_EQ(reply.calls.size(), 1u);
  EXPECT_EQ(reply.finish, called());
}

TEST_P(CallBehaviour, S37_with_the_choice_none_no_call_is_found) {
  serve(says(kCall));
  const std::string none = dialect() == Dialect::kMessages ? R"("tool_choice":{"type":"none"})"
                                                           : R"("tool_choice":"none")";
  const ToldReply reply = told(R"("enable_thinking":false,)" + tools() + "," + none);
  EXPECT_EQ(reply.content, kCall);
  EXPECT_TRUE(reply.calls.empty());
  EXPECT_EQ(reply.finish, ended());
}

TEST_P(CallBehaviour, S37_names_that_are_not_offered_are_refused) {
  serve(says("x"));
  for (const std::string& members : {tools() + "," + must_call_member(dialect(), "other"),
                                     must_call_member(dialect()), must_call_member(dialect(), "a")})
    EXPECT_EQ(refusal_of(ask(members, GetParam().is_stream)), "request.unknown_tool");
}

TEST_P(CallBehaviour, S37_a_call_that_must_come_is_bound_by_grammar) {
  for (const bool is_thinking : {false, true}) {
    const std::string thought = is_thinking ? "why\n</think>\n\n" : "";
    serve(says(thought + kCall + "\n" + kOtherCall));
    const std::string think = is_thinking ? thinking() : R"("enable_thinking":false)";
    const ToldReply all = told(think + "," + tools() + "," + must_call_member(dialect()));
    EXPECT_EQ(all.calls.size(), 2u);
    EXPECT_EQ(all.finish, called());
    EXPECT_TRUE(allows(thought + kCall + "\n" + kOtherCall));
    const ToldReply one =
        told(think + "," + tools() + "," + must_call_member(dialect(), "get_weather"));
    EXPECT_EQ(one.calls.size(), 1u);
    EXPECT_EQ(one.finish, dialect() == Dialect::kMessages ? called() : ended());
    EXPECT_TRUE(allows(thought + kCall));
    for (const std::string& text : {kCall + "\n" + kOtherCall, std::string("No."), std::string()})
      EXPECT_FALSE(allows(thought + text)) << text;
  }
}

TEST_P(CallBehaviour, S37_of_a_strict_tool_calls_are_bound_and_nothing_else_is) {
  serve(says("x"));
  const std::string strict =
      R"("tools":[)" + tool_of(dialect(), "get_weather", kSchema, true) + "]";
  const std::string bad = "<tool_call>\n<function=get_weather>\n</function>\n</tool_call>";
  ask(R"("enable_thinking":false,)" + strict, GetParam().is_stream)->wait();
  for (const std::string& text :
       {std::string("Sunny."), "I look.\n" + kCall, kCall + "\n" + kOtherCall, std::string()})
    EXPECT_TRUE(allows(text)) << text;
  EXPECT_FALSE(allows(bad));
  ask(R"("enable_thinking":false,)" + tools(), GetParam().is_stream)->wait();
  EXPECT_FALSE(fake_.engine->last_request().grammar);
  const std::string unknown = R"({"type":"object","properties":{"a":{"not":{}}}})";
  EXPECT_EQ(refusal_of(ask(R"("tools":[)" + tool_of(dialect(), "t", unknown, true) + "]",
                           GetParam().is_stream)),
            "schema.unsupported_keyword");
  // Of another tool that must be called it is not enforced, and said.
  const auto loose =
      ask(R"("tools":[)" + tool_of(dialect(), "t", unknown) + "]," + must_call_member(dialect()),
          GetParam().is_stream);
  loose->wait();
  EXPECT_NE(loose->header("X-Roost-Ignored").find("/properties/a/not"), std::string::npos);
}

TEST_P(CallBehaviour, S45_beside_a_schema_the_reply_is_calls_or_a_value) {
  serve(says(R"({"a": 1})"));
  const std::string form =
      schema_member(dialect(), R"({"type":"object","properties":{"a":{"type":"integer"}},
                                   "required":["a"],"additionalProperties":false})");
  const ToldReply value = told(R"("enable_thinking":false,)" + tools() + "," + form);
  EXPECT_EQ(value.content, R"({"a": 1})");
  EXPECT_EQ(value.finish, ended());
  for (const std::string& text : {std::string(R"({"a": 1})"), kCall, kCall + "\n" + kOtherCall})
    EXPECT_TRUE(allows(text)) << text;
  for (const std::string& text : {R"({"a": 1} )" + kCall, std::string("x"), std::string()})
    EXPECT_FALSE(allows(text)) << text;
  // A call that must come leaves no room for a value.
  ask(R"("enable_thinking":false,)" + tools() + "," + form + "," + must_call_member(dialect()),
      GetParam().is_stream)
      ->wait();
  EXPECT_FALSE(allows(R"({"a": 1})"));
  EXPECT_TRUE(allows(kCall));
}

TEST_P(CallBehaviour, S07_an_echoed_call_keeps_the_tokens_with_which_it_was_drawn) {
  std::vector<int32_t> drawn = byte_tokens("why\n");
  drawn.push_back(*fledgling_tokenizer().find_added("</think>"));
  for (const int32_t id : byte_tokens("\n\nI look.\n\n")) drawn.push_back(id);
  drawn.push_back(*fledgling_tokenizer().find_added("<tool_call>"));
  for (const int32_t id : byte_tokens("\n<function=get_weather>\n<parameter=city>\nOslo\n"
                                      "</parameter>\n<parameter=days>\n3.0\n</parameter>\n"
                                      "</function>\n"))
    drawn.push_back(id);
  drawn.push_back(*fledgling_tokenizer().find_added("</tool_call>"));
  FakeEngineOptions options = says("");
  options.script = [drawn](const EngineRequest&) { return drawn; };
  options.context_max = 4000;
  serve(std::move(options));
  const ToldReply reply = told(thinking() + "," + tools());
  ASSERT_EQ(reply.calls, std::vector<std::string>{R"(get_weather {"city":"Oslo","days":3})"});
  std::vector<int32_t> known = fake_.engine->last_request().prompt;
  known.insert(known.end(), drawn.begin(), drawn.end());
  const auto prompt_of_echo = [&](const std::string& arguments, const std::string& members) {
    std::string all = thinking() + "," + tools() + members;
    if (GetParam().is_stream) all += R"(,"stream":true)";
    const auto exchange = post(
        path_of(dialect()),
        called_body_of(dialect(), reply.reasoning, reply.content, "get_weather", arguments, all));
    EXPECT_EQ(exchange->wait().status, 200) << exchange->wait().body;
    return fake_.engine->last_request().prompt;
  };
  const auto goes_on = [&](const std::vector<int32_t>& prompt) {
    return prompt.size() > known.size() && std::equal(known.begin(), known.end(), prompt.begin());
  };
  const std::vector<int32_t> echoed = prompt_of_echo(R"({"city": "Oslo", "days": 3})", "");
  EXPECT_TRUE(goes_on(echoed));
  // Both readings are one text but for what was drawn in another spelling.
  const std::vector<int32_t> plain =
      prompt_of_echo(R"({"city": "Oslo", "days": 3})", R"(,"replay":false)");
  EXPECT_FALSE(goes_on(plain));
  EXPECT_LT(plain.size(), echoed.size());
  for (const char* changed : {R"({"days": 3, "city": "Oslo"})", R"({"city": "Oslo", "days": 4})"})
    EXPECT_FALSE(goes_on(prompt_of_echo(changed, ""))) << changed;
  EXPECT_FALSE(goes_on(prompt_of_echo(R"({"city":"Oslo","days":3})", R"(,"cache_salt":"other")")));
  EXPECT_TRUE(goes_on(prompt_of_echo(R"({"city":"Oslo","days":3})", "")));
}

TEST_P(CallBehaviour, S36_a_call_that_is_cut_leaves_arguments_that_parse) {
  const std::string begin = "<tool_call>\n<function=get_weather>\n<parameter=city>\nOs";
  serve(says(kCall));
  const auto n = static_cast<int>(fledgling_tokenizer().encode(begin).size());
  const ToldReply reply =
      told(R"("enable_thinking":false,)" + tools() + "," + max_tokens_member(dialect(), n));
  ASSERT_EQ(reply.calls.size(), 1u);
  EXPECT_TRUE(json::parse(reply.calls[0].substr(12))) << reply.calls[0];
  EXPECT_EQ(reply.finish, cut());
}

TEST_P(CallBehaviour, S29_an_argument_that_speaks_of_closing_tags_is_one_text) {
  const std::string text = "A block ends with </tool_call> and </parameter> here.";
  const std::string schema = R"({"type":"object","properties":{"a":{"type":"string"}}})";
  EXPECT_EQ(arguments_of(call_of("a", text), schema), object_of('"' + text + '"'));
}

TEST_P(CallBehaviour, S30_values_keep_their_newlines) {
  const std::string schema = R"({"type":"object","properties":{"a":{"type":"string"}}})";
  const std::pair<std::string, std::string> kRows[] = {
      {"a", "a"}, {"a\n", "a\\n"}, {"\n\na\n\n", "\\n\\na\\n\\n"}, {"", ""}};
  for (const auto& [value, told_as] : kRows)
    EXPECT_EQ(arguments_of(call_of("a", value), schema), object_of('"' + told_as + '"'));
  const ToldReply reply = told(off_ + tools_of(schema));
  EXPECT_EQ(reply.content, "");
}

TEST_P(CallBehaviour, S31_a_path_comes_bare_through_the_grammar) {
  const std::string schema =
      R"({"type":"object","properties":{"a":{"type":"string"}},"required":["a"]})";
  FakeEngineOptions options = says("");
  options.script = [](const EngineRequest&) { return byte_tokens(call_of("a", "/tmp/x")); };
  serve(std::move(options));
  const ToldReply reply = told(off_ + tools_of(schema) + "," + must_call_member(dialect()));
  EXPECT_EQ(reply.calls, std::vector<std::string>{R"(f {"a":"/tmp/x"})"});
  EXPECT_TRUE(allows(call_of("a", "/tmp/x")));
}

TEST_P(CallBehaviour, S32_a_rendered_call_is_parsed_to_itself) {
  const std::string schema =
      R"({"type":"object","properties":{"a":{"type":"string"},"n":{"type":"integer"}}})";
  serve(says("x"));
  const std::string arguments = R"({"a":"x \"y\" é","n":12})";
  const auto rendered = post(std::string("/apply-template?dialect=") + name_of(dialect()),
                             called_body_of(dialect(), "", "", "f", arguments, tools_of(schema)));
  const std::string prompt = answer_of(rendered).find("prompt")->as_string();
  const size_t begin = prompt.rfind("<tool_call>");
  ASSERT_NE(begin, std::string::npos) << prompt;
  const std::string text = prompt.substr(begin, prompt.find("</tool_call>", begin) + 12 - begin);
  EXPECT_EQ(arguments_of(text, schema), arguments);
  std::string other = text;
  other.replace(other.find("<function=f>"), 12, "<function= F >");
  EXPECT_EQ(arguments_of(other, schema), arguments);
}

TEST_P(CallBehaviour, S34_a_long_text_leaves_as_it_is_written) {
  std::string text;
  for (int i = 0; i < 200; ++i) text += "line " + std::to_string(i) + "\n";
  FakeEngineOptions options = says(call_of("a", text));
  options.context_max = 10'000;
  serve(std::move(options));
  const std::string schema = R"({"type":"object","properties":{"a":{"type":"string"}}})";
  const auto exchange = ask(off_ + tools_of(schema), GetParam().is_stream);
  exchange->wait();
  if (!GetParam().is_stream) return;
  const size_t n_tokens = fledgling_tokenizer().encode(call_of("a", text)).size();
  // Only a newline waits for what comes behind it; all else leaves with its token.
  EXPECT_GT(stream_events(exchange->bytes()).size(), n_tokens / 2);
}

TEST_P(CallBehaviour, S35_arguments_are_typed_by_schema) {
  const auto schema = [](const std::string& type) {
    return R"({"type":"object","properties":{"a":)" + type + "}}";
  };
  const struct {
    const char *type, *text, *json;
  } kRows[] = {
      {R"({"type":"string"})", "02134", R"("02134")"},
      {R"({"type":["string","null"]})", "null", "null"},
      {R"({"type":"integer"})", "5.0", "5"},
      {R"({"type":"integer"})", "12345678901234567890", "12345678901234567890"},
      {R"({"type":"integer"})", "02134", R"("02134")"},
      {R"({"type":"number"})", "1e5", "1e5"},
      {R"({"type":"number"})", "NaN", R"("NaN")"},
      {R"({"type":"boolean"})", "True", "true"},
      {R"({"type":"object"})", R"({"x":"</parameter> y"})", R"({"x":"</parameter> y"})"},
      {R"({"type":["string","integer"]})", "5", "5"},
      {R"({"type":["string","integer"]})", "05", R"("05")"},
      {"{}", "日本", R"("日本")"},
      {"{}", "[1]", "[1]"},
      {"{}", "true", R"("true")"},
  };
  for (const auto& row : kRows)
    EXPECT_EQ(arguments_of(call_of("a", row.text), schema(row.type)), object_of(row.json))
        << row.type << " " << row.text;
}

}  // namespace
}  // namespace roost
