// One reply told by every dialect, streamed and whole: what a client puts together from the events
// is what the whole body says.
#include <gtest/gtest.h>

#include "base/hash.h"
#include "tests/sim/dialects.h"
#include "tests/sim/service_fixture.h"

namespace roost {
namespace {

const std::string kSchema =
    R"({"type":"object","properties":{"city":{"type":"string"},"days":{"type":"integer"}},"required":["city"]})";

struct Cell {
  Dialect dialect;
  bool is_stream;
};

// The cells of the behaviour matrix: dialect and stream.
class Behaviour : public ServiceFixture, public testing::WithParamInterface<Cell> {
 protected:
  Dialect dialect() const { return GetParam().dialect; }
  bool is_raw() const { return dialect() == Dialect::kCompletions; }

  std::shared_ptr<FakeExchange> ask(const std::string& members, bool is_stream) {
    std::string all = members;
    if (is_stream) {
      all += (all.empty() ? "" : ",") + std::string(R"("stream":true)");
      if (dialect() == Dialect::kChat || is_raw())
        all += R"(,"stream_options":{"include_usage":true})";
    }
    return post(path_of(dialect()), body_of(dialect(), all));
  }

  ToldReply told(const std::string& members, bool is_stream) {
    const auto exchange = ask(members, is_stream);
    const HttpResponse& response = exchange->wait();
    EXPECT_EQ(response.status, 200) << response.body;
    if (is_stream) return told_stream(dialect(), exchange->bytes());
    return told_whole(dialect(), response.body);
  }

  // The reply of this cell, which is also that of the other one: the sum of the deltas.
  ToldReply told(const std::string& members) {
    ToldReply mine = told(members, GetParam().is_stream);
    EXPECT_EQ(mine, told(members, !GetParam().is_stream)) << members;
    return mine;
  }

  std::string thinking() const { return R"("enable_thinking":true)"; }
  std::string tools() const {
    return R"("tools":[)" + tool_of(dialect(), "get_weather", kSchema) + "]";
  }
  // Raw text has no parts, so the rows about parts are not for it.
  bool has_parts() const { return !is_raw(); }
  std::string ended() const {
    return dialect() == Dialect::kResponses  ? "completed"
           : dialect() == Dialect::kMessages ? "end_turn"
                                             : "stop";
  }
  std::string cut() const {
    return dialect() == Dialect::kResponses  ? "incomplete"
           : dialect() == Dialect::kMessages ? "max_tokens"
                                             : "length";
  }
  std::string called() const {
    return dialect() == Dialect::kResponses  ? "completed"
           : dialect() == Dialect::kMessages ? "tool_use"
                                             : "tool_calls";
  }
};

std::string cell_name(const testing::TestParamInfo<Cell>& info) {
  return std::string(name_of(info.param.dialect)) + (info.param.is_stream ? "_stream" : "_whole");
}

std::vector<Cell> cells() {
  std::vector<Cell> out;
  for (const Dialect dialect :
       {Dialect::kChat, Dialect::kCompletions, Dialect::kResponses, Dialect::kMessages})
    for (const bool is_stream : {false, true}) out.push_back({dialect, is_stream});
  return out;
}

INSTANTIATE_TEST_SUITE_P(All, Behaviour, testing::ValuesIn(cells()), cell_name);

// What raw text, as of Completions, does not have: reasoning and calls.
class BehaviourOfParts : public Behaviour {};

std::vector<Cell> cells_of_parts() {
  std::vector<Cell> out = cells();
  std::erase_if(out, [](const Cell& cell) { return cell.dialect == Dialect::kCompletions; });
  return out;
}

INSTANTIATE_TEST_SUITE_P(All, BehaviourOfParts, testing::ValuesIn(cells_of_parts()), cell_name);

const std::string kCall =
    "<tool_call>\n<function=get_weather>\n<parameter=city>\nOslo\n</parameter>\n"
    "<parameter=days>\n3\n</parameter>\n</function>\n</tool_call>";
const std::string kOtherCall =
    "<tool_call>\n<function=get_weather>\n<parameter=city>\nRio \"de\"\n\n</parameter>\n"
    "</function>\n</tool_call>";

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

TEST_P(BehaviourOfParts, S36_two_calls_in_one_reply) {
  serve(says("why\n</think>\n\nI look.\n\n" + kCall + "\n" + kOtherCall));
  const ToldReply reply = told(thinking() + "," + tools());
  EXPECT_EQ(reply.reasoning, "why");
  EXPECT_EQ(reply.content, "I look.");
  EXPECT_EQ(reply.calls, (std::vector<std::string>{R"(get_weather {"city":"Oslo","days":3})",
                                                   R"(get_weather {"city":"Rio \"de\"\n"})"}));
  EXPECT_EQ(reply.finish, called());
}

TEST_P(BehaviourOfParts, S36_no_parallel_calls_end_the_reply_after_the_first) {
  serve(says(kCall + "\n" + kOtherCall));
  const std::string one = dialect() == Dialect::kMessages
                              ? R"("tool_choice":{"type":"auto","disable_parallel_tool_use":true})"
                              : R"("parallel_tool_calls":false)";
  const ToldReply reply = told(R"("enable_thinking":false,)" + tools() + "," + one);
  EXPECT_EQ(reply.calls.size(), 1u);
  EXPECT_EQ(reply.finish, called());
}

TEST_P(BehaviourOfParts, S37_with_the_choice_none_no_call_is_found) {
  serve(says(kCall));
  const std::string none = dialect() == Dialect::kMessages ? R"("tool_choice":{"type":"none"})"
                                                           : R"("tool_choice":"none")";
  const ToldReply reply = told(R"("enable_thinking":false,)" + tools() + "," + none);
  EXPECT_EQ(reply.content, kCall);
  EXPECT_TRUE(reply.calls.empty());
  EXPECT_EQ(reply.finish, ended());
}

TEST_P(BehaviourOfParts, S37_names_that_are_not_offered_are_refused) {
  serve(says("x"));
  const std::string named =
      dialect() == Dialect::kMessages ? R"("tool_choice":{"type":"tool","name":"other"})"
      : dialect() == Dialect::kResponses
          ? R"("tool_choice":{"type":"function","name":"other"})"
          : R"("tool_choice":{"type":"function","function":{"name":"other"}})";
  EXPECT_EQ(refusal_of(ask(tools() + "," + named, GetParam().is_stream)), "request.unknown_tool");
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

TEST_P(BehaviourOfParts, S36_a_call_that_is_cut_leaves_arguments_that_parse) {
  const std::string begin = "<tool_call>\n<function=get_weather>\n<parameter=city>\nOs";
  serve(says(kCall));
  const auto n = static_cast<int>(fledgling_tokenizer().encode(begin).size());
  const ToldReply reply =
      told(R"("enable_thinking":false,)" + tools() + "," + max_tokens_member(dialect(), n));
  ASSERT_EQ(reply.calls.size(), 1u);
  EXPECT_TRUE(json::parse(reply.calls[0].substr(12))) << reply.calls[0];
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

}  // namespace
}  // namespace roost
