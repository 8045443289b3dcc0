// One reply told by every dialect, streamed and whole: what a client puts together from the events
// is what the whole body says.
#include <gtest/gtest.h>

#include <algorithm>

#include "base/hash.h"
#include "tests/sim/behaviour_fixture.h"

namespace roost {
namespace {

class Behaviour : public BehaviourFixture {};

INSTANTIATE_TEST_SUITE_P(All, Behaviour, testing::ValuesIn(cells()), cell_name);

class BehaviourOfParts : public BehaviourFixture {};

INSTANTIATE_TEST_SUITE_P(All, BehaviourOfParts, testing::ValuesIn(cells_of_parts()), cell_name);

TEST_P(Behaviour, S33_reasoning_and_content_without_a_call) {
  const std::string text = "I think.\n</think>\n\nIt is é😀 12.";
  serve(says(text));
  const ToldReply reply =
      told(has_parts() ? thinking() + "," + tools() : max_tokens_member(dialect(), 100));
  EXPECT_EQ(reply.reasoning, has_parts() ? "I think." : "");
  EXPECT_EQ(reply.content, has_parts() ? "It is é😀 12." : text);
  EXPECT_EQ(reply.finish, ended());
  EXPECT_EQ(reply.n_reply, static_cast<int64_t>(fledgling_tokenizer().encode(text).size()));
  EXPECT_EQ(reply.token_sha256, token_sha256(fledgling_tokenizer().encode(text)));
  EXPECT_EQ(reply.n_prompt, static_cast<int64_t>(fake_.engine->last_request().prompt.size()));
}

TEST_P(Behaviour, S45_a_schema_binds_the_reply_behind_its_reasoning) {
  serve(says(R"({"a": 1})"));
  const std::string form =
      schema_member(dialect(), R"({"type":"object","required":["a"],"properties":{"a":{}}})");
  const std::string off = has_parts() ? R"("enable_thinking":false,)" : "";
  EXPECT_EQ(told(off + form).content, R"({"a": 1})");
  EXPECT_TRUE(allows(R"({"a": 1})"));
  EXPECT_FALSE(allows(R"({"b": 1})"));
  if (!has_parts()) return;
  ask(thinking() + "," + form, GetParam().is_stream)->wait();
  EXPECT_TRUE(allows("any thought\n</think>\n\n{\"a\": 1}"));
  EXPECT_FALSE(allows("any thought"));
  EXPECT_FALSE(allows(R"({"a": 1})"));
}

TEST_P(Behaviour, S44_what_cannot_be_enforced_is_refused_with_its_place) {
  serve(says("x"));
  EXPECT_EQ(refusal_of(ask(schema_member(dialect(), R"({"properties":{"a":{"not":{}}}})"),
                           GetParam().is_stream)),
            "schema.unsupported_keyword");
  EXPECT_NE(exchanges_.back()->wait().body.find("#/properties/a/not"), std::string::npos);
  const std::string lookahead = R"s({"pattern":"(?=a)"})s";
  EXPECT_EQ(refusal_of(ask(schema_member(dialect(), lookahead), GetParam().is_stream)),
            "regex.unsupported");
  EXPECT_EQ(refusal_of(ask(schema_member(dialect(), "false"), GetParam().is_stream)),
            "schema.unsatisfiable");
  if (is_raw()) return;  // it has one field for forms
  const std::string two = R"(,"structured_outputs":{"json_object":true})";
  EXPECT_EQ(refusal_of(ask(schema_member(dialect(), "{}") + two, GetParam().is_stream)),
            "request.field_conflict");
}

TEST_P(Behaviour, S38_without_thinking_all_text_is_content) {
  serve(says("plain text"));
  const ToldReply reply = told(has_parts() ? R"("enable_thinking":false)" : "");
  EXPECT_EQ(reply.content, "plain text");
  EXPECT_EQ(reply.reasoning, "");
}

TEST_P(BehaviourOfParts, S39_a_reply_cut_in_reasoning_is_all_reasoning) {
  serve(says("I think about this for a long while"));
  const ToldReply reply = told(thinking() + "," + max_tokens_member(dialect(), 4));
  EXPECT_EQ(reply.content, "");
  EXPECT_NE(reply.reasoning, "");
  EXPECT_EQ(reply.n_reply, 4);
  EXPECT_EQ(reply.finish, cut());
}

TEST_P(Behaviour, S42_a_stop_string_that_never_occurs_changes_nothing) {
  serve(says("one two three"));
  const std::string off = has_parts() ? R"("enable_thinking":false)" : R"("top_k":0)";
  const ToldReply plain = told(off);
  EXPECT_EQ(told(off + "," + stop_member(dialect(), "xxxxxxxxxxxxxxxxxxxx")), plain);
  const ToldReply stopped = told(off + "," + stop_member(dialect(), "two"));
  EXPECT_EQ(stopped.content, "one ");
  EXPECT_EQ(stopped.finish, dialect() == Dialect::kMessages ? "stop_sequence" : ended());
}

TEST_P(Behaviour, S41_no_half_character_is_ever_shown) {
  const std::string text = "😀日🎉é本😀";
  const auto n_all = static_cast<int>(fledgling_tokenizer().encode(text).size());
  serve(says(text));
  for (int n = 1; n <= n_all; ++n) {
    const std::string off = has_parts() ? R"("enable_thinking":false,)" : "";
    const ToldReply reply = told(off + max_tokens_member(dialect(), n));
    EXPECT_EQ(reply.content.find("\xEF\xBF\xBD"), std::string::npos) << n;
    EXPECT_TRUE(text.starts_with(reply.content)) << n;
  }
}

TEST_P(Behaviour, S63_a_prompt_too_long_is_refused_in_the_fixed_words) {
  FakeEngineOptions options = says("x");
  options.context_max = 1;
  serve(std::move(options));
  const auto exchange = ask("", GetParam().is_stream);
  EXPECT_EQ(exchange->wait().status, 400);
  EXPECT_NE(exchange->wait().body.find(" maximum; this model's maximum context length is 1 tokens"),
            std::string::npos);
  EXPECT_EQ(refusal_of(exchange), "request.too_long");
}

TEST_P(Behaviour, S70_a_failure_after_the_first_byte_is_an_error_event_and_no_end) {
  FakeEngineOptions options = says("one two three");
  options.fails_with = Error{Refusal::EngineNonfinite, "position 5"};
  serve(std::move(options));
  const auto exchange = ask("", GetParam().is_stream);
  const HttpResponse& response = exchange->wait();
  if (!GetParam().is_stream) {
    EXPECT_EQ(response.status, 500);
    EXPECT_EQ(refusal_of(exchange), "engine.nonfinite");
    return;
  }
  EXPECT_FALSE(exchange->keeps_connection());
  const std::string bytes = exchange->bytes();
  EXPECT_NE(bytes.find("engine.nonfinite"), std::string::npos);
  for (const char* mark : {"[DONE]", "message_stop", "response.completed", "\"stop\""})
    EXPECT_EQ(bytes.find(mark), std::string::npos) << mark;
}

TEST_P(Behaviour, S65_a_client_that_goes_cancels_its_request) {
  serve(says("x"));
  fake_.engine->hold();
  const auto exchange = ask("", GetParam().is_stream);
  exchange->go();
  fake_.engine->wait_for_cancelled(1);
}

TEST_P(Behaviour, S61_nesting_without_end_is_refused) {
  serve(says("x"));
  const std::string deep = std::string(100'000, '[') + std::string(100'000, ']');
  EXPECT_EQ(refusal_of(ask("\"metadata\":" + deep, GetParam().is_stream)), "json.too_deep");
  EXPECT_EQ(told("").content.empty(), has_parts() && dialect() != Dialect::kMessages);
}

TEST_P(Behaviour, S50_a_seed_comes_back_and_seeds_differ_when_absent) {
  serve(says("x"));
  ask(R"("seed":7)", GetParam().is_stream)->wait();
  EXPECT_EQ(fake_.engine->last_request().sampling.seed, 7u);
  ask("", GetParam().is_stream)->wait();
  const uint64_t first = fake_.engine->last_request().sampling.seed;
  ask("", GetParam().is_stream)->wait();
  EXPECT_NE(fake_.engine->last_request().sampling.seed, first);
}

TEST_P(Behaviour, S53_penalties_and_biases_reach_the_engine) {
  serve(says("x"));
  ask(R"("frequency_penalty":2,"presence_penalty":1.5,"repetition_penalty":1.3,"min_tokens":5,
         "logit_bias":{"7":-100})",
      GetParam().is_stream)
      ->wait();
  const LogitAdjust adjust = fake_.engine->last_request().adjust;
  EXPECT_EQ(adjust.frequency, 2);
  EXPECT_EQ(adjust.presence, 1.5);
  EXPECT_EQ(adjust.repetition, 1.3);
  EXPECT_EQ(adjust.min_tokens, 5);
  EXPECT_EQ(adjust.bias, (std::vector<std::pair<int32_t, double>>{{7, kNeverBias}}));
}

TEST_P(BehaviourOfParts, S40_a_budget_of_reasoning_reaches_the_engine_in_every_spelling) {
  serve(says("x"));
  ask(R"("loop_guard":true,"enable_thinking":true)", GetParam().is_stream)->wait();
  EXPECT_TRUE(fake_.engine->last_request().budget.guards_loops);
  EXPECT_EQ(fake_.engine->last_request().budget.n_tokens, -1);
  for (const char* spelling :
       {R"("thinking_budget":64)", R"("reasoning_budget":64)", R"("thinking_token_budget":64)",
        R"("thinking":{"type":"enabled","budget_tokens":64})"}) {
    ask(spelling, GetParam().is_stream)->wait();
    const ReasoningBudget budget = fake_.engine->last_request().budget;
    EXPECT_EQ(budget.n_tokens, 64) << spelling;
    EXPECT_TRUE(budget.starts_in_reasoning) << spelling;
    EXPECT_EQ(budget.closing, fledgling_tokenizer().encode("\n</think>\n\n"));
  }
}

TEST_P(Behaviour, S43_the_first_event_leaves_before_the_prompt_is_run) {
  serve(says("x"));
  fake_.engine->hold();
  const auto exchange = ask("", GetParam().is_stream);
  // Messages tells first how much of its prompt was cached, so it has nothing but pings until then.
  const bool waits = dialect() == Dialect::kMessages || !GetParam().is_stream;
  EXPECT_EQ(exchange->bytes().empty(), waits);
  if (GetParam().is_stream) {
    EXPECT_NE(exchange->idle().find(dialect() == Dialect::kMessages ? "ping" : "data: "),
              std::string::npos);
  }
  fake_.engine->release();
  EXPECT_EQ(exchange->wait().status, 200);
}

TEST_P(Behaviour, S52_every_kept_token_is_told_once_with_its_logprob) {
  serve(says("one two é😀 three"));
  if (dialect() == Dialect::kMessages) {
    EXPECT_EQ(refusal_of(ask(R"("logprobs":true)", GetParam().is_stream)),
              "request.unsupported_field");
    return;
  }
  const std::string wanted =
      dialect() == Dialect::kChat ? R"("logprobs":true,"top_logprobs":2,"enable_thinking":false)"
      : is_raw()
          ? R"("logprobs":2,"max_tokens":100)"
          : R"("include":["message.output_text.logprobs"],"top_logprobs":2,"enable_thinking":false)";
  const auto exchange = ask(wanted, GetParam().is_stream);
  exchange->wait();
  // The n-th token of this engine has the logprob -n.
  const std::string bytes = exchange->bytes().empty() ? exchange->wait().body : exchange->bytes();
  const size_t n = fledgling_tokenizer().encode("one two é😀 three").size();
  for (size_t i = 1; i <= n; ++i) {
    const std::string value =
        is_raw() ? "-" + std::to_string(i) : R"("logprob":-)" + std::to_string(i);
    EXPECT_NE(bytes.find(value), std::string::npos) << value << " in " << bytes;
  }
}

TEST_P(Behaviour, S43_events_tell_how_far_the_prompt_is_and_the_times_so_far_when_asked) {
  FakeEngineOptions options = says("one two three");
  options.n_cached = 2;
  serve(std::move(options));
  const auto exchange =
      ask(R"("return_progress":true,"timings_per_token":true)", GetParam().is_stream);
  exchange->wait();
  if (!GetParam().is_stream) return;
  std::vector<json::Value> progress;
  std::vector<int64_t> n_predicted;
  for (const json::Value& event : stream_events(exchange->bytes())) {
    if (const json::Value* one = event.find("prompt_progress")) progress.push_back(*one);
    if (const json::Value* timings = event.find("timings"))
      n_predicted.push_back(told::count_at(timings, "predicted_n"));
  }
  // The prompt comes in two chunks at once, and no more is told than four times a second.
  const auto n_prompt = static_cast<int64_t>(fake_.engine->last_request().prompt.size());
  ASSERT_EQ(progress.size(), 1u);
  EXPECT_EQ(told::count_at(&progress[0], "total"), n_prompt);
  EXPECT_EQ(told::count_at(&progress[0], "cache"), 2);
  EXPECT_EQ(told::count_at(&progress[0], "processed"), (n_prompt + 2) / 2);
  EXPECT_GE(progress[0].find("time_ms")->as_double(), 0);
  // Times of each piece, and those of the whole at the end.
  ASSERT_GE(n_predicted.size(), 2u);
  EXPECT_EQ(n_predicted.front(), 1);
  EXPECT_TRUE(std::is_sorted(n_predicted.begin(), n_predicted.end()));
  EXPECT_EQ(n_predicted.back(),
            static_cast<int64_t>(fledgling_tokenizer().encode("one two three").size()));
}

TEST_P(Behaviour, S68_a_full_queue_says_when_to_come_again) {
  FakeEngineOptions options = says("x");
  options.queue_max = 0;
  serve(std::move(options));
  const auto exchange = ask("", GetParam().is_stream);
  EXPECT_EQ(exchange->wait().status, 429);
  EXPECT_EQ(refusal_of(exchange), "queue.full");
  EXPECT_GE(std::stoi(exchange->header("Retry-After")), 1);
}

}  // namespace
}  // namespace roost
