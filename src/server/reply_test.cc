// The reply machine over every cut of a reply's tokens.
#include "server/reply.h"

#include <gtest/gtest.h>

#include <map>

#include "tests/sim/fledgling_text.h"

namespace roost {
namespace {

struct Whole {
  std::string reasoning, content, calls;
  std::vector<int32_t> ids;   // concatenated from the pieces
  std::vector<int32_t> kept;  // as the machine counts them
  int64_t n_reasoning = 0;
  std::optional<std::string> stop;
  friend bool operator==(const Whole&, const Whole&) = default;
};

std::shared_ptr<const ToolTable> tools() {
  json::Value schema =
      std::move(json::parse(R"({"type":"object","properties":{"city":{"type":"string"}}})"))
          .value();
  return std::make_shared<ToolTable>(
      std::vector<OfferedTool>{{"get_weather", std::move(schema), false}});
}

ReplyOptions options_of(bool starts_in_reasoning, std::vector<std::string> stops = {},
                        bool has_tools = false) {
  ReplyOptions out;
  out.parser.starts_in_reasoning = starts_in_reasoning;
  out.parser.stops = std::move(stops);
  if (has_tools) out.parser.tools = tools();
  out.new_call_id = [] { return std::string("call_1"); };
  return out;
}

Whole feed(const std::vector<int32_t>& tokens, const std::vector<size_t>& cuts,
           const ReplyOptions& options) {
  ReplyMachine machine(fledgling_tokenizer(), options);
  Whole out;
  const auto take = [&](const ReplyPiece& piece) {
    for (const ReplyEvent& event : piece.events) {
      if (event.kind == ReplyEvent::Kind::kReasoning)
        out.reasoning += event.text;
      else if (event.kind == ReplyEvent::Kind::kContent)
        out.content += event.text;
      else
        out.calls += event.text + (event.kind == ReplyEvent::Kind::kCallStart ? "(" : "");
    }
    for (const ReplyToken& token : piece.tokens) out.ids.push_back(token.id);
  };
  size_t done = 0;
  for (const size_t cut : cuts) {
    take(machine.push(std::span(tokens).subspan(done, cut - done)));
    done = cut;
  }
  take(machine.push(std::span(tokens).subspan(done)));
  take(machine.finish(false));
  EXPECT_EQ(out.reasoning, machine.reasoning());
  EXPECT_EQ(out.content, machine.content());
  for (int i = 0; i < machine.n_calls(); ++i) EXPECT_EQ(machine.call(i).call_id, "call_1");
  out.kept = machine.token_ids();
  out.n_reasoning = machine.n_reasoning_tokens();
  out.stop = machine.matched_stop();
  return out;
}

std::vector<int32_t> tokens_of(const std::string& text) {
  return fledgling_tokenizer().encode(text);
}

const std::string kCall =
    "<tool_call>\n<function=get_weather>\n<parameter=city>\nOslo 日\n</parameter>\n</function>\n"
    "</tool_call>";

TEST(Reply, every_cut_of_the_tokens_gives_the_same_reply) {
  const std::string texts[] = {
      "I count.\nOne, two.\n</think>\n\nThe answer is 12. END of it",
      "</think>\n\n",
      "no end of the thought",
      "emoji \xF0\x9F\x98\x80 and 日本 in thought</think>\xF0\x9F\x98\x80 in content </think> too",
      "why\n</think>\n\nI look. " + kCall,
      "thought " + kCall,
  };
  const std::vector<std::string> stops[] = {{}, {"END"}, {" is", "12. E"}, {"\n"}};
  for (const std::string& text : texts) {
    const std::vector<int32_t> tokens = tokens_of(text);
    for (const std::vector<std::string>& stop : stops) {
      for (const bool starts_in_reasoning : {true, false}) {
        const ReplyOptions options = options_of(starts_in_reasoning, stop, true);
        const Whole want = feed(tokens, {}, options);
        EXPECT_EQ(want.ids, want.kept);
        for (size_t a = 0; a <= tokens.size(); ++a) {
          for (size_t b = a; b <= tokens.size(); b += 3)
            ASSERT_EQ(feed(tokens, {a, b}, options), want) << text << " " << a << " " << b;
        }
        std::vector<size_t> singles;
        for (size_t i = 1; i < tokens.size(); ++i) singles.push_back(i);
        ASSERT_EQ(feed(tokens, singles, options), want) << text;
      }
    }
  }
}

TEST(Reply, reasoning_ends_at_its_marker_and_is_counted_with_it) {
  const std::vector<int32_t> thought = tokens_of("I think so.\n</think>");
  const std::vector<int32_t> tokens = tokens_of("I think so.\n</think>\n\nYes.");
  const Whole whole = feed(tokens, {}, options_of(true));
  EXPECT_EQ(whole.reasoning, "I think so.");
  EXPECT_EQ(whole.content, "Yes.");
  EXPECT_EQ(whole.n_reasoning, static_cast<int64_t>(thought.size()));
  EXPECT_EQ(whole.kept.size(), tokens.size());
}

TEST(Reply, every_token_belongs_to_one_part) {
  const std::vector<int32_t> thought = tokens_of("why\n</think>");
  const std::vector<int32_t> tokens = tokens_of("why\n</think>\n\nI look. " + kCall);
  ReplyMachine machine(fledgling_tokenizer(), options_of(true, {}, true));
  std::vector<TokenLogprobs> logprobs(tokens.size());
  for (size_t i = 0; i < tokens.size(); ++i) logprobs[i].logprob = -static_cast<float>(i);
  machine.push(tokens, logprobs);
  machine.finish(false);
  ASSERT_EQ(machine.tokens().size(), tokens.size());
  std::map<TokenKind, int64_t> n_of_kind;
  for (size_t i = 0; i < tokens.size(); ++i) {
    const ReplyToken& token = machine.tokens()[i];
    EXPECT_EQ(token.id, tokens[i]);
    ASSERT_TRUE(token.logprobs);
    EXPECT_EQ(token.logprobs->logprob, -static_cast<float>(i));
    ++n_of_kind[token.kind];
  }
  EXPECT_EQ(n_of_kind[TokenKind::kReasoning], static_cast<int64_t>(thought.size()));
  EXPECT_GE(n_of_kind[TokenKind::kCall], static_cast<int64_t>(tokens_of(kCall).size()) - 1);
  EXPECT_GE(n_of_kind[TokenKind::kContent], 2);
}

TEST(Reply, nothing_behind_a_stop_string_is_shown_or_counted) {
  const std::vector<int32_t> tokens = tokens_of("one two three four");
  const Whole whole = feed(tokens, {}, options_of(false, {"three"}));
  EXPECT_EQ(whole.content, "one two ");
  EXPECT_EQ(whole.stop, "three");
  EXPECT_LT(whole.kept.size(), tokens.size());
  ReplyOptions keeps = options_of(false, {"three"});
  keeps.parser.keeps_stop_text = true;
  EXPECT_EQ(feed(tokens, {}, keeps).content, "one two three");
}

TEST(Reply, stop_strings_count_from_the_least_length_on) {
  const std::vector<int32_t> tokens = tokens_of("one two one two one two");
  ReplyOptions options = options_of(false, {"one"});
  options.min_tokens = static_cast<int64_t>(tokens_of("one two").size()) + 1;
  const Whole whole = feed(tokens, {}, options);
  EXPECT_TRUE(whole.content.starts_with("one two")) << whole.content;
  EXPECT_EQ(whole.stop, "one");
  EXPECT_LT(whole.kept.size(), tokens.size());
}

TEST(Reply, stop_strings_are_not_looked_for_in_reasoning) {
  const Whole whole =
      feed(tokens_of("stop here</think>go stop now"), {}, options_of(true, {"stop"}));
  EXPECT_EQ(whole.reasoning, "stop here");
  EXPECT_EQ(whole.content, "go ");
}

TEST(Reply, half_a_character_at_the_end_is_no_text) {
  const std::vector<int32_t> tokens = tokens_of("ok \xF0\x9F\x98\x80");
  for (size_t n = 1; n <= tokens.size(); ++n) {
    const std::vector<int32_t> part(tokens.begin(), tokens.begin() + static_cast<ptrdiff_t>(n));
    const Whole whole = feed(part, {}, options_of(false));
    EXPECT_EQ(whole.content.find("\xEF\xBF\xBD"), std::string::npos) << n;
    EXPECT_EQ(whole.kept.size(), n);
  }
}

TEST(Reply, special_tokens_are_kept_and_not_shown) {
  std::vector<int32_t> tokens = tokens_of("before");
  tokens.push_back(*fledgling_tokenizer().find_added("<|im_start|>"));
  const std::vector<int32_t> after = tokens_of(" after");
  tokens.insert(tokens.end(), after.begin(), after.end());
  const Whole whole = feed(tokens, {}, options_of(false));
  EXPECT_EQ(whole.content, "before after");
  EXPECT_EQ(whole.kept, tokens);
  ReplyOptions shown = options_of(false);
  shown.shows_special_tokens = true;
  EXPECT_EQ(feed(tokens, {}, shown).content, "before<|im_start|> after");
}

}  // namespace
}  // namespace roost
