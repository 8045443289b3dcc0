// Who is served when, and what a request may ask of its rows, on a model that says what it is told.
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "engine/engine_core.h"
#include "grammar/text_grammar.h"
#include "tests/sim/fake_runner.h"

namespace roost {
namespace {

constexpr int32_t kVocabulary = 16, kEnd = 0, kBlank = 1, kClose = 2, kWord = 3;

// Every row likes the same tokens best, the first of them most.
class WilfulRunner final : public testing::StatelessRunner {
 public:
  std::vector<int32_t> likes = {kWord};
  bool ignores_masks = false;

  void run(const StepRows& rows, std::span<int32_t> drawn) override {
    for (size_t i = 0; i < drawn.size(); ++i) {
      RowHook* hook = i < rows.hooks.size() ? rows.hooks[i] : nullptr;
      drawn[i] = hook != nullptr && !hook->wants_row() ? -1 : draw(hook);
    }
  }
  std::string name() const override { return "wilful"; }

 private:
  int32_t draw(RowHook* hook) const {
    std::vector<float> logits(kVocabulary, 0);
    for (size_t i = 0; i < likes.size(); ++i)
      logits[static_cast<size_t>(likes[i])] = static_cast<float>(likes.size() - i);
    const uint32_t* mask = nullptr;
    if (hook != nullptr) {
      if (hook->wants_logits()) hook->before_draw(logits);
      mask = hook->mask();
    }
    for (int32_t t = 0; t < kVocabulary && mask != nullptr && !ignores_masks; ++t)
      if ((mask[0] >> t & 1) == 0)
        logits[static_cast<size_t>(t)] = -std::numeric_limits<float>::infinity();
    const auto best = std::max_element(logits.begin(), logits.end());
    const auto token = static_cast<int32_t>(best - logits.begin());
    return hook == nullptr ? token : hook->after_draw(token);
  }
};

class EngineOrder : public ::testing::Test {
 protected:
  EngineOrder() : core_(options(), runner_, clock_) { core_.measure_costs(1); }

  static CoreOptions options() {
    CoreOptions out;
    out.streams_max = 1;
    out.context_max = 512;
    out.n_pages = 16;
    out.has_cache = false;
    out.drawn_rows_max = 1;
    out.end_tokens = {kEnd};
    out.vocabulary = out.n_tokens = kVocabulary;
    return out;
  }

  struct Reply {
    std::vector<int32_t> tokens;
    EngineEvent end;
  };

  static EngineRequest request(size_t n_prompt, int32_t priority = 0, uint64_t sharer = 0) {
    EngineRequest out;
    out.prompt.assign(n_prompt, kWord);
    out.new_tokens_max = 4;
    out.priority = priority;
    out.sharer.low = sharer;
    return out;
  }

  std::shared_ptr<Reply> add(EngineRequest request) {
    auto reply = std::make_shared<Reply>();
    const uint64_t id = ++n_added_;
    auto sequence = EngineCore::make_sequence(
        std::move(request),
        [this, reply, id](const EngineEvent& event) {
          reply->tokens.insert(reply->tokens.end(), event.tokens.begin(), event.tokens.end());
          if (event.kind != EngineEvent::Kind::kFinished) return;
          reply->end = event;
          ended_.push_back(id);
        },
        core_.options(), clock_.now_ns());
    sequence->id = id;
    core_.add(std::move(sequence));
    return reply;
  }

  void run() {
    while (core_.has_work()) core_.admit(), core_.step();
    core_.check_invariants();
  }

  testing::VirtualClock clock_;
  WilfulRunner runner_;
  EngineCore core_;
  uint64_t n_added_ = 0;
  std::vector<uint64_t> ended_;  // ids, 1 the first that came
};

TEST_F(EngineOrder, classes_start_by_their_number_and_background_last) {
  for (const int32_t priority : {90, 50, 3, 0, -50}) add(request(10, priority));
  run();
  EXPECT_EQ(ended_, (std::vector<uint64_t>{5, 4, 3, 2, 1}));
}

TEST_F(EngineOrder, those_who_wait_share_equally_however_many_requests_one_of_them_sends) {
  // Of one sharer they would go shortest first: all of the flood, then the others.
  for (int i = 0; i < 18; ++i) add(request(100, 0, 1));
  for (int i = 0; i < 4; ++i) add(request(120, 0, 2));
  run();
  const auto n_of_second =
      std::count_if(ended_.begin(), ended_.begin() + 8, [](uint64_t id) { return id > 18; });
  EXPECT_EQ(n_of_second, 4);
  EXPECT_EQ(std::count_if(ended_.begin(), ended_.begin() + 4, [](uint64_t id) { return id > 18; }),
            2);
}

TEST_F(EngineOrder, what_was_served_long_ago_counts_no_more) {
  add(request(200, 0, 1));
  run();
  clock_.advance(1'000'000'000'000);
  add(request(100, 0, 1));
  add(request(110, 0, 2));  // had nothing, but a thousand seconds leave nothing of 200 tokens
  run();
  add(request(10, 0, 1)), add(request(10, 0, 2));
  run();
  EXPECT_EQ(ended_, (std::vector<uint64_t>{1, 3, 2, 4, 5}));
}

TEST_F(EngineOrder, a_reply_says_something_before_it_ends_where_it_must) {
  runner_.likes = {kEnd, kBlank, kWord};
  EngineRequest r = request(5);
  EXPECT_TRUE(add(r)->tokens.empty());
  r.budget.needs_content = true;
  r.budget.close_token = kClose;
  std::vector<bool> is_blank(kVocabulary);
  is_blank[kBlank] = true;
  r.budget.is_blank = std::make_shared<const std::vector<bool>>(is_blank);
  r.new_tokens_max = 3;
  const auto blank = add(r);  // white space is none of it
  run();
  EXPECT_EQ(blank->tokens, (std::vector<int32_t>{kBlank, kBlank, kBlank}));
  runner_.likes = {kEnd, kWord};
  const auto said = add(r);
  r.stop_tokens = {kWord};  // what the client calls an end is one
  const auto stopped = add(r);
  r.stop_tokens.clear();
  r.budget.starts_in_reasoning = true;  // it may end inside
  const auto inside = add(r);
  run();
  EXPECT_EQ(said->tokens, (std::vector<int32_t>{kWord}));
  EXPECT_EQ(said->end.end_token, kEnd);
  EXPECT_EQ(stopped->end.end_token, kWord);
  EXPECT_TRUE(inside->tokens.empty());
}

TEST_F(EngineOrder, a_token_outside_its_grammar_ends_that_request_alone_and_is_counted) {
  std::vector<std::string> bytes;
  for (int32_t t = 0; t < kVocabulary; ++t) bytes.emplace_back(1, static_cast<char>('a' + t));
  const auto vocabulary = std::make_shared<const TokenVocabulary>(std::move(bytes));
  EngineRequest bound = request(5);
  bound.grammar.grammar =
      std::make_shared<const Grammar>(compile_regex_grammar("ef").value(), vocabulary);
  const auto good = add(bound);
  run();
  EXPECT_EQ(good->tokens, (std::vector<int32_t>{4, 5}));
  EXPECT_EQ(core_.counts().n_grammar_violations, 0);
  runner_.ignores_masks = true;
  const auto bad = add(bound);
  const auto free = add(request(5));
  run();
  ASSERT_TRUE(bad->end.error);
  EXPECT_EQ(code_of(bad->end.error->refusal), "engine.grammar");
  EXPECT_TRUE(bad->tokens.empty());
  EXPECT_EQ(free->tokens, std::vector<int32_t>(4, kWord));
  EXPECT_EQ(core_.counts().n_grammar_violations, 1);
}

}  // namespace
}  // namespace roost
