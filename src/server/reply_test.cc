// The reply machine over every cut of a reply's tokens.
#include "server/reply.h"

#include <gtest/gtest.h>

#include "tests/sim/fledgling_text.h"

namespace roost {
namespace {

struct Whole {
  std::string reasoning, content;
  std::vector<int32_t> ids;   // concatenated from the pieces
  std::vector<int32_t> kept;  // as the machine counts them
  int64_t n_reasoning = 0;
  std::optional<std::string> stop;
  friend bool operator==(const Whole&, const Whole&) = default;
};

Whole feed(const std::vector<int32_t>& tokens, const std::vector<size_t>& cuts,
           const ReplyOptions& options) {
  ReplyMachine machine(fledgling_tokenizer(), options);
  Whole out;
  const auto take = [&](const ReplyPiece& piece) {
    out.reasoning += piece.reasoning;
    out.content += piece.content;
    out.ids.insert(out.ids.end(), piece.token_ids.begin(), piece.token_ids.end());
  };
  size_t done = 0;
  for (size_t cut : cuts) {
    take(machine.push(std::span(tokens).subspan(done, cut - done)));
    done = cut;
  }
  take(machine.push(std::span(tokens).subspan(done)));
  take(machine.finish());
  EXPECT_EQ(out.reasoning, machine.reasoning());
  EXPECT_EQ(out.content, machine.content());
  out.kept = machine.token_ids();
  out.n_reasoning = machine.n_reasoning_tokens();
  out.stop = machine.matched_stop();
  return out;
}

std::vector<int32_t> tokens_of(const std::string& text) {
  return fledgling_tokenizer().encode(text);
}

TEST(Reply, every_cut_of_the_tokens_gives_the_same_reply) {
  const std::string texts[] = {
      "I count.\nOne, two.\n</think>\n\nThe answer is 12. END of it",
      "</think>\n\n",
      "no end of the thought",
      "emoji \xF0\x9F\x98\x80 and 日本 in thought</think>\xF0\x9F\x98\x80 in content </think> too",
  };
  const std::vector<std::string> stops[] = {{}, {"END"}, {" is", "12. E"}, {"\n"}};
  for (const std::string& text : texts) {
    const std::vector<int32_t> tokens = tokens_of(text);
    for (const std::vector<std::string>& stop : stops) {
      for (const bool starts_in_reasoning : {true, false}) {
        const ReplyOptions options{starts_in_reasoning, stop, false};
        const Whole want = feed(tokens, {}, options);
        EXPECT_EQ(want.ids, want.kept);
        for (size_t a = 0; a <= tokens.size(); ++a) {
          for (size_t b = a; b <= tokens.size(); ++b)
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
  const Whole whole = feed(tokens, {}, {true, {}, false});
  EXPECT_EQ(whole.reasoning, "I think so.");
  EXPECT_EQ(whole.content, "Yes.");
  EXPECT_EQ(whole.n_reasoning, static_cast<int64_t>(thought.size()));
  EXPECT_EQ(whole.kept.size(), tokens.size());
}

TEST(Reply, nothing_behind_a_stop_string_is_shown_or_counted) {
  const std::vector<int32_t> tokens = tokens_of("one two three four");
  const Whole whole = feed(tokens, {}, {false, {"three"}, false});
  EXPECT_EQ(whole.content, "one two ");
  EXPECT_EQ(whole.stop, "three");
  EXPECT_LT(whole.kept.size(), tokens.size());
  EXPECT_EQ(feed(tokens, {}, {false, {"three"}, true}).content, "one two three");
}

TEST(Reply, stop_strings_are_not_looked_for_in_reasoning) {
  const Whole whole = feed(tokens_of("stop here</think>go stop now"), {}, {true, {"stop"}, false});
  EXPECT_EQ(whole.reasoning, "stop here");
  EXPECT_EQ(whole.content, "go ");
}

TEST(Reply, half_a_character_at_the_end_is_no_text) {
  const std::vector<int32_t> tokens = tokens_of("ok \xF0\x9F\x98\x80");
  for (size_t n = 1; n <= tokens.size(); ++n) {
    const std::vector<int32_t> part(tokens.begin(), tokens.begin() + static_cast<ptrdiff_t>(n));
    const Whole whole = feed(part, {}, {false, {}, false});
    EXPECT_EQ(whole.content.find("\xEF\xBF\xBD"), std::string::npos) << n;
    EXPECT_EQ(whole.kept.size(), n);
  }
}

TEST(Reply, special_tokens_are_kept_and_not_shown) {
  std::vector<int32_t> tokens = tokens_of("before");
  tokens.push_back(*fledgling_tokenizer().find_added("<|im_start|>"));
  const std::vector<int32_t> after = tokens_of(" after");
  tokens.insert(tokens.end(), after.begin(), after.end());
  const Whole whole = feed(tokens, {}, {false, {}, false});
  EXPECT_EQ(whole.content, "before after");
  EXPECT_EQ(whole.kept, tokens);
}

}  // namespace
}  // namespace roost
