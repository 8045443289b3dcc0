// The service over a fake engine and a fake connection: routes, whole replies, streams, refusals.
#include "server/service.h"

#include <gtest/gtest.h>

#include "base/hash.h"
#include "tests/sim/dialects.h"
#include "tests/sim/service_fixture.h"

namespace roost {
namespace {

class ServiceTest : public ServiceFixture {
 protected:
  std::shared_ptr<FakeExchange> chat(const std::string& members) {
    return post("/v1/chat/completions", body_of(Dialect::kChat, members));
  }
};

const std::string kReply = "I think.\n</think>\n\nThe answer é😀 is 12.";

TEST_F(ServiceTest, before_a_model_is_served_it_says_that_it_loads) {
  EXPECT_EQ(get("/health")->wait().status, 503);
  EXPECT_EQ(get("/health")->wait().body, R"({"status":"loading"})");
  EXPECT_EQ(refusal_of(chat("")), "server.loading");
  EXPECT_EQ(get("/version")->wait().status, 200);
  EXPECT_EQ(get("/")->wait().status, 200);
  EXPECT_EQ(chat("")->header("Retry-After"), "1");
}

TEST_F(ServiceTest, a_whole_reply_has_its_shape_and_true_counts) {
  serve(says(kReply));
  const auto exchange = chat(R"("seed":5,"return_token_ids":true,"max_tokens":100)");
  const HttpResponse& response = exchange->wait();
  ASSERT_EQ(response.status, 200) << response.body;
  const json::Value body = std::move(json::parse(response.body)).value();
  EXPECT_TRUE(body.find("id")->as_string().starts_with("chatcmpl-"));
  EXPECT_EQ(body.find("id")->as_string().size(), 9u + 24);
  EXPECT_EQ(body.find("object")->as_string(), "chat.completion");
  EXPECT_EQ(body.find("model")->as_string(), "fledgling");
  EXPECT_EQ(body.find("system_fingerprint")->as_string(), "roost-0.1.0-01234567");
  const json::Value& choice = body.find("choices")->items()[0];
  const json::Value& message = *choice.find("message");
  EXPECT_EQ(message.find("content")->as_string(), "The answer é😀 is 12.");
  EXPECT_EQ(message.find("reasoning_content")->as_string(), "I think.");
  EXPECT_EQ(message.find("tool_calls"), nullptr);
  EXPECT_EQ(choice.find("finish_reason")->as_string(), "stop");
  EXPECT_TRUE(choice.find("stop_reason")->is_null());
  const std::vector<int32_t> ids = fledgling_tokenizer().encode(kReply);
  EXPECT_EQ(choice.find("token_ids")->items().size(), ids.size());
  const json::Value& usage = *body.find("usage");
  const int64_t n_prompt = static_cast<int64_t>(fake_.engine->last_request().prompt.size());
  EXPECT_EQ(usage.find("prompt_tokens")->as_int64(), n_prompt);
  EXPECT_EQ(usage.find("completion_tokens")->as_int64(), static_cast<int64_t>(ids.size()));
  EXPECT_EQ(usage.find("total_tokens")->as_int64(), n_prompt + static_cast<int64_t>(ids.size()));
  EXPECT_GT(usage.find("completion_tokens_details")->find("reasoning_tokens")->as_int64(), 2);
  const json::Value& extras = *body.find("roost");
  EXPECT_EQ(extras.find("seed")->as_int64(), 5);
  EXPECT_EQ(extras.find("token_sha256")->as_string(), token_sha256(ids));
  EXPECT_EQ(extras.find("finish_detail")->as_string(), "eos");
  EXPECT_EQ(extras.find("max_tokens_applied")->as_int64(), 100);
  EXPECT_EQ(body.find("timings")->find("predicted_n")->as_int64(),
            static_cast<int64_t>(ids.size()));
  EXPECT_EQ(fake_.engine->last_request().sampling.temperature, 0.7);  // the checkpoint's default
}

// The fields of a whole reply, and the same fields put together from a stream.
struct Fields3 {
  std::string reasoning, content, finish;
  std::vector<int64_t> ids;
  friend bool operator==(const Fields3&, const Fields3&) = default;
};

Fields3 from_whole(const std::string& body_text) {
  const json::Value body = std::move(json::parse(body_text)).value();
  const json::Value& choice = body.find("choices")->items()[0];
  Fields3 out;
  const json::Value* reasoning = choice.find("message")->find("reasoning_content");
  if (reasoning != nullptr) out.reasoning = reasoning->as_string();
  out.content = choice.find("message")->find("content")->as_string();
  out.finish = choice.find("finish_reason")->as_string();
  for (const json::Value& id : choice.find("token_ids")->items()) out.ids.push_back(*id.as_int64());
  return out;
}

Fields3 from_stream(const std::vector<json::Value>& events) {
  Fields3 out;
  for (const json::Value& event : events) {
    if (event.find("choices") == nullptr || event.find("choices")->items().empty()) continue;
    const json::Value& choice = event.find("choices")->items()[0];
    const json::Value& delta = *choice.find("delta");
    if (delta.find("reasoning_content") != nullptr)
      out.reasoning += delta.find("reasoning_content")->as_string();
    if (delta.find("content") != nullptr) out.content += delta.find("content")->as_string();
    if (choice.find("finish_reason")->is_string())
      out.finish = choice.find("finish_reason")->as_string();
    if (choice.find("token_ids") != nullptr)
      for (const json::Value& id : choice.find("token_ids")->items())
        out.ids.push_back(*id.as_int64());
  }
  return out;
}

TEST_F(ServiceTest, concatenated_deltas_are_the_whole_reply) {
  const std::string settings[] = {
      "",
      R"("stop":["is"])",
      R"("stop":["answer é","😀"])",
      R"("max_tokens":3)",
      R"("max_tokens":9)",
      R"("include_reasoning":false)",
      R"("enable_thinking":false)",
      R"("stop":["zzz"],"stream_options":{"include_usage":true})",
  };
  for (const size_t per_event : {1, 2, 5, 100}) {
    FakeEngineOptions options = says(kReply);
    options.tokens_per_event = per_event;
    serve(std::move(options));
    for (const std::string& setting : settings) {
      const std::string members =
          R"("return_token_ids":true)" + (setting.empty() ? "" : "," + setting);
      const Fields3 whole = from_whole(chat(members)->wait().body);
      const auto stream = chat(members + R"(,"stream":true)");
      stream->wait();
      EXPECT_EQ(from_stream(stream->events()), whole) << setting << " " << per_event;
      EXPECT_EQ(stream->last_data(), "[DONE]");
      EXPECT_TRUE(stream->keeps_connection());
    }
  }
}

TEST_F(ServiceTest, the_first_event_leaves_before_the_engine_does_anything) {
  serve(says(kReply));
  fake_.engine->hold();
  const auto exchange = chat(R"("stream":true,"stream_options":{"include_usage":true})");
  ASSERT_EQ(exchange->events().size(), 1u);
  const json::Value first = exchange->events()[0];
  EXPECT_EQ(json::write(*first.find("choices")),
            R"([{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,)"
            R"("finish_reason":null}])");
  EXPECT_TRUE(first.find("usage")->is_null());
  EXPECT_EQ(exchange->idle().find(": keep-alive\n\ndata: {"), 0u);
  fake_.engine->release();
  exchange->wait();
  const std::vector<json::Value> events = exchange->events();
  EXPECT_TRUE(events.back().find("choices")->items().empty());
  EXPECT_GT(events.back().find("usage")->find("total_tokens")->as_int64(), 0);
  EXPECT_NE(events.back().find("roost"), nullptr);
  EXPECT_EQ(events[events.size() - 2].find("roost"), nullptr);
}

TEST_F(ServiceTest, causes_of_an_end_have_their_names) {
  serve(says("one two three four five"));
  const auto reason = [&](const std::string& members) {
    const json::Value body = std::move(json::parse(chat(members)->wait().body)).value();
    const json::Value& choice = body.find("choices")->items()[0];
    return choice.find("finish_reason")->as_string() + " " +
           json::write(*choice.find("stop_reason")) + " " +
           body.find("roost")->find("finish_detail")->as_string();
  };
  const std::string off = R"("enable_thinking":false)";
  EXPECT_EQ(reason(off), "stop null eos");
  EXPECT_EQ(reason(off + R"(,"max_tokens":2)"), "length null max_tokens");
  EXPECT_EQ(reason(off + R"(,"stop":"three")"), "stop \"three\" stop_string");
  const int32_t two = fledgling_tokenizer().encode("one two")[1];
  EXPECT_EQ(reason(off + ",\"stop_token_ids\":[" + std::to_string(two) + "]"),
            "stop " + std::to_string(two) + " stop_token");
  FakeEngineOptions endless = says("x");
  endless.is_endless = true;
  endless.context_max = 60;
  serve(std::move(endless));
  EXPECT_EQ(reason(off), "length null context");
  EXPECT_EQ(reason(off + R"(,"max_tokens":1000000)"), "length null context");
}

TEST_F(ServiceTest, a_prompt_without_room_is_refused_in_the_words_that_agents_match) {
  FakeEngineOptions options = says("x");
  options.context_max = 5;
  serve(std::move(options));
  const auto exchange = chat(R"("stream":true)");
  const json::Value body = std::move(json::parse(exchange->wait().body)).value();
  EXPECT_EQ(exchange->wait().status, 400);
  const std::string message = body.find("error")->find("message")->as_string();
  EXPECT_TRUE(message.starts_with("prompt is too long: ")) << message;
  EXPECT_TRUE(
      message.ends_with(" tokens > 4 maximum; this model's maximum context length is 5 tokens"))
      << message;
  EXPECT_EQ(body.find("error")->find("code")->as_string(), "context_length_exceeded");
}

TEST_F(ServiceTest, a_stop_string_cancels_what_the_engine_goes_on_with) {
  FakeEngineOptions options = says("ab ");
  options.is_endless = true;
  options.step = std::chrono::microseconds(20);  // leaves the fake's lock to others now and then
  options.context_max = 100'000'000;
  serve(std::move(options));
  EXPECT_EQ(chat(R"("stop":"b a","enable_thinking":false)")->wait().status, 200);
  fake_.engine->wait_for_cancelled(1);
}

TEST_F(ServiceTest, a_client_that_goes_cancels_its_request) {
  serve(says("x"));
  fake_.engine->hold();
  for (const char* members : {R"("stream":true)", ""}) {
    const auto exchange = chat(members);
    const size_t n_before = fake_.engine->n_cancelled();
    exchange->go();
    fake_.engine->wait_for_cancelled(n_before + 1);
  }
}

TEST_F(ServiceTest, an_error_after_the_first_byte_is_an_event_and_no_end) {
  FakeEngineOptions options = says("one two");
  options.fails_with = Error{Refusal::EngineNonfinite, "position 5"};
  serve(std::move(options));
  const auto stream = chat(R"("stream":true)");
  stream->wait();
  EXPECT_FALSE(stream->keeps_connection());
  EXPECT_NE(stream->events().back().find("error"), nullptr);
  EXPECT_EQ(from_stream(stream->events()).finish, "");
  EXPECT_EQ(stream->bytes().find("[DONE]"), std::string::npos);
  const auto whole = chat("");
  EXPECT_EQ(whole->wait().status, 500);
  EXPECT_EQ(refusal_of(whole), "engine.nonfinite");
}

TEST_F(ServiceTest, a_reply_is_counted_before_its_client_hears_of_the_end) {
  serve(says("one two"));
  const auto is_counted = [&](const std::string& members) {
    fake_.engine->hold();
    const auto exchange = chat(members);
    bool out = false;
    exchange->at_end([&] { out = service_.n_running() == 0; });
    fake_.engine->release();
    exchange->wait();
    return out;
  };
  EXPECT_TRUE(is_counted(""));
  EXPECT_TRUE(is_counted(R"("stream":true)"));
}

TEST_F(ServiceTest, draining_refuses_new_work_and_ends_what_is_left) {
  serve(says("x"));
  fake_.engine->hold();
  const auto stream = chat(R"("stream":true)");
  const auto whole = chat("");
  EXPECT_EQ(service_.n_running(), 2u);
  service_.drain();
  EXPECT_EQ(get("/health")->wait().body, R"({"status":"draining"})");
  EXPECT_EQ(refusal_of(chat("")), "server.draining");
  service_.cancel_running(Error{Refusal::ServerDraining, "now"});
  stream->wait();
  EXPECT_NE(stream->events().back().find("error"), nullptr);
  EXPECT_EQ(refusal_of(whole), "server.draining");
  whole->settle();
  stream->settle();
  EXPECT_EQ(service_.n_running(), 0u);
}

TEST_F(ServiceTest, a_full_queue_is_429_and_busy) {
  FakeEngineOptions options = says("x");
  options.queue_max = 2;
  serve(std::move(options));
  fake_.engine->hold();
  const auto a = chat(""), b = chat("");
  const auto refused = chat(R"("stream":true)");
  EXPECT_EQ(refused->wait().status, 429);
  EXPECT_EQ(refusal_of(refused), "queue.full");
  EXPECT_FALSE(refused->header("Retry-After").empty());
  fake_.engine->release();
  EXPECT_EQ(a->wait().status, 200);
  EXPECT_EQ(b->wait().status, 200);
}

TEST_F(ServiceTest, seeds_are_returned_and_differ_when_absent) {
  serve(says("x"));
  const auto seed = [&](const std::string& members) {
    const json::Value body = std::move(json::parse(chat(members)->wait().body)).value();
    return body.find("roost")->find("seed")->number_text();
  };
  EXPECT_NE(seed(""), seed(""));
  EXPECT_EQ(seed(R"("seed":18446744073709551615)"), "18446744073709551615");
  EXPECT_EQ(seed(R"("seed":-2)"), "18446744073709551614");
  EXPECT_EQ(fake_.engine->last_request().sampling.seed, static_cast<uint64_t>(-2));
}

TEST_F(ServiceTest, paths_and_methods_are_answered_by_name) {
  serve(says("x"));
  EXPECT_EQ(refusal_of(get("/v2/x")), "http.unknown_path");
  const auto near = get("/chat/completions");
  EXPECT_NE(near->wait().body.find("/v1/chat/completions is near"), std::string::npos);
  EXPECT_NE(get("/v1/v1/models")->wait().body.find("/v1/models is near"), std::string::npos);
  const auto method = get("/v1/chat/completions");
  EXPECT_EQ(method->wait().status, 405);
  EXPECT_EQ(method->header("Allow"), "POST, OPTIONS");
  const auto options = send(request("OPTIONS", "/health"));
  EXPECT_EQ(options->wait().status, 204);
  EXPECT_EQ(options->header("Allow"), "GET, HEAD, OPTIONS");
  EXPECT_EQ(options->header("Access-Control-Allow-Origin"), "");
  EXPECT_EQ(send(request("HEAD", "/"))->wait().status, 200);
  EXPECT_EQ(refusal_of(send(request("POST", "/v1/embeddings", "{}"))), "endpoint.not_offered");
  EXPECT_EQ(send(request("POST", "/v1/audio/speech", "{}"))->wait().status, 501);
}

TEST_F(ServiceTest, the_model_list_serves_both_families_of_clients) {
  serve(says("x"));
  const json::Value list = std::move(json::parse(get("/v1/models")->wait().body)).value();
  EXPECT_EQ(list.find("object")->as_string(), "list");
  EXPECT_EQ(list.find("first_id")->as_string(), "fledgling");
  const json::Value& entry = list.find("data")->items()[0];
  EXPECT_EQ(entry.find("max_model_len")->as_int64(), 1000);
  EXPECT_EQ(entry.find("created_at")->as_string(), "2023-11-14T22:13:20Z");
  EXPECT_EQ(get("/v1/models/fledgling")->wait().status, 200);
  EXPECT_EQ(get("/v1/models/fledg%6Cing")->wait().status, 200);
  EXPECT_EQ(refusal_of(get("/v1/models/other%2Fone")), "request.unknown_model");
}

TEST_F(ServiceTest, hosts_origins_and_body_types_are_checked) {
  serve(says("x"));
  const std::string body = R"({"messages":[{"role":"user","content":"Hi"}]})";
  const auto with = [&](const char* name, const char* value) {
    HttpRequest http = request("POST", "/v1/chat/completions", body);
    std::erase_if(http.headers, [&](const auto& h) { return h.first == name; });
    if (*value != '\0') http.headers.emplace_back(name, value);
    return send(std::move(http));
  };
  for (const char* host : {"evil.example", "127.0.0.1", "127.0.0.1:81", "localhost.evil:8080"})
    EXPECT_EQ(with("host", host)->wait().status, 421) << host;
  for (const char* host : {"localhost:8080", "LOCALHOST:8080", "[::1]:8080", "127.0.0.1:8080"})
    EXPECT_EQ(with("host", host)->wait().status, 200) << host;
  EXPECT_EQ(refusal_of(with("origin", "http://evil.example")), "http.origin_not_allowed");
  EXPECT_EQ(refusal_of(with("origin", "null")), "http.origin_not_allowed");
  EXPECT_EQ(with("origin", "http://127.0.0.1:8080")->wait().status, 200);
  for (const char* type : {"", "text/plain", "application/x-www-form-urlencoded",
                           "application/json; charset=latin1", "application/jsonx"})
    EXPECT_EQ(refusal_of(with("content-type", type)), "http.content_type") << type;
  EXPECT_EQ(with("content-type", "Application/JSON; charset=UTF-8")->wait().status, 200);
  EXPECT_EQ(refusal_of(with("content-encoding", "gzip")), "http.content_encoding");
  EXPECT_EQ(with("content-encoding", "identity")->wait().status, 200);
}

TEST_F(ServiceTest, request_ids_and_ignored_fields_come_back) {
  serve(says("x"));
  HttpRequest http = request("POST", "/v1/chat/completions",
                             R"({"messages":[{"role":"user","content":"Hi","name":"n"}],"user":"u",
                                 "odd, key é":1,"request_id":"from-body"})");
  const auto own = send(http);
  own->wait();
  EXPECT_EQ(own->header("X-Request-Id"), "from-body");
  EXPECT_EQ(own->header("X-Roost-Ignored"), "/messages/0/name,/user,/odd%2C%20key%20%C3%A9");
  http.headers.emplace_back("x-request-id", "from-header");
  const char* kTrace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
  http.headers.emplace_back("traceparent", kTrace);
  const auto given = send(http);
  given->wait();
  EXPECT_EQ(given->header("X-Request-Id"), "from-header");
  EXPECT_EQ(given->header("traceparent"), kTrace);
  http.headers.back().second = "00-1-2-01";
  const auto made = send(http);
  made->wait();
  EXPECT_EQ(made->header("traceparent").size(), std::string(kTrace).size());
  EXPECT_EQ(get("/health")->header("X-Request-Id").size(), 24u);
}

TEST_F(ServiceTest, a_place_kept_for_probes_answers_nothing_else) {
  serve(says("x"));
  HttpRequest models = request("GET", "/v1/models"), health = request("GET", "/health");
  models.is_reserve = health.is_reserve = true;
  EXPECT_EQ(refusal_of(send(models)), "http.too_many_connections");
  EXPECT_EQ(send(health)->wait().status, 200);
}

class KeyedServiceTest : public ServiceFixture {
 protected:
  KeyedServiceTest() : ServiceFixture(options()) {}

  static ServiceOptions options() {
    ServiceOptions out;
    Result<std::unique_ptr<KeyRing>> keys = KeyRing::create("", "the-one-key", system_clock());
    EXPECT_TRUE(keys);
    out.keys = std::move(keys).value();
    return out;
  }
  std::shared_ptr<FakeExchange> send_with(HttpRequest http, const char* name, const char* value) {
    if (*name != '\0') http.headers.emplace_back(name, value);
    return send(std::move(http));
  }
};

TEST_F(KeyedServiceTest, with_keys_only_those_who_have_one_get_in) {
  serve(says("x"));
  const std::string body = body_of(Dialect::kChat);
  const auto chat = [&](const char* name, const char* value) {
    return send_with(request("POST", "/v1/chat/completions", body), name, value);
  };
  EXPECT_EQ(refusal_of(chat("", "")), "auth.missing");
  EXPECT_EQ(chat("", "")->wait().status, 401);
  EXPECT_EQ(refusal_of(chat("authorization", "Bearer another-key")), "auth.invalid");
  EXPECT_EQ(refusal_of(chat("authorization", "Basic the-one-key")), "auth.missing");
  EXPECT_EQ(chat("authorization", "Bearer the-one-key")->wait().status, 200);
  EXPECT_EQ(chat("authorization", "bearer the-one-key")->wait().status, 200);
  EXPECT_EQ(chat("x-api-key", "the-one-key")->wait().status, 200);
  EXPECT_EQ(refusal_of(post("/v1/chat/completions?api_key=the-one-key", body)), "auth.missing");
  EXPECT_EQ(refusal_of(get("/v1/models")), "auth.missing");
  EXPECT_EQ(refusal_of(get("/metrics")), "auth.missing");
  EXPECT_EQ(refusal_of(get("/nothing")), "auth.missing");
  for (const char* open : {"/health", "/ready", "/version", "/"})
    EXPECT_EQ(get(open)->wait().status, 200) << open;
}

}  // namespace
}  // namespace roost
