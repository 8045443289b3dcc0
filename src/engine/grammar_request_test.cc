// Requests whose replies follow a grammar, on the bundled model.
#include <gtest/gtest.h>

#include <future>

#include "engine/engine.h"
#include "grammar/text_grammar.h"
#include "tests/model_run.h"

namespace roost {
namespace {

struct Answer {
  std::string text;
  std::vector<int32_t> tokens;
  EngineEvent end;
};

class GrammarRequest : public ::testing::Test {
 protected:
  static constexpr int64_t kTokens = 3071;

  static void SetUpTestSuite() {
    EngineOptions options;
    options.context_max = 512;
    options.streams_max = 8;
    options.chunk_rows_max = 64;
    options.n_tokens = kTokens;
    const auto weights = testing::load_model(ROOST_SOURCE_DIR "/models/fledgling");
    engine_ = Engine::create(weights, options, system_clock()).value();
    // Any bytes do: the engine knows no text.
    std::vector<std::string> bytes;
    for (int64_t id = 0; id < kTokens; ++id)
      bytes.emplace_back(static_cast<size_t>(1 + id % 3), static_cast<char>('a' + id % 26));
    vocabulary_ = std::make_shared<const TokenVocabulary>(std::move(bytes));
  }
  static void TearDownTestSuite() {
    engine_.reset();
    vocabulary_.reset();
  }

  static EngineRequest request(double temperature, uint64_t seed) {
    EngineRequest out;
    out.prompt = {5, 900, 17, 44, 2000};
    out.new_tokens_max = 60;
    out.sampling = {.temperature = temperature, .seed = seed};
    return out;
  }

  static EngineRequest bound(const char* pattern, double temperature, uint64_t seed) {
    EngineRequest out = request(temperature, seed);
    out.grammar.grammar =
        std::make_shared<const Grammar>(compile_regex_grammar(pattern).value(), vocabulary_);
    return out;
  }

  static std::future<Answer> submit(const EngineRequest& request) {
    auto answer = std::make_shared<Answer>();
    auto done = std::make_shared<std::promise<Answer>>();
    const auto sink = [answer, done](const EngineEvent& event) {
      for (const int32_t token : event.tokens) {
        answer->tokens.push_back(token);
        answer->text += vocabulary_->bytes_of(token);
      }
      if (event.kind != EngineEvent::Kind::kFinished) return;
      answer->end = event;
      done->set_value(*answer);
    };
    EXPECT_TRUE(engine_->submit(request, sink));
    return done->get_future();
  }

  static std::unique_ptr<Engine> engine_;
  static std::shared_ptr<const TokenVocabulary> vocabulary_;
};

std::unique_ptr<Engine> GrammarRequest::engine_;
std::shared_ptr<const TokenVocabulary> GrammarRequest::vocabulary_;

TEST_F(GrammarRequest, a_reply_is_a_whole_of_its_grammar_and_then_ends) {
  for (uint64_t seed = 0; seed < 12; ++seed) {
    const double temperature = seed % 3 == 0 ? 0 : static_cast<double>(seed) / 2;
    const Answer answer = submit(bound("abb|c{3}d|(ef){2}", temperature, seed)).get();
    EXPECT_TRUE(answer.text == "abb" || answer.text == "cccd" || answer.text == "efef")
        << answer.text;
    EXPECT_EQ(answer.end.finish, Finish::kEndToken);
  }
}

TEST_F(GrammarRequest, what_is_cut_is_a_beginning_of_its_grammar) {
  EngineRequest request = bound("(ab){100}", 1, 4);
  request.new_tokens_max = 9;
  const Answer answer = submit(request).get();
  EXPECT_EQ(answer.end.finish, Finish::kLength);
  EXPECT_EQ(answer.text.substr(0, 8), "abababab");
}

TEST_F(GrammarRequest, a_complete_form_ends_also_where_end_tokens_are_ignored) {
  EngineRequest request = bound("xyz", 1, 4);
  request.ignore_end_tokens = true;
  const Answer answer = submit(request).get();
  EXPECT_EQ(answer.text, "xyz");
  EXPECT_EQ(answer.end.finish, Finish::kEndToken);
}

TEST_F(GrammarRequest, a_form_that_can_go_on_has_its_least_length_and_no_other_is_kept_open) {
  for (uint64_t seed = 0; seed < 4; ++seed) {
    EngineRequest open = bound("[a-z]{1,90}", 1, seed);
    open.adjust.min_tokens = 20;
    const Answer longer = submit(open).get();
    EXPECT_GE(longer.tokens.size(), 20u);
    EXPECT_EQ(longer.end.finish, Finish::kEndToken);
    EngineRequest whole = bound("xyz", 1, seed);
    whole.adjust.min_tokens = 20;
    const Answer shorter = submit(whole).get();
    EXPECT_EQ(shorter.text, "xyz");
    EXPECT_EQ(shorter.end.finish, Finish::kEndToken);
  }
}

TEST_F(GrammarRequest, an_end_that_the_form_needs_comes_before_the_least_length) {
  EngineRequest request = bound("x", 1, 4);
  request.adjust.min_tokens = 5;
  for (int32_t id = 0; id < kTokens; ++id)
    if (vocabulary_->bytes_of(id) == "x") request.stop_tokens.push_back(id);
  request.stop_tokens.push_back(-1);  // never drawn
  const Answer answer = submit(request).get();
  EXPECT_EQ(answer.end.finish, Finish::kEndToken);
  ASSERT_GE(answer.end.end_token, 0);
  EXPECT_EQ(vocabulary_->bytes_of(answer.end.end_token), "x");
  EXPECT_TRUE(answer.tokens.empty());
}

TEST_F(GrammarRequest, bound_and_free_streams_beside_each_other_are_as_each_alone) {
  std::vector<EngineRequest> requests;
  for (uint64_t seed = 0; seed < 8; ++seed) {
    requests.push_back(seed % 2 == 0 ? request(1, seed) : bound("[a-m]{20,40}", 1.5, seed));
    requests.back().ignore_end_tokens = seed % 2 == 0;
  }
  std::vector<Answer> alone;
  for (const EngineRequest& one : requests) alone.push_back(submit(one).get());
  std::vector<std::future<Answer>> together;
  for (const EngineRequest& one : requests) together.push_back(submit(one));
  for (size_t i = 0; i < requests.size(); ++i)
    EXPECT_EQ(together[i].get().tokens, alone[i].tokens) << i;
}

}  // namespace
}  // namespace roost
