// Drafts never change a reply: drafted token ids equal plain ones, greedy and drawn, alone and
// together, whatever is drafted and however much of it holds.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <numeric>
#include <random>

#include "base/file.h"
#include "base/json.h"
#include "engine/engine_core.h"
#include "engine/model_runner.h"
#include "tests/model_run.h"
#include "weights/drafter.h"

namespace roost {
namespace {

using Tokens = std::vector<int32_t>;

const std::shared_ptr<const ModelWeights>& target() {
  static const auto weights = testing::load_model(ROOST_SOURCE_DIR "/models/fledgling");
  return weights;
}

const std::shared_ptr<const DrafterWeights>& drafter() {
  static const auto weights = std::make_shared<const DrafterWeights>(
      load_drafter(ROOST_SOURCE_DIR "/models/fledgling/drafter", *target()).value());
  return weights;
}

struct Prompt {
  std::string kind;
  Tokens ids;
};

// 200 conversations, each without thinking and with it.
std::vector<Prompt> prompts() {
  const auto text = read_file(ROOST_SOURCE_DIR "/tests/golden/draft_prompts.json", 1 << 22).value();
  std::vector<Prompt> all;
  const json::Value list = json::parse(text).value();
  for (const json::Value& entry : list.items()) {
    for (const char* which : {"plain", "thinking"}) {
      Prompt prompt{entry.find("kind")->as_string(), {}};
      for (const json::Value& id : entry.find(which)->items())
        prompt.ids.push_back(static_cast<int32_t>(*id.as_int64()));
      all.push_back(std::move(prompt));
    }
  }
  return all;
}

// Every reading of it is a millisecond after the one before: a step costs the same whatever it
// holds, so drafts always pay and blocks are as deep as acceptance allows.
class TickingClock final : public Clock {
 public:
  int64_t now_ns() const override { return now_ += 1'000'000; }
  int64_t unix_seconds() const override { return 0; }

 private:
  mutable int64_t now_ = 0;
};

// What a test does to the model's runner. Passes everything else on.
class TestRunner : public StepRunner {
 public:
  explicit TestRunner(std::unique_ptr<StepRunner> inner) : inner_(std::move(inner)) {}

  void run(const StepRows& rows, std::span<int32_t> drawn) override {
    if (!leaks_rejected_) return inner_->run(rows, drawn);
    std::vector<DeltaSpan> spans(rows.delta_rows.begin(), rows.delta_rows.end());
    for (DeltaSpan& span : spans) span.store_after = span.n_packed();
    StepRows leaky = rows;
    leaky.delta_rows = spans;
    inner_->run(leaky, drawn);
  }
  int32_t draft_rows_max() const override {
    return has_own_drafts_ ? 16 : inner_->draft_rows_max();
  }
  void absorb(std::span<const TapRows> rows) override {
    for (const TapRows& taken : rows) n_absorbed_ += taken.rows.n_rows;
    inner_->absorb(rows);
  }
  void draft(std::span<const DraftBlock> blocks, std::span<int32_t> tokens) override {
    if (!own_drafts_) return inner_->draft(blocks, tokens);
    for (const DraftBlock& block : blocks) {
      const auto n = static_cast<size_t>(block.n_rows) - 1;
      own_drafts_(block, tokens.first(n));
      tokens = tokens.subspan(n);
    }
  }
  void reset_slot(int32_t slot) override { inner_->reset_slot(slot); }
  void save_state(int32_t slot, int32_t snapshot) override { inner_->save_state(slot, snapshot); }
  bool load_state(int32_t snapshot, int32_t slot) override {
    return inner_->load_state(snapshot, slot);
  }
  void copy_page(int32_t from, int32_t to) override { inner_->copy_page(from, to); }
  size_t page_bytes() const override { return inner_->page_bytes(); }
  size_t snapshot_bytes() const override { return inner_->snapshot_bytes(); }
  void read_page(int32_t page, std::span<std::byte> to) const override {
    inner_->read_page(page, to);
  }
  void write_page(int32_t page, std::span<const std::byte> from) override {
    inner_->write_page(page, from);
  }
  void read_snapshot(int32_t snapshot, std::span<std::byte> to) const override {
    inner_->read_snapshot(snapshot, to);
  }
  void write_snapshot(int32_t snapshot, std::span<const std::byte> from) override {
    inner_->write_snapshot(snapshot, from);
  }
  std::string name() const override { return inner_->name(); }

  using OwnDrafts = std::function<void(const DraftBlock&, std::span<int32_t>)>;
  void set_own_drafts(OwnDrafts drafts) {
    own_drafts_ = std::move(drafts);
    has_own_drafts_ = true;
  }
  void leak_rejected_rows() { leaks_rejected_ = true; }
  int64_t n_absorbed() const { return n_absorbed_; }

 private:
  std::unique_ptr<StepRunner> inner_;
  OwnDrafts own_drafts_;
  bool has_own_drafts_ = false, leaks_rejected_ = false;
  int64_t n_absorbed_ = 0;
};

struct Reply {
  Tokens tokens;
  EngineEvent end;
};

struct Ask {
  Tokens prompt;
  SampleParams sampling;
  int64_t new_tokens_max = 120;
  Tokens stop_tokens = {};
};

// An engine without its thread.
class CoreRun {
 public:
  CoreRun(bool has_drafts, bool has_drafter, int32_t streams_max = 8) {
    options_.context_max = 1024;
    options_.streams_max = streams_max;
    options_.chunk_rows_max = 256;
    options_.n_tokens = 3071;
    options_.n_threads = 2;
    options_.has_drafts = has_drafts;
    if (has_drafter) options_.drafter = drafter();
    const MemoryPlan plan = plan_memory(*target(), options_, 0).value();
    runner_ = std::make_unique<TestRunner>(make_model_runner(target(), options_, plan));
    plan_ = plan;
  }

  TestRunner& runner() { return *runner_; }

  // Replies in the order of the asks, `together` of them at a time.
  std::vector<Reply> replies(const std::vector<Ask>& asks, size_t together) {
    if (!core_)
      core_ = std::make_unique<EngineCore>(
          core_options(options_, plan_, target()->config.end_tokens, target()->config.vocabulary),
          *runner_, clock_);
    std::vector<Reply> replies(asks.size());
    for (size_t first = 0; first < asks.size(); first += together) {
      for (size_t i = first; i < std::min(first + together, asks.size()); ++i) {
        EngineRequest request;
        request.prompt = asks[i].prompt;
        request.new_tokens_max = asks[i].new_tokens_max;
        request.sampling = asks[i].sampling;
        request.stop_tokens = asks[i].stop_tokens;
        Reply& reply = replies[i];
        auto sequence = EngineCore::make_sequence(
            std::move(request),
            [&reply](const EngineEvent& event) {
              reply.tokens.insert(reply.tokens.end(), event.tokens.begin(), event.tokens.end());
              if (event.kind == EngineEvent::Kind::kFinished) reply.end = event;
            },
            core_->options(), clock_.now_ns());
        sequence->id = next_id_++;
        core_->add(std::move(sequence));
      }
      while (core_->has_work()) {
        core_->admit();
        core_->step();
        core_->check_invariants();
      }
    }
    return replies;
  }

  Reply reply(const Ask& ask) { return replies({ask}, 1)[0]; }

 private:
  EngineOptions options_;
  MemoryPlan plan_;
  TickingClock clock_;
  std::unique_ptr<TestRunner> runner_;
  std::unique_ptr<EngineCore> core_;
  Engine::RequestId next_id_ = 1;
};

DraftFigures sum_of(const std::vector<Reply>& replies) {
  DraftFigures sum;
  for (const Reply& reply : replies) {
    const DraftFigures& f = reply.end.drafts;
    sum.n_rounds += f.n_rounds;
    sum.n_plain_steps += f.n_plain_steps;
    sum.n_drafted += f.n_drafted;
    sum.n_accepted += f.n_accepted;
    sum.n_copied += f.n_copied;
    sum.n_tokens += f.n_tokens;
  }
  return sum;
}

std::vector<Ask> asks_of(const std::vector<Prompt>& all, size_t every, double temperature) {
  std::vector<Ask> asks;
  for (size_t i = 0; i < all.size(); i += every) {
    SampleParams sampling;
    if (temperature > 0)
      sampling = {.temperature = temperature, .top_k = 20, .top_p = 0.95, .seed = 1000 + i};
    asks.push_back({all[i].ids, sampling});
  }
  return asks;
}

void expect_drafted_equals_plain(size_t every) {
  for (const double temperature : {0.0, 0.9}) {
    const std::vector<Ask> asks = asks_of(prompts(), every, temperature);
    CoreRun plain(false, false);
    const std::vector<Reply> want = plain.replies(asks, 1);
    for (const size_t together : {size_t{1}, size_t{8}}) {
      CoreRun drafted(true, true);
      const std::vector<Reply> have = drafted.replies(asks, together);
      for (size_t i = 0; i < asks.size(); ++i) {
        ASSERT_EQ(have[i].tokens, want[i].tokens) << "prompt " << i * every << ", temperature "
                                                  << temperature << ", " << together << " together";
        ASSERT_EQ(have[i].end.finish, want[i].end.finish);
        ASSERT_EQ(have[i].end.end_token, want[i].end.end_token);
      }
      const DraftFigures f = sum_of(have);
      std::printf(
          "  %zu replies, temperature %.1f, %zu together: accept length %.2f, %ld of %ld "
          "drafts held, %ld copied\n",
          asks.size(), temperature, together, f.accept_length(), static_cast<long>(f.n_accepted),
          static_cast<long>(f.n_drafted), static_cast<long>(f.n_copied));
      EXPECT_GT(f.accept_length(), 2) << "nothing was drafted";
    }
  }
}

TEST(DraftLaws, drafted_replies_equal_plain_ones) {
  expect_drafted_equals_plain(20);
}

// All 400 prompts: minutes.
TEST(DraftLaws, DISABLED_drafted_replies_equal_plain_ones_on_every_prompt) {
  expect_drafted_equals_plain(1);
}

// Drafts that are the reply itself with an error planted at a random place, and cut at random:
// every number of drafts and every number of accepted ones.
TEST(DraftLaws, any_number_of_drafts_of_which_any_number_holds_gives_the_same_reply) {
  const std::vector<Ask> asks = asks_of(prompts(), 90, 0.8);
  CoreRun plain(false, false);
  const std::vector<Reply> want = plain.replies(asks, 1);
  std::mt19937_64 random(7);
  std::map<std::pair<int, int>, int> seen;
  for (size_t i = 0; i < asks.size(); ++i) {
    CoreRun drafted(true, false);
    Tokens all = asks[i].prompt;
    all.insert(all.end(), want[i].tokens.begin(), want[i].tokens.end());
    drafted.runner().set_own_drafts([&](const DraftBlock& block, std::span<int32_t> tokens) {
      const size_t n = random() % (tokens.size() + 1), wrong = random() % (n + 1);
      for (size_t d = 0; d < tokens.size(); ++d) {
        const size_t at = static_cast<size_t>(block.position) + 1 + d;
        tokens[d] = d < n && at < all.size() ? all[at] : -1;
        if (d == wrong && tokens[d] >= 0) tokens[d] = (tokens[d] + 1) % 3000;
      }
      seen[{static_cast<int>(n), static_cast<int>(std::min(wrong, n))}] += 1;
    });
    const Reply have = drafted.reply(asks[i]);
    ASSERT_EQ(have.tokens, want[i].tokens) << "prompt " << i;
    // The next turn goes on from what the reply left behind.
    Ask next = asks[i];
    next.prompt.insert(next.prompt.end(), have.tokens.begin(), have.tokens.end());
    const Tokens turn = {3058, 198, 3057, 290, 198, 543, 376, 220, 16, 3058, 198, 3057, 297, 198};
    next.prompt.insert(next.prompt.end(), turn.begin(), turn.end());
    CoreRun fresh(false, false);
    const Reply resumed = drafted.reply(next);
    ASSERT_EQ(resumed.tokens, fresh.reply(next).tokens) << "prompt " << i;
    EXPECT_GT(resumed.end.n_cached, 0);
  }
  EXPECT_GT(seen.size(), 20u);
}

TEST(DraftLaws, copies_of_earlier_text_need_no_drafter_and_change_nothing) {
  // A reply that comes again as the next question, and goes on repeating itself.
  std::vector<Ask> asks = asks_of(prompts(), 90, 0.9);
  CoreRun plain(false, false), copying(true, false);
  const std::vector<Reply> first = plain.replies(asks, 1);
  for (size_t i = 0; i < asks.size(); ++i) {
    const Tokens prompt = asks[i].prompt;
    for (const Tokens& more : {first[i].tokens, Tokens{3058, 198}, prompt})
      asks[i].prompt.insert(asks[i].prompt.end(), more.begin(), more.end());
  }
  const std::vector<Reply> want = plain.replies(asks, 1), have = copying.replies(asks, 2);
  for (size_t i = 0; i < asks.size(); ++i) ASSERT_EQ(have[i].tokens, want[i].tokens) << i;
  const DraftFigures f = sum_of(have);
  std::printf("  %ld of %ld copied tokens held\n", static_cast<long>(f.n_accepted),
              static_cast<long>(f.n_copied));
  EXPECT_EQ(f.n_copied, f.n_drafted);
  EXPECT_GT(f.n_accepted, 0);
}

TEST(DraftLaws, ends_stops_and_the_longest_length_cut_an_accepted_run_at_their_token) {
  const std::vector<Prompt> all = prompts();
  CoreRun plain(false, false), drafted(true, true);
  const Ask whole{all[0].ids, {}};  // counting: rounds accept all they can
  const Tokens tokens = plain.reply(whole).tokens;
  ASSERT_GT(tokens.size(), 20u);
  for (int64_t n = 1; n <= 20; ++n) {
    Ask cut = whole;
    cut.new_tokens_max = n;
    const Reply have = drafted.reply(cut);
    EXPECT_EQ(have.tokens, Tokens(tokens.begin(), tokens.begin() + n));
    EXPECT_EQ(have.end.finish, Finish::kLength);
  }
  for (const size_t at : {1u, 5u, 9u, 14u, 18u}) {
    Ask stopped = whole;
    stopped.stop_tokens = {tokens[at]};
    const Reply have = drafted.reply(stopped), want = plain.reply(stopped);
    EXPECT_EQ(have.tokens, want.tokens);
    EXPECT_EQ(have.end.end_token, want.end.end_token);
    EXPECT_EQ(have.end.finish, Finish::kEndToken);
  }
}

TEST(DraftLaws, a_resumed_stream_drafts_as_a_fresh_one) {
  const std::vector<Prompt> all = prompts();
  for (const size_t i : {2u, 8u, 31u}) {
    CoreRun one(true, true), two(true, true);
    const Ask ask{all[i].ids, {}};
    const Reply fresh = one.reply(ask);
    two.reply({all[i].ids, {}, 3});  // leaves the prompt in the cache
    const Reply resumed = two.reply(ask);
    EXPECT_GT(resumed.end.n_cached, 0);
    EXPECT_EQ(resumed.tokens, fresh.tokens);
    EXPECT_EQ(resumed.end.drafts.n_accepted, fresh.end.drafts.n_accepted);
    EXPECT_EQ(resumed.end.drafts.n_rounds, fresh.end.drafts.n_rounds);
  }
}

// Exactly the prompt's rows, and of each round the anchor's and the accepted drafts', are absorbed.
TEST(DraftLaws, the_drafter_takes_in_accepted_rows_and_no_others) {
  CoreRun run(true, true);
  const Ask ask{prompts()[6].ids, {}};
  const Reply reply = run.reply(ask);
  EXPECT_EQ(run.runner().n_absorbed(), static_cast<int64_t>(ask.prompt.size()) +
                                           reply.end.drafts.n_accepted + reply.end.drafts.n_rounds +
                                           reply.end.drafts.n_plain_steps);
}

// The test of the test: a state that has seen rejected rows gives other replies.
TEST(DraftLaws, sees_rejected_rows_that_leak_into_the_state) {
  const std::vector<Ask> asks = asks_of(prompts(), 60, 0);
  CoreRun plain(false, false), leaky(true, true);
  leaky.runner().leak_rejected_rows();
  leaky.runner().set_own_drafts([](const DraftBlock&, std::span<int32_t> tokens) {
    for (int32_t& token : tokens) token = 16;  // mostly wrong
  });
  const std::vector<Reply> want = plain.replies(asks, 1), have = leaky.replies(asks, 1);
  size_t n_different = 0;
  for (size_t i = 0; i < asks.size(); ++i) n_different += have[i].tokens != want[i].tokens;
  EXPECT_GT(n_different, asks.size() / 2);
}

}  // namespace
}  // namespace roost
