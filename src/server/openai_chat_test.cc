// The Chat dialect: every field of the body, and the shape of what is sent.
#include "server/openai_chat.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "server/chat_messages.h"
#include "server/error_body.h"

namespace roost {
namespace {

RequestRules rules() {
  RequestRules out;
  out.n_tokens = 3071;
  out.template_variables = {"add_generation_prompt", "enable_thinking", "messages",
                            "preserve_thinking", "tools"};
  out.model_ids = {"fledgling", "also"};
  return out;
}

std::string body_with(const std::string& members) {
  const std::string messages = R"("messages":[{"role":"user","content":"Hi"}])";
  return "{" + messages + (members.empty() ? "" : "," + members) + "}";
}

struct Parsed {
  Result<ChatRequest> request;
  ParseNotes notes;
  std::string code() const {
    return request ? "ok" : std::string(code_of(request.error().refusal));
  }
};

Parsed parse(const std::string& body, const RequestRules& with = rules()) {
  ParseNotes notes;
  Result<ChatRequest> request = parse_openai_chat(body, with, notes);
  return {std::move(request), std::move(notes)};
}

// long: a table, one row a refusal.
TEST(OpenAiChat, refusals_name_the_field_and_the_rule) {
  const struct {
    const char *members, *code, *param;
  } cases[] = {
      // Types, ranges and values.
      {R"("max_tokens":0)", "request.field_range", "max_tokens"},
      {R"("max_tokens":-1)", "request.field_range", "max_tokens"},
      {R"("max_tokens":"5")", "request.field_type", "max_tokens"},
      {R"("max_tokens":1.5)", "request.field_type", "max_tokens"},
      {R"("max_tokens":1,"max_completion_tokens":2)", "request.field_conflict", "max_tokens"},
      {R"("temperature":5.1)", "request.field_range", "temperature"},
      {R"("temperature":"1")", "request.field_type", "temperature"},
      {R"("temperature":-0.1)", "request.field_range", "temperature"},
      {R"("top_p":1.01)", "request.field_range", "top_p"},
      {R"("top_k":-2)", "request.field_range", "top_k"},
      {R"("top_k":3072)", "request.field_range", "top_k"},
      {R"("min_p":2)", "request.field_range", "min_p"},
      {R"("seed":1.5)", "request.field_type", "seed"},
      {R"("seed":"1")", "request.field_type", "seed"},
      {R"("seed":18446744073709551616)", "request.field_range", "seed"},
      {R"("stop":"")", "request.field_value", "stop"},
      {R"("stop":["a",1])", "request.field_type", "stop"},
      {R"("stop":{})", "request.field_type", "stop"},
      {R"("stop":["1","2","3","4","5","6","7","8","9","0","1","2","3","4","5","6","7"])",
       "request.too_many_items", "stop"},
      {R"("stop_token_ids":[3071])", "request.field_range", "stop_token_ids"},
      {R"("stop_token_ids":[1.5])", "request.field_type", "stop_token_ids"},
      {R"("stop_token_ids":1)", "request.field_type", "stop_token_ids"},
      {R"("ignore_eos":1)", "request.field_type", "ignore_eos"},
      {R"("stream":"yes")", "request.field_type", "stream"},
      {R"("stream":true,"stream_options":1)", "request.field_type", "stream_options"},
      {R"("stream":true,"stream_options":{"include_usage":1})", "request.field_type",
       "stream_options.include_usage"},
      {R"("model":1)", "request.field_type", "model"},
      {R"("n":0)", "request.field_range", "n"},
      {R"("n":17)", "request.field_range", "n"},
      {R"("reasoning_effort":"extreme")", "request.field_value", "reasoning_effort"},
      {R"("reasoning_field":"x")", "request.field_value", "reasoning_field"},
      {R"("presence_penalty":2.5)", "request.field_range", "presence_penalty"},
      {R"("repetition_penalty":0)", "request.field_range", "repetition_penalty"},
      {R"("priority":101)", "request.field_range", "priority"},
      {R"("priority":"low")", "request.field_value", "priority"},
      {R"("cache_salt":"")", "request.field_range", "cache_salt"},
      {R"("draft":"no")", "request.field_type", "draft"},
      {R"("draft_max":16)", "request.field_range", "draft_max"},
      {R"("on_bad_image":"skip")", "request.field_value", "on_bad_image"},
      {R"("skip_special_tokens":false)", "request.field_value", "skip_special_tokens"},
      {R"("tool_choice":"maybe")", "request.field_value", "tool_choice"},
      {R"("tool_choice":1)", "request.field_type", "tool_choice"},
      {R"("response_format":{"type":"xml"})", "request.field_value", "response_format.type"},
      {R"("response_format":{})", "request.missing_field", "response_format.type"},
      {R"("chat_template_kwargs":[])", "request.field_type", "chat_template_kwargs"},
      {R"("chat_template_kwargs":{"messages":[]})", "request.field_conflict",
       "chat_template_kwargs.messages"},
      {R"("continue_final_message":true,"add_generation_prompt":true)", "request.field_conflict",
       "continue_final_message"},
      {R"("add_generation_prompt":false)", "request.field_value", "add_generation_prompt"},
      // Contradictions about thinking.
      {R"("enable_thinking":true,"reasoning_effort":"none")", "request.field_conflict",
       "reasoning_effort"},
      {R"("enable_thinking":true,"chat_template_kwargs":{"enable_thinking":false})",
       "request.field_conflict", "enable_thinking"},
      {R"("thinking":{"type":"disabled"},"enable_thinking":true)", "request.field_conflict",
       "thinking.type"},
      {R"("thinking":{"type":"maybe"})", "request.field_value", "thinking.type"},
      {R"("enable_thinking":true,"thinking_budget":0)", "request.field_conflict",
       "thinking_budget"},
      {R"("thinking_budget":1,"reasoning_budget":2)", "request.field_conflict", "reasoning_budget"},
      {R"("include_reasoning":true,"reasoning":{"exclude":true})", "request.field_conflict",
       "reasoning.exclude"},
      // What would change the reply and is not offered.
      {R"("top_logprobs":2)", "request.field_conflict", "top_logprobs"},
      {R"("logprobs":true,"top_logprobs":21)", "request.field_range", "top_logprobs"},
      {R"("logit_bias":{"x":1})", "request.field_range", "logit_bias"},
      {R"("logit_bias":{"3071":1})", "request.field_range", "logit_bias"},
      {R"("logit_bias":{"5":101})", "request.field_range", "logit_bias[5]"},
      {R"("logit_bias":{"5":1,"05":1})", "request.field_conflict", "logit_bias"},
      {R"("min_tokens":9,"max_tokens":5)", "request.field_conflict", "min_tokens"},
      {R"("continue_final_message":true)", "request.field_conflict", "continue_final_message"},
      {R"("best_of":2)", "request.unsupported_field", "best_of"},
      {R"("tool_choice":"required")", "request.unknown_tool", "tool_choice"},
      {R"("tool_choice":{"type":"function"})", "request.missing_field", "tool_choice.name"},
      {R"("tool_choice":{"type":"function","function":{"name":"g"}})", "request.unknown_tool",
       "tool_choice"},
      {R"("timeout":0)", "request.field_range", "timeout"},
      {R"("timeout":"3")", "request.field_type", "timeout"},
      {R"("use_beam_search":true)", "request.unsupported_field", "use_beam_search"},
      {R"("typical_p":0.9)", "request.unsupported_field", "typical_p"},
      {R"("mirostat":2)", "request.unsupported_field", "mirostat"},
      {R"("guided_json":{})", "request.unsupported_field", "guided_json"},
      {R"("grammar":"root ::= x")", "request.unsupported_field", "grammar"},
      {R"("repeat_penalty":1.1)", "request.unsupported_field", "repeat_penalty"},
      {R"("n_predict":5)", "request.unsupported_field", "n_predict"},
      {R"("functions":[{}])", "request.unsupported_field", "functions"},
      {R"("prediction":{"content":"x"})", "request.unsupported_field", "prediction"},
      {R"("modalities":["text","audio"])", "request.unsupported_field", "modalities"},
      {R"("lora":"x")", "feature.not_offered", "lora"},
      // Tools.
      {R"("tools":{})", "request.field_type", "tools"},
      {R"("tools":[1])", "request.field_type", "tools[0]"},
      {R"("tools":[{"type":"function"}])", "request.missing_field", "tools[0].function"},
      {R"("tools":[{"type":"function","function":{"name":"a<b"}}])", "request.field_value",
       "tools[0].function.name"},
      {R"("tools":[{"type":"function","function":{"name":"f"}},{"type":"function","function":{"name":"f"}}])",
       "request.field_value", "tools[1].function.name"},
      {R"("tools":[{"type":"function","function":{"name":"f","parameters":{"a":1,"a":2}}}])",
       "json.duplicate_key", "tools[0].function.parameters"},
  };
  for (const auto& c : cases) {
    const Parsed parsed = parse(body_with(c.members));
    EXPECT_EQ(parsed.code(), c.code) << c.members;
    EXPECT_EQ(parsed.notes.param, c.param) << c.members;
  }
}

TEST(OpenAiChat, messages_are_refused_by_their_place) {
  const struct {
    const char *messages, *code, *param;
  } cases[] = {
      {"[]", "request.missing_field", "messages"},
      {"null", "request.missing_field", "messages"},
      {"5", "request.field_type", "messages"},
      {R"([1])", "request.field_type", "messages[0]"},
      {R"([{"content":"x"}])", "request.missing_field", "messages[0].role"},
      {R"([{"role":"robot","content":"x"}])", "request.field_value", "messages[0].role"},
      {R"([{"role":"user","content":5}])", "request.field_type", "messages[0].content"},
      {R"([{"role":"user","content":[{"text":"x"}]}])", "request.missing_field",
       "messages[0].content[0].type"},
      {R"([{"role":"user","content":[{"type":"text"}]}])", "request.missing_field",
       "messages[0].content[0].text"},
      {R"([{"role":"user","content":[{"type":"text","text":"a"},{"type":"input_audio"}]}])",
       "request.unsupported_content", "messages[0].content[1]"},
      {R"([{"role":"user","content":[{"type":"image_url","image_url":{"url":"x"}}]}])",
       "image.not_offered", "messages[0].content[0]"},
      {R"([{"role":"tool","content":[{"type":"video_url"}]}])", "video.not_offered",
       "messages[0].content[0]"},
      {R"([{"role":"system","content":[{"type":"image_url"}]}])", "request.unsupported_content",
       "messages[0].content[0]"},
      {R"([{"role":"user","role":"user","content":"x"}])", "json.duplicate_key", "messages[0]"},
  };
  for (const auto& c : cases) {
    const Parsed parsed = parse(fmt::format("{{\"messages\":{}}}", c.messages));
    EXPECT_EQ(parsed.code(), c.code) << c.messages;
    EXPECT_EQ(parsed.notes.param, c.param) << c.messages;
  }
}

TEST(OpenAiChat, json_itself_is_refused_before_any_field) {
  EXPECT_EQ(parse("{").code(), "json.invalid");
  EXPECT_EQ(parse("").code(), "json.invalid");
  EXPECT_EQ(parse("[]").code(), "request.field_type");
  EXPECT_EQ(parse("{\"messages\":\"\xFF\"}").code(), "json.invalid_unicode");
  EXPECT_EQ(parse(body_with("\"x\":" + std::string(200, '[') + std::string(200, ']'))).code(),
            "json.too_deep");
  EXPECT_EQ(parse(body_with(R"("temperature":1,"temperature":2)")).code(), "json.duplicate_key");
  EXPECT_EQ(parse(body_with(R"("metadata":{"a":1,"a":2})")).code(), "ok");
}

TEST(OpenAiChat, honoured_fields_arrive) {
  const Parsed parsed = parse(body_with(
      R"("model":"any","max_completion_tokens":7,"temperature":0,"top_p":0.5,"top_k":-1,"min_p":0.1,
         "seed":-2,"stop":["a","b"],"stop_token_ids":[5,6.0],"ignore_eos":true,"stream":true,
         "stream_options":{"include_usage":true},"include_reasoning":false,
         "reasoning_field":"both","return_token_ids":true,"request_id":"r1",
         "include_stop_str_in_output":true,
         "chat_template_kwargs":{"enable_thinking":false,"preserve_thinking":true,"odd":1})"));
  ASSERT_TRUE(parsed.request) << to_string(parsed.request.error());
  const ChatRequest& request = *parsed.request;
  const GenerationFields& fields = request.generation;
  EXPECT_EQ(request.model, "any");
  EXPECT_TRUE(request.is_stream);
  EXPECT_TRUE(request.include_usage);
  EXPECT_EQ(fields.max_tokens, 7);
  EXPECT_EQ(fields.temperature, 0);
  EXPECT_EQ(fields.top_p, 0.5);
  EXPECT_EQ(fields.top_k, 0);
  EXPECT_EQ(fields.min_p, 0.1);
  EXPECT_EQ(fields.seed, static_cast<uint64_t>(-2));
  EXPECT_EQ(fields.stops, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(fields.stop_tokens, (std::vector<int32_t>{5, 6}));
  EXPECT_TRUE(fields.ignore_end_tokens);
  EXPECT_TRUE(fields.keeps_stop_text);
  EXPECT_TRUE(fields.return_token_ids);
  EXPECT_FALSE(fields.include_reasoning);
  EXPECT_EQ(fields.reasoning_field, ReasoningField::kBoth);
  EXPECT_EQ(fields.thinking, false);
  EXPECT_EQ(fields.request_id, "r1");
  ASSERT_EQ(fields.template_members.size(), 1u);
  EXPECT_EQ(fields.template_members[0].first, "preserve_thinking");
  EXPECT_EQ(parsed.notes.ignored, (std::vector<std::string>{"/chat_template_kwargs/odd"}));
}

TEST(OpenAiChat, what_shapes_the_sampling_arrives) {
  const Parsed parsed = parse(body_with(
      R"("presence_penalty":0.5,"frequency_penalty":-1,"repetition_penalty":1.2,"n":3,"best_of":3,
         "logit_bias":{"5":-100,"7":0,"9":2.5},"min_tokens":4,"logprobs":true,"top_logprobs":2,
         "thinking_budget":64,"reasoning_effort":"low","parallel_tool_calls":false)"));
  ASSERT_TRUE(parsed.request) << to_string(parsed.request.error());
  const GenerationFields& fields = parsed.request->generation;
  EXPECT_EQ(fields.presence_penalty, 0.5);
  EXPECT_EQ(fields.frequency_penalty, -1);
  EXPECT_EQ(fields.repetition_penalty, 1.2);
  EXPECT_EQ(fields.n, 3);
  EXPECT_EQ(fields.logit_bias, (std::vector<std::pair<int32_t, double>>{{5, -100}, {9, 2.5}}));
  EXPECT_EQ(fields.min_tokens, 4);
  EXPECT_EQ(fields.n_logprobs, 2);
  EXPECT_EQ(fields.reasoning_budget, 64);
  EXPECT_TRUE(parsed.request->ends_at_first_call);
  EXPECT_FALSE(parsed.request->looks_for_calls);
}

TEST(OpenAiChat, an_effort_is_a_budget_where_the_template_knows_no_levels) {
  RequestRules with = rules();
  with.effort_budgets = parse_effort_budgets("low=4096,high=9").value();
  const auto budget = [&](const char* effort, const char* more = "") {
    const Parsed parsed =
        parse(body_with(R"("reasoning_effort":")" + std::string(effort) + "\"" + more), with);
    return parsed.request->generation.reasoning_budget;
  };
  EXPECT_EQ(budget("low"), 4096);
  EXPECT_EQ(budget("high"), 9);
  EXPECT_EQ(budget("medium"), std::nullopt);
  EXPECT_EQ(budget("low", R"(,"thinking_budget":5)"), 5);
}

TEST(OpenAiChat, budgets_of_efforts_are_read_or_refused) {
  EXPECT_EQ(parse_effort_budgets("")->size(), 0);
  EXPECT_EQ(parse_effort_budgets("minimal=1,xhigh=2")->at("xhigh"), 2);
  for (const char* bad : {"low", "low=", "low=0", "low=-1", "low=1x", "none=3", "tiny=3",
                          "low=1,low=2", ",low=1", "low=99999999999999999999"}) {
    const auto refused = parse_effort_budgets(bad);
    ASSERT_FALSE(refused) << bad;
    EXPECT_EQ(refused.error().refusal, Refusal::FlagValue);
  }
}

TEST(OpenAiChat, what_the_scheduler_and_the_cache_are_told_arrives) {
  const Parsed parsed =
      parse(body_with(R"("cache_prompt":false,"cache_salt":"s","priority":50,"timeout":2.5)"));
  ASSERT_TRUE(parsed.request) << to_string(parsed.request.error());
  EXPECT_FALSE(parsed.request->generation.uses_cache);
  EXPECT_EQ(parsed.request->generation.cache_salt, "s");
  EXPECT_EQ(parsed.request->generation.priority, 50);
  EXPECT_EQ(parsed.request->generation.timeout_s, 2.5);
  EXPECT_EQ(parse(body_with(R"("priority":"high")")).request->generation.priority, -50);
  EXPECT_EQ(parse(body_with(R"("priority":"background")")).request->generation.priority, 50);
  EXPECT_EQ(parse(body_with(R"("priority":"normal")")).request->generation.priority, 0);
}

TEST(OpenAiChat, a_last_turn_of_the_assistant_is_continued_unless_the_body_says_no) {
  const auto continues = [](const std::string& members) {
    const Parsed parsed =
        parse(R"({"messages":[{"role":"user","content":"x"},{"role":"assistant","content":"y"}])" +
              members + "}");
    EXPECT_TRUE(parsed.request) << members;
    return parsed.request && parsed.request->continues_last;
  };
  EXPECT_TRUE(continues(""));
  EXPECT_TRUE(continues(R"(,"continue_final_message":true)"));
  EXPECT_TRUE(continues(R"(,"continue_final_message":true,"add_generation_prompt":false)"));
  EXPECT_FALSE(continues(R"(,"continue_final_message":false)"));
  EXPECT_FALSE(continues(R"(,"add_generation_prompt":true)"));
}

TEST(OpenAiChat, every_spelling_of_thinking_says_the_same) {
  const struct {
    const char* members;
    std::optional<bool> want;
  } cases[] = {
      {R"("enable_thinking":false)", false},
      {R"("enable_thinking":null)", std::nullopt},
      {R"("chat_template_kwargs":{"thinking":false})", false},
      {R"("thinking":{"type":"enabled"})", true},
      {R"("thinking":{"type":"adaptive"})", std::nullopt},
      {R"("reasoning":{"enabled":false})", false},
      {R"("reasoning":{"effort":"none"})", false},
      {R"("reasoning_effort":"none")", false},
      {R"("reasoning_effort":"high")", std::nullopt},
      {R"("thinking_budget":0)", false},
      {R"("thinking_token_budget":-1)", std::nullopt},
      {R"("chat_template_kwargs":{"reasoning_effort":"none"},"enable_thinking":false)", false},
  };
  for (const auto& c : cases) {
    const Parsed parsed = parse(body_with(c.members));
    ASSERT_TRUE(parsed.request) << c.members << to_string(parsed.request.error());
    EXPECT_EQ(parsed.request->generation.thinking, c.want) << c.members;
  }
}

TEST(OpenAiChat, effort_becomes_a_level_that_the_template_names) {
  RequestRules with = rules();
  with.template_variables.push_back("reasoning_effort");
  std::sort(with.template_variables.begin(), with.template_variables.end());
  with.effort_levels = {"low", "medium", "xhigh"};
  const std::pair<const char*, const char*> cases[] = {{"minimal", "low"},
                                                       {"low", "low"},
                                                       {"medium", "medium"},
                                                       {"high", "xhigh"},
                                                       {"max", "xhigh"}};
  for (const auto& [asked, passed] : cases) {
    const Parsed parsed = parse(body_with(fmt::format("\"reasoning_effort\":\"{}\"", asked)), with);
    ASSERT_TRUE(parsed.request);
    ASSERT_EQ(parsed.request->generation.template_members.size(), 1u);
    EXPECT_EQ(parsed.request->generation.template_members[0].second.as_string(), passed);
  }
}

TEST(OpenAiChat, neutral_values_are_ignored_and_listed) {
  const Parsed parsed = parse(body_with(
      R"("user":"u","store":true,"metadata":{},"logit_bias":{},"logprobs":false,"typical_p":1,
         "presence_penalty":0,"n":1,"best_of":1,"min_tokens":0,"tools":[],"tool_choice":"auto",
         "response_format":{"type":"text"},"cache_prompt":true,"service_tier":"auto",
         "tool_choice_x":1,"stream_options":{"include_usage":true},"seed":-1)"));
  ASSERT_TRUE(parsed.request) << to_string(parsed.request.error());
  EXPECT_EQ(parsed.request->generation.seed, std::nullopt);
  EXPECT_FALSE(parsed.request->include_usage);
  const std::vector<std::string>& ignored = parsed.notes.ignored;
  for (const char* pointer : {"/user", "/store", "/metadata", "/logit_bias", "/typical_p",
                              "/service_tier", "/tool_choice_x", "/stream_options"})
    EXPECT_NE(std::find(ignored.begin(), ignored.end(), pointer), ignored.end()) << pointer;
}

TEST(OpenAiChat, drafts_are_bounded_or_turned_off_by_their_fields) {
  const auto drafts_max = [](const std::string& fields) {
    return parse(body_with(fields)).request->generation.drafts_max;
  };
  EXPECT_EQ(drafts_max(R"("draft":true)"), 15);
  EXPECT_EQ(drafts_max(R"("draft":false)"), 0);
  EXPECT_EQ(drafts_max(R"("draft_max":3)"), 3);
  EXPECT_EQ(drafts_max(R"("draft":false,"draft_max":3)"), 0);
}

TEST(OpenAiChat, content_in_every_form_is_one_text) {
  for (const char* content : {R"("ab")", R"([{"type":"text","text":"ab"}])",
                              R"([{"type":"text","text":"a"},{"type":"input_text","text":"b"}])"}) {
    const Parsed parsed =
        parse(fmt::format(R"({{"messages":[{{"role":"user","content":{}}}]}})", content));
    ASSERT_TRUE(parsed.request) << content;
    EXPECT_EQ(parsed.request->messages[0].text, "ab");
  }
  for (const char* content : {"", R"("content":null,)", R"("content":"",)", R"("content":[],)"}) {
    const Parsed parsed = parse(fmt::format(R"({{"messages":[{{{}"role":"user"}}]}})", content));
    ASSERT_TRUE(parsed.request) << content;
    EXPECT_EQ(parsed.request->messages[0].text, "");
  }
}

TEST(OpenAiChat, earlier_reasoning_is_read_from_every_spelling) {
  const char* spellings[] = {
      R"("reasoning_content":"why","content":"so")",
      R"("reasoning":"why","content":"so")",
      R"("thinking":"why","content":"so")",
      R"("reasoning_details":[{"type":"reasoning.text","text":"why"}],"content":"so")",
      R"("content":[{"type":"thinking","thinking":"why"},{"type":"text","text":"so"}])",
      R"("content":"<think>\nwhy\n</think>\n\nso")",
      R"("content":"why\n</think>\n\nso")",
      R"("reasoning_content":"","reasoning":"why","content":"so")",
  };
  for (const char* spelling : spellings) {
    const Parsed parsed = parse(fmt::format(
        R"({{"messages":[{{"role":"assistant",{}}},{{"role":"user","content":"x"}}]}})", spelling));
    ASSERT_TRUE(parsed.request) << spelling;
    EXPECT_EQ(parsed.request->messages[0].reasoning, "why") << spelling;
    EXPECT_EQ(parsed.request->messages[0].text, "so") << spelling;
  }
}

TEST(OpenAiChat, a_bad_call_of_the_past_is_never_refused) {
  const std::pair<const char*, const char*> cases[] = {
      {R"("{\"b\":1.0,\"a\":\"x\"}")", R"({"b":1.0,"a":"x"})"},
      {R"({"b":1,"a":2})", R"({"b":1,"a":2})"},
      {R"("{\"a\":1,\"b\":2,\"a\":3}")", R"({"a":3,"b":2})"},
      {R"("")", "{}"},
      {R"("  ")", "{}"},
      {R"("null")", "{}"},
      {"null", "{}"},
      {R"("[1,2]")", R"({"arguments":"[1,2]"})"},
      {R"([1,2])", R"({"arguments":"[1,2]"})"},
      {R"("{\"a\":")", R"({"arguments":"{\"a\":"})"},
      {R"("5")", R"({"arguments":"5"})"},
      {"5", R"({"arguments":"5"})"},
  };
  for (const auto& [arguments, want] : cases) {
    const Parsed parsed = parse(fmt::format(
        R"({{"messages":[{{"role":"assistant","tool_calls":[{{"id":"c","type":"function","function":{{"name":"f","arguments":{}}}}}]}},{{"role":"tool","tool_call_id":"c","content":"r"}}]}})",
        arguments));
    ASSERT_TRUE(parsed.request) << arguments << to_string(parsed.request.error());
    EXPECT_EQ(json::write(parsed.request->messages[0].calls[0].arguments), want) << arguments;
  }
}

TEST(OpenAiChat, a_call_of_the_past_without_its_members_is_read_as_far_as_it_goes) {
  const std::tuple<const char*, const char*, const char*, const char*> cases[] = {
      {R"({"function":{"arguments":"{\"a\":1}"}})", "", "", R"({"a":1})"},
      {R"({"id":7,"function":{"name":["f"],"arguments":"x"}})", "7", R"(["f"])",
       R"({"arguments":"x"})"},
      {R"({"id":"c","name":"f","arguments":"{\"a\":1}"})", "c", "f", R"({"a":1})"},
      {R"({"id":"c","function":"f"})", "c", "", "{}"},
      {R"({"id":"c","type":"custom","custom":{"input":5}})", "c", "", R"({"input":"5"})"},
      {R"({"id":"c","id":"d"})", "", "", R"({"id":"d"})"},
      {R"("gone")", "", "", R"({"arguments":"gone"})"},
      {"null", "", "", "{}"},
  };
  for (const auto& [call, id, name, arguments] : cases) {
    const Parsed parsed =
        parse(fmt::format(R"({{"messages":[{{"role":"assistant","tool_calls":[{}]}},)"
                          R"({{"role":"tool","tool_call_id":7,"content":"r"}}]}})",
                          call));
    ASSERT_TRUE(parsed.request) << call << to_string(parsed.request.error());
    const PastCall& past = parsed.request->messages[0].calls.at(0);
    EXPECT_EQ(past.id, id) << call;
    EXPECT_EQ(past.name, name) << call;
    EXPECT_EQ(json::write(past.arguments), arguments) << call;
    EXPECT_EQ(parsed.request->messages[1].call_id, "7");
    EXPECT_EQ(parsed.notes.param, "") << call;  // no later refusal points at it
  }
}

TEST(OpenAiChat, tools_are_printed_as_they_came_without_cache_control) {
  const Parsed parsed = parse(body_with(
      R"("tools":[{"cache_control":{"type":"e"},"type":"function","function":{"description":"d","name":"f"}},
                  {"type":"web_search"},
                  {"type":"custom","custom":{"name":"c","description":"free"}}])"));
  ASSERT_TRUE(parsed.request) << to_string(parsed.request.error());
  ASSERT_EQ(parsed.request->tools.size(), 2u);
  EXPECT_EQ(json::write(parsed.request->tools[0].printed),
            R"({"type":"function","function":{"description":"d","name":"f"}})");
  EXPECT_TRUE(parsed.request->tools[1].is_free_text);
  EXPECT_EQ(json::write(parsed.request->tools[1].printed),
            R"({"type":"function","function":{"name":"c","description":"free","parameters":)"
            R"({"type":"object","properties":{"input":{"type":"string"}},"required":["input"]}}})");
  EXPECT_EQ(parsed.notes.ignored, (std::vector<std::string>{"/tools/0/cache_control", "/tools/1"}));
}

TEST(OpenAiChat, a_strict_server_knows_its_names) {
  RequestRules with = rules();
  with.is_strict_model = true;
  EXPECT_EQ(parse(body_with(R"("model":"also")"), with).code(), "ok");
  EXPECT_EQ(parse(body_with(R"("model":"other")"), with).code(), "request.unknown_model");
  EXPECT_EQ(parse(body_with(R"("model":"other")")).code(), "ok");
}

TEST(OpenAiChat, error_bodies_have_the_shape_that_clients_read) {
  EXPECT_EQ(
      openai_error_body(Error{Refusal::FieldType, "seed: have \"x\", want an integer"}, "seed"),
      R"({"error":{"message":"a field has the wrong type: seed: have \"x\", want an integer",)"
      R"("type":"invalid_request_error","param":"seed","code":"request.field_type",)"
      R"("refusal":"request.field_type"}})");
  const json::Value queue =
      std::move(json::parse(openai_error_body(Error{Refusal::QueueFull, ""}, ""))).value();
  EXPECT_EQ(queue.find("error")->find("type")->as_string(), "rate_limit_error");
  EXPECT_EQ(queue.find("error")->find("code")->as_string(), "rate_limit_exceeded");
  EXPECT_TRUE(queue.find("error")->find("param")->is_null());
  EXPECT_EQ(openai_code_of(Refusal::RequestTooLong), "context_length_exceeded");
  EXPECT_EQ(openai_code_of(Refusal::UnsupportedField), "unsupported_parameter");
  EXPECT_EQ(openai_type_of(503), "server_error");
}

}  // namespace
}  // namespace roost
