// Drafts never change a reply: drafted token ids equal plain ones, greedy and drawn, alone and
// together, whatever is drafted and however much of it holds.
#include <gtest/gtest.h>

#include <cstdio>
#include <map>
#include <random>
#include <thread>

#include "engine/cache_identity.h"
#include "tests/laws/draft_run.h"

namespace roost::testing {
namespace {

// Plain replies come plain_together at a time.
void expect_drafted_equals_plain(size_t every, double temperature, size_t plain_together) {
  const std::vector<Ask> asks = asks_of(prompts(), every, temperature);
  CoreRun plain(false, false);
  const std::vector<Reply> want = plain.replies(asks, plain_together);
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
        "  %zu replies, temperature %.1f, %zu together: accept length %.2f, %ld of %ld drafts "
        "held, %ld copied\n",
        asks.size(), temperature, together, f.accept_length(), static_cast<long>(f.n_accepted),
        static_cast<long>(f.n_drafted), static_cast<long>(f.n_copied));
    EXPECT_GT(f.accept_length(), 2) << "nothing was drafted";
  }
}

TEST(DraftLaws, drafted_replies_equal_plain_ones) {
  for (const double temperature : {0.0, 0.9}) expect_drafted_equals_plain(21, temperature, 1);
}

// All 400 prompts, greedy and drawn side by side: minutes.
TEST(DraftLaws, DISABLED_drafted_replies_equal_plain_ones_on_every_prompt) {
  std::thread drawn([] { expect_drafted_equals_plain(1, 0.9, 8); });
  expect_drafted_equals_plain(1, 0, 8);
  drawn.join();
}

// Counts from 1, behind a reply.
Ask next_turn(const Ask& ask, const Reply& reply) {
  Ask next = ask;
  next.prompt.insert(next.prompt.end(), reply.tokens.begin(), reply.tokens.end());
  const Tokens turn = {3058, 198, 3057, 290, 198, 543, 376, 220, 16, 3058, 198, 3057, 297, 198};
  next.prompt.insert(next.prompt.end(), turn.begin(), turn.end());
  return next;
}

// Drafts that are the reply itself with an error planted at a random place, and cut at random:
// every number of drafts and every number of accepted ones.
TEST(DraftLaws, any_number_of_drafts_of_which_any_number_holds_gives_the_same_reply) {
  const std::vector<Ask> asks = asks_of(prompts(), 61, 0.8);
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
    const Ask next = next_turn(asks[i], have);
    CoreRun fresh(false, false);
    const Reply resumed = drafted.reply(next);
    ASSERT_EQ(resumed.tokens, fresh.reply(next).tokens) << "prompt " << i;
    // The last token of a reply without an end token has no row.
    const bool has_ended = have.end.finish == Finish::kEndToken;
    EXPECT_EQ(
        resumed.end.n_cached,
        static_cast<int64_t>(asks[i].prompt.size() + have.tokens.size()) - (has_ended ? 0 : 1));
  }
  EXPECT_GT(seen.size(), 20u);
}

TEST(DraftLaws, copies_of_earlier_text_need_no_drafter_and_change_nothing) {
  // A reply that comes again as the next question, and goes on repeating itself.
  std::vector<Ask> asks = asks_of(prompts(), 91, 0.9);
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
    Ask before{all[i].ids, {}, 3};  // leaves the prompt in the cache
    two.reply(before);
    before.change = [](EngineRequest& r) { r.uses_cache = false; };
    one.reply(before);  // so that both know as much about costs
    const Reply fresh = one.reply(ask);
    EXPECT_EQ(fresh.end.n_cached, 0);
    const Reply resumed = two.reply(ask);
    EXPECT_GT(resumed.end.n_cached, 0);
    EXPECT_EQ(resumed.tokens, fresh.tokens);
    EXPECT_EQ(resumed.end.drafts.n_accepted, fresh.end.drafts.n_accepted);
    EXPECT_EQ(resumed.end.drafts.n_rounds, fresh.end.drafts.n_rounds);
  }
}

// Pages hold a drafter's rows, in the sizes of its own configuration, and only where there is one;
// their key tells what made them.
TEST(DraftLaws, pages_without_a_drafter_have_no_rows_of_one_and_another_key) {
  const DrafterConfig& c = fledgling_drafter()->config;
  CoreRun with(true, true), without(true, false);
  const int64_t n_values = 2 * c.n_layers() * c.n_kv_heads * c.head_dim * kPageTokens;
  EXPECT_EQ(with.runner().page_bytes(),
            without.runner().page_bytes() + static_cast<size_t>(n_values) * sizeof(uint16_t));
  EXPECT_EQ(with.runner().snapshot_bytes(), without.runner().snapshot_bytes());
  const auto key = [](const DrafterWeights* drafter) {
    return cache_identity(*target(), drafter, KvFormat::kActivation, "a backend", "a build");
  };
  DrafterWeights other =
      load_drafter(ROOST_SOURCE_DIR "/models/fledgling/drafter", *target(), DrafterWidth::kFourBits)
          .value();
  EXPECT_NE(key(fledgling_drafter().get()), key(nullptr));
  EXPECT_NE(key(fledgling_drafter().get()), key(&other));
}

// Exactly the prompt's rows, and of each round the anchor's and the accepted drafts', are absorbed.
TEST(DraftLaws, the_drafter_takes_in_accepted_rows_and_no_others) {
  CoreRun run(true, true);
  const Ask ask{prompts()[6].ids, {}};
  const Reply reply = run.reply(ask);
  int64_t n_absorbed = 0;
  for (const TestRunner::Absorbed& rows : run.runner().absorbed()) n_absorbed += rows.n_rows;
  EXPECT_EQ(n_absorbed, static_cast<int64_t>(ask.prompt.size()) + reply.end.drafts.n_accepted +
                            reply.end.drafts.n_rounds + reply.end.drafts.n_plain_steps);
}

// The test of the test: a state that has seen rejected rows gives other replies.
TEST(DraftLaws, sees_rejected_rows_that_leak_into_the_state) {
  const std::vector<Ask> asks = asks_of(prompts(), 61, 0);
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

TEST(DraftLaws, the_state_kept_behind_a_reply_is_that_of_plain_decoding) {
  CoreRun plain(false, false), drafted(true, true), lossy(true, true);
  lossy.runner().lose_replays();
  size_t n_seen = 0;
  const std::vector<Ask> asks = asks_of(prompts(), 61, 0.8);
  for (const Ask& ask : asks) {
    for (CoreRun* run : {&plain, &drafted, &lossy}) run->reply(ask);
    EXPECT_EQ(drafted.runner().last_state(), plain.runner().last_state());
    n_seen += lossy.runner().last_state() != plain.runner().last_state();
  }
  EXPECT_GT(n_seen, asks.size() / 2);
}

}  // namespace
}  // namespace roost::testing
