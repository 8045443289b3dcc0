// What each dialect alone promises: shapes, orders of events, fields, counts.
#include <gtest/gtest.h>

#include <future>

#include "base/hash.h"
#include "tests/sim/dialects.h"
#include "tests/sim/service_fixture.h"

namespace roost {
namespace {

class Protocols : public ServiceFixture {
 protected:
  std::vector<std::string> types_of(const std::shared_ptr<FakeExchange>& exchange) {
    exchange->wait();
    std::vector<std::string> out;
    for (const json::Value& event : stream_events(exchange->bytes())) {
      const std::string type = told::text_at(event, "type");
      if (out.empty() || out.back() != type) out.push_back(type);
    }
    return out;
  }
};

const std::string kTool =
    R"({"type":"object","properties":{"city":{"type":"string"}},"required":["city"]})";
const std::string kReply =
    "why\n</think>\n\nI look.\n<tool_call>\n<function=get_weather>\n<parameter=city>\nOslo\n"
    "</parameter>\n</function>\n</tool_call>";

TEST_F(Protocols, S71_messages_events_are_nested_by_index) {
  FakeEngineOptions options = says(kReply);
  options.n_cached = 3;
  serve(std::move(options));
  const auto exchange =
      post("/v1/messages?beta=true",
           R"({"max_tokens":100,"stream":true,"thinking":{"type":"enabled","budget_tokens":50},
      "tools":[)" +
               tool_of(Dialect::kMessages, "get_weather", kTool) +
               R"(],"messages":[{"role":"user","content":"Hi"}]})");
  EXPECT_EQ(types_of(exchange),
            (std::vector<std::string>{
                "message_start", "ping", "content_block_start", "content_block_delta",
                "content_block_stop", "content_block_start", "content_block_delta",
                "content_block_stop", "content_block_start", "content_block_delta",
                "content_block_stop", "message_delta", "message_stop"}));
  const std::vector<json::Value> events = stream_events(exchange->bytes());
  const json::Value& start = *events[0].find("message");
  EXPECT_EQ(told::count_at(start.find("usage"), "cache_read_input_tokens"), 3);
  EXPECT_EQ(told::count_at(start.find("usage"), "input_tokens") + 3,
            static_cast<int64_t>(fake_.engine->last_request().prompt.size()));
  int64_t open = -1, n_blocks = 0;
  std::string last_delta;
  for (const json::Value& event : events) {
    const std::string type = told::text_at(event, "type");
    if (type == "content_block_start") {
      EXPECT_EQ(open, -1);
      open = told::count_at(&event, "index");
      EXPECT_EQ(open, n_blocks++);
    } else if (type == "content_block_delta") {
      EXPECT_EQ(told::count_at(&event, "index"), open);
      last_delta = told::text_at(*event.find("delta"), "type");
    } else if (type == "content_block_stop") {
      EXPECT_EQ(told::count_at(&event, "index"), open);
      if (open == 0) {
        EXPECT_EQ(last_delta, "signature_delta");
      }
      open = -1;
    }
  }
  EXPECT_EQ(n_blocks, 3);
  EXPECT_NE(exchange->bytes().find("event: message_stop\ndata: "), std::string::npos);
  EXPECT_EQ(exchange->header("request-id"), exchange->header("X-Request-Id"));
}

TEST_F(Protocols, messages_think_only_when_they_are_told_to) {
  serve(says("x"));
  const auto ends_open = [&](const std::string& members) {
    post("/v1/messages", body_of(Dialect::kMessages, members))->wait();
    const std::string prompt =
        fledgling_tokenizer().decode(fake_.engine->last_request().prompt, false);
    return prompt.ends_with("<think>\n");
  };
  EXPECT_FALSE(ends_open(""));
  EXPECT_FALSE(ends_open(R"("thinking":{"type":"disabled"})"));
  EXPECT_TRUE(ends_open(R"("thinking":{"type":"enabled","budget_tokens":1024})"));
  EXPECT_TRUE(ends_open(R"("thinking":{"type":"adaptive"})"));
  EXPECT_TRUE(ends_open(R"("output_config":{"effort":"high"})"));
}

TEST_F(Protocols, messages_refusals_have_their_own_shape) {
  serve(says("x"));
  const auto refused = post("/v1/messages", R"({"messages":[{"role":"robot","content":"x"}]})");
  const json::Value body = answer_of(refused);
  EXPECT_EQ(told::text_at(body, "type"), "error");
  EXPECT_EQ(told::text_at(body, "request_id"), refused->header("X-Request-Id"));
  EXPECT_EQ(told::text_at(*body.find("error"), "type"), "invalid_request_error");
  EXPECT_EQ(told::text_at(*body.find("error"), "param"), "messages[0].role");
  EXPECT_EQ(told::text_at(*body.find("error"), "refusal"), "request.field_value");
}

// long: a table, one row a form of content.
TEST_F(Protocols, one_conversation_in_three_dialects_is_one_prompt) {
  serve(says("x"));
  const struct {
    const char *chat, *messages, *responses;
  } cases[] = {
      {R"({"enable_thinking":true,"messages":[{"role":"system","content":"S"},{"role":"user","content":"U"}]})",
       R"({"enable_thinking":true,"system":"S","messages":[{"role":"user","content":[{"type":"text","text":"U"}]}]})",
       R"({"enable_thinking":true,"instructions":"S","input":"U"})"},
      {R"({"enable_thinking":true,"tools":[{"type":"function","function":{"name":"f","parameters":{"type":"object"}}}],"messages":[{"role":"user","content":"U"},{"role":"assistant","reasoning_content":"R","content":"C","tool_calls":[{"id":"1","function":{"name":"f","arguments":"{\"a\":1.0}"}}]},{"role":"tool","tool_call_id":"1","content":"0012"}]})",
       R"({"enable_thinking":true,"tools":[{"name":"f","input_schema":{"type":"object"}}],"messages":[{"role":"user","content":"U"},{"role":"assistant","content":[{"type":"thinking","thinking":"R","signature":"s"},{"type":"text","text":"C"},{"type":"tool_use","id":"1","name":"f","input":{"a":1.0}}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"1","content":[{"type":"text","text":"0012"}]}]}]})",
       R"({"enable_thinking":true,"tools":[{"type":"function","name":"f","parameters":{"type":"object"}}],"input":[{"role":"user","content":[{"type":"input_text","text":"U"}]},{"type":"reasoning","content":[{"type":"reasoning_text","text":"R"}],"summary":[]},{"type":"message","role":"assistant","content":[{"type":"output_text","text":"C"}]},{"type":"function_call","call_id":"1","name":"f","arguments":"{\"a\":1.0}"},{"type":"function_call_output","call_id":"1","output":"0012"}]})"},
      {R"({"enable_thinking":true,"messages":[{"role":"system","content":"A\n\nB"},{"role":"user","content":"1"},{"role":"system","content":"late"},{"role":"user","content":"2"}]})",
       R"({"enable_thinking":true,"system":[{"type":"text","text":"A"},{"type":"text","text":"B","cache_control":{}}],"messages":[{"role":"user","content":"1"},{"role":"system","content":"late"},{"role":"user","content":"2"}]})",
       R"({"enable_thinking":true,"instructions":"A","input":[{"role":"developer","content":"B"},{"role":"user","content":"1"},{"role":"system","content":"late"},{"role":"user","content":"2"}]})"},
      {R"({"enable_thinking":true,"messages":[{"role":"user","content":"U"},{"role":"assistant","content":"C","tool_calls":[{"id":1,"function":{"arguments":"{\"a\":1.0}"}}]},{"role":"tool","tool_call_id":1,"content":"0012"}]})",
       R"({"enable_thinking":true,"messages":[{"role":"user","content":"U"},{"role":"assistant","content":[{"type":"text","text":"C"},{"type":"tool_use","id":1,"input":{"a":1.0}}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":1,"content":"0012"}]}]})", R"({"enable_thinking":true,"input":[{"role":"user","content":"U"},{"role":"assistant","content":"C"},{"type":"function_call","call_id":1,"arguments":"{\"a\":1.0}"},{"type":"function_call_output","call_id":1,"output":"0012"}]})"},
  };
  for (const auto& c : cases) {
    const json::Value chat = answer_of(post("/apply-template", c.chat));
    const json::Value messages = answer_of(post("/apply-template?dialect=messages", c.messages));
    const json::Value responses = answer_of(post("/apply-template?dialect=responses", c.responses));
    ASSERT_NE(chat.find("prompt"), nullptr) << json::write(chat);
    EXPECT_EQ(told::text_at(chat, "prompt"), told::text_at(messages, "prompt"));
    EXPECT_EQ(told::text_at(chat, "prompt"), told::text_at(responses, "prompt"));
    EXPECT_EQ(*chat.find("token_ids"), *messages.find("token_ids"));
    const auto n = static_cast<int64_t>(chat.find("token_ids")->items().size());
    const json::Value claude = answer_of(post("/v1/messages/count_tokens", c.messages));
    EXPECT_EQ(told::count_at(&claude, "input_tokens"), n);
    const json::Value counted = answer_of(post("/v1/responses/input_tokens", c.responses));
    EXPECT_EQ(told::count_at(&counted, "input_tokens"), n);
    post("/v1/chat/completions", c.chat)->wait();
    EXPECT_EQ(static_cast<int64_t>(fake_.engine->last_request().prompt.size()), n);
  }
}

TEST_F(Protocols, with_placeholder_a_note_stands_for_a_picture_of_the_past_and_of_no_other) {
  serve(says("x"));
  const struct {
    const char *dialect, *key, *picture;
  } cases[] = {
      {"chat", "messages", R"([{"type":"image_url","image_url":{"url":"x"}}])"},
      {"responses", "input", R"([{"type":"input_image","image_url":"x"}])"},
      {"messages", "messages", R"([{"type":"image","source":{}}])"},
      {"messages", "messages", R"([{"type":"tool_result","content":[{"type":"image"}]}])"},
  };
  const std::string later =
      R"({"role":"assistant","content":"Yes"},{"role":"user","content":"Go"})";
  for (const auto& c : cases) {
    const auto told_of = [&](const std::string& choice, const std::string& behind) {
      const std::string body = R"({"on_bad_image":")" + choice + R"(",")" + c.key +
                               R"(":[{"role":"user","content":)" + c.picture + "}" + behind + "]}";
      return answer_of(post(std::string("/apply-template?dialect=") + c.dialect, body));
    };
    const json::Value noted = told_of("placeholder", "," + later);
    ASSERT_NE(noted.find("prompt"), nullptr) << json::write(noted);
    EXPECT_NE(told::text_at(noted, "prompt").find("[image omitted: image.not_offered]"),
              std::string::npos);
    for (const json::Value& refused :
         {told_of("refuse", "," + later), told_of("placeholder", "")}) {
      ASSERT_NE(refused.find("error"), nullptr) << c.dialect;
      EXPECT_EQ(told::text_at(*refused.find("error"), "refusal"), "image.not_offered");
      EXPECT_TRUE(told::text_at(*refused.find("error"), "param")
                      .starts_with(std::string(c.key) + "[0].content[0]"));
    }
  }
}

TEST_F(Protocols, a_note_on_billing_is_no_part_of_a_prompt) {
  serve(says("x"));
  const auto exchange = post(
      "/apply-template?dialect=messages",
      R"({"system":[{"type":"text","text":"x-anthropic-billing-header: a"},{"type":"text","text":"S"}],
          "messages":[{"role":"user","content":"x-anthropic-billing-header: kept"}]})");
  const std::string prompt = told::text_at(answer_of(exchange), "prompt");
  EXPECT_EQ(prompt.find("billing-header: a"), std::string::npos);
  EXPECT_NE(prompt.find("x-anthropic-billing-header: kept"), std::string::npos);
  EXPECT_EQ(exchange->header("X-Roost-Ignored"), "/system/0");
}

TEST_F(Protocols, responses_events_are_numbered_and_nested) {
  serve(says(kReply));
  const auto exchange = post(
      "/v1/responses",
      body_of(Dialect::kResponses, R"("stream":true,"enable_thinking":true,"tools":[)" +
                                       tool_of(Dialect::kResponses, "get_weather", kTool) + "]"));
  EXPECT_EQ(
      types_of(exchange),
      (std::vector<std::string>{
          "response.created", "response.in_progress", "response.output_item.added",
          "response.content_part.added", "response.reasoning_text.delta",
          "response.reasoning_text.done", "response.content_part.done", "response.output_item.done",
          "response.output_item.added", "response.content_part.added", "response.output_text.delta",
          "response.output_text.done", "response.content_part.done", "response.output_item.done",
          "response.output_item.added", "response.function_call_arguments.delta",
          "response.function_call_arguments.done", "response.output_item.done",
          "response.completed"}));
  const std::vector<json::Value> events = stream_events(exchange->bytes());
  for (size_t i = 0; i < events.size(); ++i)
    EXPECT_EQ(told::count_at(&events[i], "sequence_number"), static_cast<int64_t>(i));
  const json::Value& response = *events.back().find("response");
  ASSERT_EQ(response.find("output")->items().size(), 3u);
  EXPECT_EQ(told::text_at(response.find("output")->items()[2], "arguments"), R"({"city":"Oslo"})");
  EXPECT_EQ(exchange->bytes().find("[DONE]"), std::string::npos);
}

TEST_F(Protocols, responses_tell_reasoning_as_a_summary_and_sealed_when_asked) {
  serve(says("why\n</think>\n\nso"));
  const std::string members =
      R"("reasoning":{"summary":"auto","effort":"high"},"include":["reasoning.encrypted_content"],"enable_thinking":true)";
  const json::Value whole = answer_of(post("/v1/responses", body_of(Dialect::kResponses, members)));
  const json::Value& item = whole.find("output")->items()[0];
  EXPECT_EQ(told::text_at(item.find("summary")->items()[0], "text"), "why");
  EXPECT_TRUE(item.find("content")->items().empty());
  const std::string sealed = told::text_at(item, "encrypted_content");
  EXPECT_EQ(sealed.find("why"), std::string::npos);
  // It comes back as what it was; what others sealed is nothing.
  const auto prompt_of = [&](const std::string& value) {
    return told::text_at(
        answer_of(post(
            "/apply-template?dialect=responses",
            R"({"input":[{"role":"user","content":"q"},{"type":"reasoning","summary":[],"encrypted_content":")" +
                value +
                R"("},{"type":"function_call","call_id":"1","name":"f","arguments":"{}"},{"type":"function_call_output","call_id":"1","output":"x"}]})")),
        "prompt");
  };
  EXPECT_NE(prompt_of(sealed).find("<think>\nwhy\n</think>"), std::string::npos);
  EXPECT_EQ(prompt_of("gAAAA").find("why"), std::string::npos);
  std::string damaged = sealed;
  damaged.back() = damaged.back() == '0' ? '1' : '0';
  EXPECT_EQ(prompt_of(damaged).find("<think>\nwh"), std::string::npos);
}

TEST_F(Protocols, responses_are_kept_for_their_owner) {
  serve(says("so"));
  const json::Value first =
      answer_of(post("/v1/responses", body_of(Dialect::kResponses, R"("enable_thinking":false)")));
  const std::string id = told::text_at(first, "id");
  EXPECT_EQ(json::write(answer_of(get("/v1/responses/" + id))), json::write(first));
  const json::Value items = answer_of(get("/v1/responses/" + id + "/input_items"));
  EXPECT_EQ(items.find("data")->items().size(), 1u);
  const std::string prompt = told::text_at(
      answer_of(
          post("/apply-template?dialect=responses",
               R"({"input":"more","enable_thinking":false,"previous_response_id":")" + id + "\"}")),
      "prompt");
  EXPECT_NE(prompt.find("Hi<|im_end|>\n<|im_start|>assistant\nso<|im_end|>"), std::string::npos)
      << prompt;
  // One item of it is known by its own id.
  const std::string item = told::text_at(first.find("output")->items()[0], "id");
  const std::string referring = told::text_at(
      answer_of(post("/apply-template?dialect=responses",
                     R"({"enable_thinking":false,"input":[{"role":"user","content":"Go on"},)"
                     R"({"type":"item_reference","id":")" +
                         item + "\"}]}")),
      "prompt");
  EXPECT_NE(referring.find("</think>\n\nso"), std::string::npos) << referring;
  EXPECT_EQ(told::text_at(answer_of(post("/v1/responses/" + id + "/cancel", "{}")), "id"), id);
  EXPECT_EQ(send(request("DELETE", "/v1/responses/" + id))->wait().status, 200);
  EXPECT_EQ(refusal_of(get("/v1/responses/" + id)), "request.unknown_response");
  EXPECT_EQ(
      refusal_of(post("/v1/responses", R"({"input":"x","previous_response_id":")" + id + "\"}")),
      "request.unknown_response");
  const json::Value unkept =
      answer_of(post("/v1/responses", body_of(Dialect::kResponses, R"("store":false)")));
  EXPECT_EQ(refusal_of(get("/v1/responses/" + told::text_at(unkept, "id"))),
            "request.unknown_response");
}

TEST_F(Protocols, a_response_that_is_cancelled_is_told_as_far_as_it_was) {
  FakeEngineOptions options = says("so much to say ");
  options.is_endless = true;
  options.context_max = 1 << 20;
  serve(std::move(options));
  for (const bool is_stream : {true, false}) {
    const auto running =
        post("/v1/responses",
             body_of(Dialect::kResponses, std::string(R"("enable_thinking":false,"stream":)") +
                                              (is_stream ? "true" : "false")));
    json::Value live;
    do {
      live = answer_of(get("/requests")).find("requests")->items().at(0);
    } while (told::count_at(&live, "completion_tokens") < 4);
    EXPECT_EQ(told::count_at(&live, "prompt_tokens_done"), told::count_at(&live, "prompt_tokens"));
    const std::string id = told::text_at(live, "reply_id");
    const json::Value told_of = answer_of(post("/v1/responses/" + id + "/cancel", "{}"));
    EXPECT_EQ(told::text_at(told_of, "id"), id);
    EXPECT_EQ(told::text_at(told_of, "object"), "response");
    EXPECT_EQ(told::text_at(told_of, "status"), "cancelled");
    EXPECT_EQ(told::text_at(told_of, "model"), "fledgling");
    ASSERT_EQ(told_of.find("output")->items().size(), 1u);
    const json::Value& item = told_of.find("output")->items()[0];
    EXPECT_EQ(told::text_at(item, "status"), "incomplete");
    EXPECT_TRUE(
        told::text_at(item.find("content")->items().at(0), "text").starts_with("so much to say"));
    running->wait();
    EXPECT_EQ(is_stream, running->bytes().find(told::text_at(item, "id")) != std::string::npos);
  }
  EXPECT_EQ(refusal_of(post("/v1/responses/other/cancel", "{}")), "request.unknown_response");
}

// The reply ends between the moment that its cancel is asked for and the one that it is told.
TEST_F(Protocols, a_cancel_that_comes_too_late_is_answered_with_the_whole_reply) {
  serve(says("so"));
  fake_.engine->hold();
  const auto running =
      post("/v1/responses", body_of(Dialect::kResponses, R"("enable_thinking":false)"));
  const std::string id =
      told::text_at(answer_of(get("/requests")).find("requests")->items().at(0), "reply_id");
  std::promise<void> gate;
  running->post([opened = gate.get_future().share()] { opened.wait(); });
  fake_.engine->release();
  for (Engine::Counts counts = fake_.engine->counts(); counts.n_running + counts.n_waiting > 0;)
    counts = fake_.engine->counts();
  const auto cancel = post("/v1/responses/" + id + "/cancel", "{}");
  gate.set_value();
  EXPECT_EQ(told::text_at(answer_of(cancel), "status"), "completed");
  EXPECT_EQ(told::text_at(answer_of(running), "status"), "completed");
}

TEST_F(Protocols, prompts_that_ask_for_no_cache_are_not_counted_as_asked_of_it) {
  serve(says("so"));
  const auto asked = [&] {
    const std::string page = get("/metrics")->wait().body;
    const std::string name = "\nroost_prefix_queried_tokens_total{model_name=\"fledgling\"} ";
    return std::stoi(page.substr(page.find(name) + name.size()));
  };
  post("/v1/chat/completions", body_of(Dialect::kChat))->wait();
  const int before = asked();
  EXPECT_GT(before, 0);
  post("/v1/chat/completions", body_of(Dialect::kChat, R"("cache_prompt":false)"))->wait();
  EXPECT_EQ(asked(), before);
}

TEST_F(Protocols, tools_of_a_namespace_come_back_under_their_own_names) {
  serve(
      says("<tool_call>\n<function=mail__send>\n<parameter=to>\nme\n</parameter>\n</function>\n"
           "</tool_call>\n<tool_call>\n<function=patch>\n<parameter=input>\na \"b\"\n"
           "</parameter>\n</function>\n</tool_call>"));
  const auto exchange = post(
      "/v1/responses",
      body_of(
          Dialect::kResponses,
          R"("enable_thinking":false,"tools":[{"type":"namespace","name":"mail","tools":[{"type":"function","name":"send","parameters":{"type":"object"}}]},
                 {"type":"custom","name":"patch","format":{"type":"grammar","definition":"G"}},{"type":"web_search"}])"));
  const json::Value body = answer_of(exchange);
  const json::Value& call = body.find("output")->items()[0];
  EXPECT_EQ(told::text_at(call, "name"), "send");
  EXPECT_EQ(told::text_at(call, "namespace"), "mail");
  const json::Value& custom = body.find("output")->items()[1];
  EXPECT_EQ(told::text_at(custom, "type"), "custom_tool_call");
  EXPECT_EQ(told::text_at(custom, "input"), "a \"b\"");
  EXPECT_EQ(exchange->header("X-Roost-Ignored"), "/tools/1/format,/tools/2");
}

// long: a table, one row a refusal.
TEST_F(Protocols, what_the_newer_dialects_cannot_honour_is_refused_by_name) {
  serve(says("x"));
  const struct {
    const char *path, *body, *code, *param;
  } cases[] = {
      {"/v1/responses", R"({"input":"x","background":true})", "request.unsupported_field",
       "background"},
      {"/v1/responses", R"({"input":"x","truncation":"auto"})", "request.unsupported_field",
       "truncation"},
      {"/v1/responses", R"({"input":"x","conversation":"c"})", "request.unsupported_field",
       "conversation"},
      {"/v1/responses", R"({"input":"x","text":{"format":{"type":"json_schema"}}})",
       "request.missing_field", "text.format.schema"},
      {"/v1/responses", R"({"input":"x","n":2})", "request.unsupported_field", "n"},
      {"/v1/responses", R"({"input":"x","reasoning":{"summary":"long"}})", "request.field_value",
       "reasoning.summary"},
      {"/v1/responses", R"({"input":[{"type":"input_file"}]})", "request.unsupported_content",
       "input[0]"},
      {"/v1/responses", R"({"input":[{"role":"user","content":[{"type":"input_image"}]}]})",
       "image.not_offered", "input[0].content[0]"},
      {"/v1/responses", R"({"input":[{"type":"item_reference","id":"x"}]})",
       "request.unknown_response", "input[0]"},
      {"/v1/responses", R"({})", "request.missing_field", "input"},
      {"/v1/responses", R"({"input":[]})", "request.missing_field", "input"},
      {"/v1/messages", R"({"messages":[]})", "request.missing_field", "messages"},
      {"/v1/messages", R"({"messages":[{"role":"user","content":[{"type":"document"}]}]})",
       "request.unsupported_content", "messages[0].content[0]"},
      {"/v1/messages", R"({"messages":[{"role":"user","content":[{"type":"image"}]}]})",
       "image.not_offered", "messages[0].content[0]"},
      {"/v1/messages",
       R"({"messages":[{"role":"user","content":[{"type":"tool_result","content":[{"type":"image"}]}]}]})",
       "image.not_offered", "messages[0].content[0].content[0]"},
      {"/v1/messages",
       R"({"messages":[{"role":"user","content":"x"}],"output_config":{"format":{}}})",
       "request.missing_field", "output_config.format.type"},
      {"/v1/messages",
       R"({"messages":[{"role":"user","content":"x"}],"tool_choice":{"type":"any"}})",
       "request.unknown_tool", "tool_choice"},
      {"/v1/messages", R"({"messages":[{"role":"user","content":"x"}],"logprobs":true})",
       "request.unsupported_field", "logprobs"},
      {"/v1/completions", R"({"prompt":""})", "request.empty_prompt", "prompt"},
      {"/v1/completions", R"({"prompt":[]})", "request.empty_prompt", "prompt"},
      {"/v1/completions", R"({"prompt":[""]})", "request.empty_prompt", "prompt[0]"},
      {"/v1/completions", R"({"prompt":[[]]})", "request.empty_prompt", "prompt[0]"},
      {"/v1/completions", R"({"prompt":[1,true]})", "request.field_type", "prompt[1]"},
      {"/v1/completions", R"({"prompt":[[1],["x"]]})", "request.field_type", "prompt[1][0]"},
      {"/v1/completions", R"({"prompt":[-1]})", "request.field_type", "prompt[0]"},
      {"/v1/completions", R"({"prompt":[1.5]})", "request.field_type", "prompt[0]"},
      {"/v1/completions", R"({"prompt":[99999999]})", "request.field_type", "prompt[0]"},
      {"/v1/completions", R"({"prompt":"x","max_tokens":0})", "request.field_range", "max_tokens"},
      {"/v1/completions", R"({"prompt":"x","suffix":"y"})", "request.unsupported_field", "suffix"},
      {"/v1/completions", R"({"prompt":["a","b","c","d","e"],"n":16})", "request.too_many_items",
       "n"},
      {"/tokenize", R"({"prompt":"x","chat_template":"y"})", "request.unsupported_field",
       "chat_template"},
      {"/detokenize", R"({"tokens":[99999999]})", "request.field_range", "tokens"},
      {"/detokenize", R"({})", "request.missing_field", "tokens"},
  };
  for (const auto& c : cases) {
    const auto exchange = post(c.path, c.body);
    const json::Value body = answer_of(exchange);
    ASSERT_NE(body.find("error"), nullptr) << c.body << exchange->wait().body;
    EXPECT_EQ(told::text_at(*body.find("error"), "refusal"), c.code) << c.path << c.body;
    EXPECT_EQ(told::text_at(*body.find("error"), "param"), c.param) << c.path << c.body;
  }
}

TEST_F(Protocols, chat_events_are_the_same_with_more_beside_them) {
  serve(says("why \"so\"\n</think>\n\nHe said:\n\t\"é😀\""));
  const auto choices_of = [&](const std::string& members) {
    const auto exchange = post(
        "/v1/chat/completions",
        R"({"stream":true,"seed":1,"enable_thinking":true,"reasoning_field":"both","messages":[)"
        R"({"role":"user","content":"Hi"}])" +
            members + "}");
    exchange->wait();
    std::vector<json::Value> out;
    for (const json::Value& event : stream_events(exchange->bytes()))
      out.push_back(*event.find("choices"));
    return out;
  };
  const std::vector<json::Value> plain = choices_of("");
  EXPECT_GT(plain.size(), 8u);
  EXPECT_EQ(plain, choices_of(R"(,"timings_per_token":true)"));
}

TEST_F(Protocols, several_choices_have_their_own_seeds_and_ends) {
  serve(says("one two"));
  const std::string members = R"("n":3,"seed":5,"enable_thinking":false)";
  const json::Value whole =
      answer_of(post("/v1/chat/completions", body_of(Dialect::kChat, members)));
  ASSERT_EQ(whole.find("choices")->items().size(), 3u);
  EXPECT_EQ(json::write(*whole.find("roost")->find("seed")), "[5,6,7]");
  const auto n_one = static_cast<int64_t>(fledgling_tokenizer().encode("one two").size());
  EXPECT_EQ(told::count_at(whole.find("usage"), "completion_tokens"), 3 * n_one);
  EXPECT_EQ(told::count_at(whole.find("usage"), "prompt_tokens"),
            static_cast<int64_t>(fake_.engine->last_request().prompt.size()));

  const auto stream =
      post("/v1/chat/completions", body_of(Dialect::kChat, members + R"(,"stream":true)"));
  stream->wait();
  std::vector<std::string> texts(3), ends(3);
  for (const json::Value& event : stream_events(stream->bytes())) {
    const json::Value& choice = event.find("choices")->items()[0];
    const auto i = static_cast<size_t>(told::count_at(&choice, "index"));
    texts[i] += told::text_at(*choice.find("delta"), "content");
    ends[i] += told::text_at(choice, "finish_reason");
  }
  EXPECT_EQ(texts, (std::vector<std::string>(3, "one two")));
  EXPECT_EQ(ends, (std::vector<std::string>(3, "stop")));
  EXPECT_NE(stream_events(stream->bytes()).back().find("roost"), nullptr);
}

TEST_F(Protocols, completions_answer_every_prompt_in_order) {
  serve(says(" and"));
  const json::Value body = answer_of(
      post("/v1/completions", R"({"prompt":["one","two"],"n":2,"echo":true,"max_tokens":9})"));
  std::vector<std::string> texts;
  for (const json::Value& choice : body.find("choices")->items())
    texts.push_back(told::text_at(choice, "text"));
  EXPECT_EQ(texts, (std::vector<std::string>{"one and", "one and", "two and", "two and"}));
  const json::Value nothing =
      answer_of(post("/v1/completions", R"({"prompt":"only this","echo":true,"max_tokens":0})"));
  EXPECT_EQ(told::text_at(nothing.find("choices")->items()[0], "text"), "only this");
  EXPECT_EQ(told::count_at(nothing.find("usage"), "completion_tokens"), 0);
  EXPECT_EQ(told::text_at(nothing.find("choices")->items()[0], "finish_reason"), "length");
}

TEST_F(Protocols, prompts_of_one_body_are_counted_once_each) {
  serve(says("x"));
  const json::Value body =
      answer_of(post("/v1/completions", R"({"prompt":[[1,2,3],[4,5,6,7]],"n":3})"));
  EXPECT_EQ(told::count_at(body.find("usage"), "prompt_tokens"), 7);
  EXPECT_NE(
      get("/metrics")->wait().body.find("roost_prompt_tokens_total{model_name=\"fledgling\"} 7\n"),
      std::string::npos);
}

TEST_F(Protocols, completions_take_tokens_and_special_text) {
  serve(says("x"));
  post("/v1/completions", R"({"prompt":[5,6,7.0]})")->wait();
  EXPECT_EQ(fake_.engine->last_request().prompt, (std::vector<int32_t>{5, 6, 7}));
  EXPECT_EQ(fake_.engine->last_request().new_tokens_max, 16);
  post("/v1/completions", R"({"prompt":"a<|im_end|>"})")->wait();
  EXPECT_EQ(fake_.engine->last_request().prompt, fledgling_tokenizer().encode("a<|im_end|>"));
  post("/v1/completions", R"({"prompt":"a<|im_end|>","parse_special":false})")->wait();
  EXPECT_GT(fake_.engine->last_request().prompt.size(), 2u);
}

TEST_F(Protocols, logprobs_tell_every_kept_token_once) {
  serve(says(kReply));
  const std::string members =
      R"("logprobs":true,"top_logprobs":2,"return_token_ids":true,"enable_thinking":true,"tools":[)" +
      tool_of(Dialect::kChat, "get_weather", kTool) + "]";
  const auto n_all = fledgling_tokenizer().encode(kReply).size();
  const json::Value whole =
      answer_of(post("/v1/chat/completions", body_of(Dialect::kChat, members)));
  const json::Value& logprobs = *whole.find("choices")->items()[0].find("logprobs");
  size_t n = 0;
  for (const char* list : {"reasoning_content", "content", "tool_calls"}) {
    EXPECT_FALSE(logprobs.find(list)->items().empty()) << list;
    n += logprobs.find(list)->items().size();
  }
  EXPECT_EQ(n, n_all);
  const json::Value& first = logprobs.find("reasoning_content")->items()[0];
  EXPECT_EQ(first.find("logprob")->as_double(), -1);
  EXPECT_EQ(first.find("top_logprobs")->items().size(), 2u);

  const auto stream =
      post("/v1/chat/completions", body_of(Dialect::kChat, members + R"(,"stream":true)"));
  stream->wait();
  size_t n_streamed = 0, n_ids = 0;
  for (const json::Value& event : stream_events(stream->bytes())) {
    const json::Value& choice = event.find("choices")->items()[0];
    if (choice.find("token_ids") != nullptr) n_ids += choice.find("token_ids")->items().size();
    const json::Value* told = choice.find("logprobs");
    if (told->is_null()) continue;
    for (const char* list : {"reasoning_content", "content", "tool_calls"})
      n_streamed += told->find(list)->items().size();
  }
  EXPECT_EQ(n_streamed, n_all);
  EXPECT_EQ(n_ids, n_all);

  const json::Value raw =
      answer_of(post("/v1/completions", R"({"prompt":"x","logprobs":2,"max_tokens":100})"));
  const json::Value& told = *raw.find("choices")->items()[0].find("logprobs");
  EXPECT_EQ(told.find("tokens")->items().size(), n_all);
  EXPECT_EQ(told.find("text_offset")->items()[0].as_int64(), 0);
  EXPECT_EQ(told.find("top_logprobs")->items()[0].members().size(), 2u);
}

TEST_F(Protocols, ids_of_tokens_are_told_in_every_dialect_and_add_up_in_streams) {
  serve(says(kReply));
  const std::vector<int32_t> want = fledgling_tokenizer().encode(kReply);
  const auto ids_of = [](const json::Value* ids) {
    std::vector<int32_t> out;
    if (ids == nullptr) return out;
    for (const json::Value& id : ids->items()) out.push_back(static_cast<int32_t>(*id.as_int64()));
    return out;
  };
  const std::pair<Dialect, const char*> dialects[] = {{Dialect::kMessages, "/v1/messages"},
                                                      {Dialect::kResponses, "/v1/responses"}};
  for (const auto& [dialect, path] : dialects) {
    const std::string members = R"("return_token_ids":true,"enable_thinking":true,"tools":[)" +
                                tool_of(dialect, "get_weather", kTool) + "]";
    const json::Value whole = answer_of(post(path, body_of(dialect, members)));
    EXPECT_EQ(ids_of(whole.find("token_ids")), want) << path;
    EXPECT_EQ(ids_of(whole.find("prompt_token_ids")), fake_.engine->last_request().prompt);

    const auto stream = post(path, body_of(dialect, members + R"(,"stream":true)"));
    stream->wait();
    std::vector<int32_t> told, prompt;
    size_t n_events = 0;
    for (const json::Value& event : stream_events(stream->bytes())) {
      const std::vector<int32_t> ids = ids_of(event.find("token_ids"));
      told.insert(told.end(), ids.begin(), ids.end());
      n_events += !ids.empty();
      const json::Value* first = event.find("message");
      if (first == nullptr) first = event.find("response");
      if (first != nullptr && prompt.empty()) prompt = ids_of(first->find("prompt_token_ids"));
    }
    EXPECT_EQ(told, want) << path;
    EXPECT_GT(n_events, 3u);  // as they are drawn, not all at the end
    EXPECT_EQ(prompt, fake_.engine->last_request().prompt);
  }
}

TEST_F(Protocols, echoed_prompts_tell_their_logprobs) {
  serve(says(" and"));
  const auto n_reply = fledgling_tokenizer().encode(" and").size();
  const std::string members = R"("prompt":[5,6,7,8],"echo":true,"logprobs":2)";
  const json::Value whole = answer_of(post("/v1/completions", "{" + members + "}"));
  const json::Value& told = *whole.find("choices")->items()[0].find("logprobs");
  const std::vector<json::Value>& values = told.find("token_logprobs")->items();
  ASSERT_EQ(values.size(), 4 + n_reply);
  EXPECT_TRUE(values[0].is_null() && told.find("top_logprobs")->items()[0].is_null());
  for (size_t i = 1; i < 4; ++i) EXPECT_EQ(values[i].as_double(), -static_cast<double>(i));
  EXPECT_EQ(values[4].as_double(), -1);
  EXPECT_EQ(told.find("top_logprobs")->items()[1].members().size(), 2u);
  EXPECT_EQ(told.find("text_offset")->items()[0].as_int64(), 0);

  // The events of a stream add up to it.
  const auto stream = post("/v1/completions", "{" + members + R"(,"stream":true})");
  stream->wait();
  json::Value sum = json::Value::object();
  for (const char* list : {"tokens", "token_logprobs", "top_logprobs", "text_offset"})
    sum.set(list, json::Value::array());
  for (const json::Value& event : stream_events(stream->bytes())) {
    const json::Value* part = event.find("choices")->items()[0].find("logprobs");
    if (part->is_null()) continue;
    for (auto& [name, list] : sum.members())
      for (const json::Value& one : part->find(name)->items()) list.push(one);
  }
  EXPECT_EQ(json::write(sum), json::write(told));

  const json::Value alone = answer_of(
      post("/v1/completions", R"({"prompt":[5],"echo":true,"logprobs":0,"max_tokens":0})"));
  const json::Value& one = *alone.find("choices")->items()[0].find("logprobs");
  EXPECT_EQ(json::write(*one.find("token_logprobs")), "[null]");

  std::string many = "[5";
  for (int i = 1; i < 900; ++i) many += ",5";
  many += "]";
  const std::string four = many + "," + many + "," + many + "," + many;
  EXPECT_EQ(refusal_of(post("/v1/completions",
                            R"({"echo":true,"logprobs":20,"n":16,"prompt":[)" + four + "]}")),
            "request.too_many_items");
}

// Of the first choice; null: none are told.
const json::Value* logprobs_in(const json::Value& event) {
  const json::Value* told = event.find("choices")->items()[0].find("logprobs");
  return told == nullptr || told->is_null() ? nullptr : told;
}

TEST_F(Protocols, logprobs_of_a_reply_without_tokens_are_the_same_streamed_and_whole) {
  serve(says(""));
  const std::pair<const char*, std::string> asked[] = {
      {"/v1/chat/completions",
       R"({"messages":[{"role":"user","content":"x"}],"enable_thinking":false,"logprobs":true)"},
      {"/v1/completions", R"({"prompt":"x","logprobs":2)"}};
  for (const auto& [path, body] : asked) {
    const json::Value whole = answer_of(post(path, body + "}"));
    ASSERT_NE(logprobs_in(whole), nullptr) << path;
    const auto stream = post(path, body + R"(,"stream":true})");
    stream->wait();
    int n_told = 0;
    for (const json::Value& event : stream_events(stream->bytes())) {
      if (const json::Value* told = logprobs_in(event)) {
        EXPECT_EQ(json::write(*told), json::write(*logprobs_in(whole))) << path;
        ++n_told;
      }
    }
    EXPECT_EQ(n_told, 1) << path;
  }
}

TEST_F(Protocols, text_and_conversations_are_tokenized_and_back) {
  serve(says("x"));
  const json::Value text =
      answer_of(post("/tokenize", R"({"prompt":"one é","return_token_strs":true})"));
  const std::vector<int32_t> ids = fledgling_tokenizer().encode("one é");
  EXPECT_EQ(told::count_at(&text, "count"), static_cast<int64_t>(ids.size()));
  EXPECT_EQ(text.find("token_strs")->items().size(), ids.size());
  const json::Value back =
      answer_of(post("/detokenize", R"({"tokens":)" + json::write(*text.find("tokens")) + "}"));
  EXPECT_EQ(told::text_at(back, "prompt"), "one é");
  const json::Value chat =
      answer_of(post("/tokenize", R"({"messages":[{"role":"user","content":"Hi"}]})"));
  post("/v1/chat/completions", body_of(Dialect::kChat))->wait();
  EXPECT_EQ(told::count_at(&chat, "count"),
            static_cast<int64_t>(fake_.engine->last_request().prompt.size()));
  const json::Value bare = answer_of(
      post("/tokenize",
           R"({"messages":[{"role":"user","content":"Hi"}],"add_generation_prompt":false})"));
  EXPECT_LT(told::count_at(&bare, "count"), told::count_at(&chat, "count"));
}

TEST_F(Protocols, props_metrics_and_live_requests_tell_what_runs) {
  serve(says("one two"));
  post("/v1/chat/completions", body_of(Dialect::kChat))->wait();
  const json::Value props = answer_of(get("/props"));
  EXPECT_EQ(told::count_at(&props, "context_length"), 1000);
  EXPECT_EQ(told::count_at(props.find("limits"), "tools"), 1024);
  const std::string metrics = get("/metrics")->wait().body;
  for (const char* line :
       {"roost_requests_finished_total{model_name=\"fledgling\",finished_reason=\"stop\",dialect="
        "\"chat\"} 1",
        "vllm:request_success_total{model_name=\"fledgling\",engine=\"0\",finished_reason=\"stop\"}"
        " 1",
        "# TYPE roost_ttft_seconds histogram", "vllm:time_to_first_token_seconds_count{",
        "roost_build_info{model_name=\"fledgling\",version="})
    EXPECT_NE(metrics.find(line), std::string::npos) << line;
  fake_.engine->hold();
  const auto waiting =
      post("/v1/chat/completions", body_of(Dialect::kChat, R"("request_id":"r1")"));
  const json::Value live = answer_of(get("/requests"));
  ASSERT_EQ(live.find("requests")->items().size(), 1u);
  EXPECT_EQ(told::text_at(live.find("requests")->items()[0], "id"), "r1");
  EXPECT_EQ(told::text_at(live.find("requests")->items()[0], "phase"), "queue");
  EXPECT_EQ(post("/requests/r1/cancel", "")->wait().status, 204);
  EXPECT_EQ(refusal_of(waiting), "request.cancelled");
  const std::string then = get("/metrics")->wait().body;
  for (const char* line :
       {"roost_requests_cancelled_total{model_name=\"fledgling\",phase=\"queue\"} 1\n",
        "finished_reason=\"abort\",dialect=\"chat\"} 1\n",
        "path=\"/v1/chat/completions\",method=\"POST\",status=\"409\"} 1\n"})
    EXPECT_NE(then.find(line), std::string::npos) << line;
  EXPECT_EQ(then.find("refusal=\"request.cancelled\""), std::string::npos);
  EXPECT_EQ(refusal_of(post("/requests/other/cancel", "")), "request.unknown_response");
}

}  // namespace
}  // namespace roost
