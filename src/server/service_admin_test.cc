// Who may do what, and what an operator asks for: key limits, origins, the prefix cache, the deep
// check; and what a slow reader gets.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdio>
#include <fstream>

#include "base/hash.h"
#include "server/service.h"
#include "tests/sim/dialects.h"
#include "tests/sim/service_fixture.h"

namespace roost {
namespace {

const char* const kBody = R"({"messages":[{"role":"user","content":"Hi"}]})";

class AdminTest : public ServiceFixture {
 protected:
  AdminTest() : ServiceFixture(options()) {}

  static ServiceOptions options() {
    ServiceOptions out;
    out.allowed_origins = {"https://chat.example"};
    return out;
  }
};

TEST_F(AdminTest, the_prefix_cache_is_told_and_flushed) {
  serve(says("x"));
  const json::Value figures = answer_of(get("/cache"));
  for (const char* name : {"pages", "pages_cached", "snapshots", "cached_tokens", "files"})
    EXPECT_NE(figures.find(name), nullptr) << name;
  const auto flushed = post("/cache/flush", "{}");
  EXPECT_EQ(flushed->wait().status, 204);
  EXPECT_EQ(fake_.engine->n_flushes(), 1);
  EXPECT_EQ(get("/cache/flush")->wait().status, 405);
}

TEST_F(AdminTest, the_deep_check_runs_the_canary_again) {
  serve(says("a b c"));
  fake_.model->canary_tokens = fledgling_tokenizer().encode("a b c");
  EXPECT_EQ(get("/health?deep=1")->wait().body, R"({"status":"ok"})");
  fake_.model->canary_tokens = fledgling_tokenizer().encode("a b d");
  const auto failed = get("/health?deep=1");
  EXPECT_EQ(failed->wait().status, 500);
  EXPECT_EQ(refusal_of(failed), "engine.canary");
  EXPECT_NE(failed->wait().body.find(token_sha256(fake_.model->canary_tokens)), std::string::npos);
  EXPECT_NE(get("/metrics")
                ->wait()
                .body.find("roost_canary_failures_total{model_name=\"fledgling\""
                           "} 1"),
            std::string::npos);
  EXPECT_EQ(get("/health")->wait().status, 200);
}

class DefaultsTest : public ServiceFixture {
 protected:
  DefaultsTest() : ServiceFixture(options()) {}

  static ServiceOptions options() {
    ServiceOptions out;
    out.thinking_budget = 7;
    out.guards_loops = true;
    out.requires_content = true;
    return out;
  }
};

TEST_F(DefaultsTest, requests_that_name_no_bound_of_reasoning_have_the_servers) {
  serve(says("x"));
  const auto budget_of = [&](const std::string& members) {
    post("/v1/chat/completions", R"({"messages":[{"role":"user","content":"Hi"}])" + members + "}")
        ->wait();
    return fake_.engine->last_request().budget;
  };
  EXPECT_EQ(budget_of("").n_tokens, 7);
  EXPECT_TRUE(budget_of("").guards_loops);
  EXPECT_EQ(budget_of(R"(,"thinking_budget":3)").n_tokens, 3);
  EXPECT_EQ(budget_of(R"(,"thinking_budget":-1)").n_tokens, -1);
  EXPECT_FALSE(budget_of(R"(,"loop_guard":false)").guards_loops);
  const ReasoningBudget unbound = budget_of(R"(,"thinking_budget":-1,"loop_guard":false)");
  EXPECT_TRUE(unbound.n_tokens < 0 && !unbound.guards_loops);
}

TEST_F(DefaultsTest, replies_that_must_say_something_are_told_to_the_engine) {
  serve(says("x"));
  const auto needs_content = [&](const std::string& path, const std::string& body) {
    post(path, body)->wait();
    return fake_.engine->last_request().budget.needs_content;
  };
  const std::string chat = "/v1/chat/completions";
  const std::string user = R"({"role":"user","content":"Hi"})";
  EXPECT_TRUE(needs_content(chat, R"({"messages":[)" + user + "]}"));
  EXPECT_TRUE(needs_content(chat, R"({"enable_thinking":false,"messages":[)" + user + "]}"));
  // A turn that goes on has said something; raw text has no reasoning.
  EXPECT_FALSE(needs_content(
      chat, R"({"messages":[)" + user + R"(,{"role":"assistant","content":"Well"}]})"));
  EXPECT_FALSE(needs_content("/v1/completions", R"({"prompt":"Hi"})"));
}

TEST_F(AdminTest, listed_origins_are_echoed_and_no_others) {
  serve(says("x"));
  const auto from = [&](const char* method, const char* origin) {
    HttpRequest http =
        request(method, "/v1/chat/completions", std::string_view(method) == "POST" ? kBody : "");
    http.headers.emplace_back("origin", origin);
    auto exchange = send(std::move(http));
    exchange->wait();
    return exchange;
  };
  const auto listed = from("POST", "https://chat.example");
  EXPECT_EQ(listed->wait().status, 200);
  EXPECT_EQ(listed->header("Access-Control-Allow-Origin"), "https://chat.example");
  EXPECT_EQ(listed->header("Access-Control-Allow-Credentials"), "");
  const auto preflight = from("OPTIONS", "https://chat.example");
  EXPECT_EQ(preflight->wait().status, 204);
  EXPECT_NE(preflight->header("Access-Control-Allow-Headers").find("authorization"),
            std::string::npos);
  EXPECT_EQ(from("OPTIONS", "https://evil.example")->header("Access-Control-Allow-Origin"), "");
  EXPECT_EQ(from("POST", "https://evil.example")->wait().status, 403);
  EXPECT_EQ(from("POST", "http://127.0.0.1:8080")->header("Access-Control-Allow-Origin"), "");
}

size_t n_events(const std::shared_ptr<FakeExchange>& exchange) {
  const std::string bytes = exchange->bytes();
  size_t n = 0;
  for (size_t at = bytes.find("data: "); at != std::string::npos; at = bytes.find("data: ", at + 1))
    ++n;
  return n;
}

// The deltas of a client that does not read go as one when it does; the sum is the same.
TEST_F(AdminTest, deltas_for_a_slow_reader_are_merged) {
  serve(says("I think.\n</think>\n\nThe answer é😀 is 12."));
  fake_.engine->hold();
  for (const Dialect dialect :
       {Dialect::kChat, Dialect::kCompletions, Dialect::kResponses, Dialect::kMessages}) {
    const auto slow = post(path_of(dialect), body_of(dialect, R"("stream":true,"seed":1)"));
    slow->set_unsent(limits::kMergeBytes + 1);
    const size_t n_before = n_events(slow);
    fake_.engine->release();
    slow->wait();
    const auto quick = post(path_of(dialect), body_of(dialect, R"("stream":true,"seed":1)"));
    quick->wait();
    EXPECT_LE(n_events(slow), n_before + 16) << path_of(dialect);
    EXPECT_GT(n_events(quick), n_events(slow)) << path_of(dialect);
    fake_.engine->hold();
  }
}

TEST_F(AdminTest, held_deltas_leave_when_the_reader_has_caught_up) {
  FakeEngineOptions endless = says("one two three ");
  endless.is_endless = true;
  endless.context_max = 1'000'000;
  endless.step = std::chrono::microseconds(100);
  serve(std::move(endless));
  const auto slow = post(path_of(Dialect::kChat),
                         body_of(Dialect::kChat, R"("stream":true,"enable_thinking":false)"));
  slow->set_unsent(limits::kMergeBytes + 1);
  slow->settle();
  const size_t n_before = slow->events().size();
  fake_.engine->wait_for_running(1);
  for (int i = 0; i < 100; ++i) slow->settle();
  EXPECT_LE(slow->events().size(), n_before + 1);
  slow->set_unsent(0);
  slow->settle();
  while (slow->events().size() < n_before + 3) slow->settle();
  slow->go();
  fake_.engine->wait_for_cancelled(1);
}

class LimitedTest : public ServiceFixture {
 protected:
  explicit LimitedTest(bool keys_share_cache = false) : ServiceFixture(options(keys_share_cache)) {}

  static ServiceOptions options(bool keys_share_cache) {
    const std::string path = testing::TempDir() + "/roost_limited_keys";
    std::ofstream(path, std::ios::trunc) << "amy:amys-long-key\nroot:roots-long-key:admin\n";
    chmod(path.c_str(), 0600);
    ServiceOptions out;
    out.keys_share_cache = keys_share_cache;
    Result<std::unique_ptr<KeyRing>> keys = KeyRing::create(path, "", system_clock());
    EXPECT_TRUE(keys);
    out.keys = std::move(keys).value();
    Result<std::map<std::string, KeyLimits>> limits = parse_key_limits({"amy:requests=2"});
    EXPECT_TRUE(limits);
    out.key_limits = *limits;
    return out;
  }
  std::shared_ptr<FakeExchange> with_key(HttpRequest http, const std::string& key) {
    http.headers.emplace_back("x-api-key", key);
    auto exchange = send(std::move(http));
    exchange->wait();
    return exchange;
  }
  // Of a request's prefixes.
  Hash128 salt_of(const std::string& key, const std::string& members = "") {
    with_key(request("POST", "/v1/completions", body_of(Dialect::kCompletions, members)), key);
    return fake_.engine->last_request().cache_salt;
  }
};

TEST_F(LimitedTest, a_key_over_its_limits_is_told_when_to_come_back) {
  serve(says("x"));
  const auto ask = [&](const char* path, const std::string& body, const char* key) {
    return with_key(request("POST", path, body), key);
  };
  const auto first = ask("/v1/chat/completions", kBody, "amys-long-key");
  EXPECT_EQ(first->wait().status, 200);
  EXPECT_EQ(first->header("x-ratelimit-limit-requests"), "2");
  EXPECT_EQ(first->header("x-ratelimit-remaining-requests"), "1");
  EXPECT_EQ(ask("/v1/messages", kBody, "amys-long-key")->wait().status, 200);
  const auto over = ask("/v1/chat/completions", kBody, "amys-long-key");
  EXPECT_EQ(over->wait().status, 429);
  EXPECT_EQ(refusal_of(over), "rate.limited");
  EXPECT_NE(over->wait().body.find("rate_limit_exceeded"), std::string::npos);
  EXPECT_GE(std::stoi(over->header("Retry-After")), 20);
  EXPECT_EQ(ask("/v1/messages", kBody, "amys-long-key")->wait().status, 429);
  EXPECT_EQ(ask("/v1/messages/count_tokens", kBody, "amys-long-key")->wait().status, 200);
  EXPECT_EQ(ask("/v1/chat/completions", kBody, "roots-long-key")->wait().status, 200);
}

TEST_F(LimitedTest, the_prefix_cache_and_the_deep_check_need_their_keys) {
  serve(says("x"));
  EXPECT_EQ(refusal_of(with_key(request("GET", "/cache"), "amys-long-key")), "auth.forbidden");
  EXPECT_EQ(with_key(request("GET", "/cache"), "amys-long-key")->wait().status, 403);
  EXPECT_EQ(refusal_of(with_key(request("POST", "/cache/flush", "{}"), "amys-long-key")),
            "auth.forbidden");
  EXPECT_EQ(fake_.engine->n_flushes(), 0);
  EXPECT_EQ(with_key(request("GET", "/cache"), "roots-long-key")->wait().status, 200);
  EXPECT_EQ(refusal_of(get("/health?deep=1")), "auth.missing");
  EXPECT_EQ(get("/health?x=1")->wait().status, 200);
  for (const char* path : {"/", "/app.js", "/app/api.js"})
    EXPECT_EQ(get(path)->wait().status, 200) << path;
}

class SharingTest : public LimitedTest {
 protected:
  SharingTest() : LimitedTest(true) {}
};

TEST_F(LimitedTest, keys_share_no_prefixes) {
  serve(says("x"));
  EXPECT_FALSE(salt_of("amys-long-key") == salt_of("roots-long-key"));
  EXPECT_EQ(salt_of("roots-long-key"), salt_of("roots-long-key"));
}

TEST_F(SharingTest, keys_share_prefixes_where_the_operator_says_so) {
  serve(says("x"));
  EXPECT_EQ(salt_of("amys-long-key"), salt_of("roots-long-key"));
  EXPECT_FALSE(salt_of("amys-long-key", R"("cache_salt":"own")") == salt_of("roots-long-key"));
}

}  // namespace
}  // namespace roost
