// The decisions of speculation, on streams whose acceptance is known.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <vector>

#include "base/random.h"
#include "engine/speculation/acceptance.h"
#include "engine/speculation/copy_match.h"
#include "engine/speculation/depth.h"
#include "engine/speculation/rounds.h"
#include "engine/speculation/walk.h"

namespace roost {
namespace {

using Tokens = std::vector<int32_t>;

TEST(CountAccepted, the_first_draft_that_the_target_would_not_draw_ends_the_run) {
  EXPECT_EQ(count_accepted(Tokens{1, 2, 3}, Tokens{1, 2, 3, 4}), 3);
  EXPECT_EQ(count_accepted(Tokens{1, 2, 3}, Tokens{1, 5, 3, 4}), 1);
  EXPECT_EQ(count_accepted(Tokens{1, 2, 3}, Tokens{2, 2, 3, 4}), 0);
  EXPECT_EQ(count_accepted(Tokens{}, Tokens{7}), 0);
  EXPECT_EQ(count_accepted(Tokens{-1, 2}, Tokens{3, 2, 1}), 0);  // no draft at all
}

TEST(Acceptance, survival_falls_with_depth_and_follows_what_was_seen) {
  Acceptance a;
  EXPECT_EQ(a.survival(0), 1);
  for (int n = 1; n <= kDraftsMax; ++n) EXPECT_LT(a.survival(n), a.survival(n - 1));
  for (int round = 0; round < 30; ++round) a.record(15, 15);
  EXPECT_GT(a.survival(15), 0.5);
  for (int round = 0; round < 30; ++round) a.record(15, 2);
  EXPECT_GT(a.survival(2), 0.9);
  EXPECT_LT(a.survival(3), 0.1);
}

TEST(Acceptance, a_depth_that_was_never_tried_follows_the_one_in_front) {
  Acceptance a;
  for (int round = 0; round < 20; ++round) a.record(3, 3);
  EXPECT_GT(a.survival(8), 0.3);
  Acceptance b;
  for (int round = 0; round < 20; ++round) b.record(3, 1);
  EXPECT_LT(b.survival(8), 0.05);
}

TEST(Acceptance, expected_accept_length_is_that_of_a_stream_of_independent_drafts) {
  SeededRandom random(4);
  for (const double hold : {0.3, 0.6, 0.9}) {
    Acceptance a;
    double seen = 0, expected = 0;
    constexpr int kRounds = 4000;
    for (int round = 0; round < kRounds; ++round) {
      for (int n = 1; n <= 7; ++n) expected += a.survival(n);
      int32_t n = 0;
      while (n < 7 && static_cast<double>(random.next_u64() >> 11) * 0x1p-53 < hold) ++n;
      a.record(7, n);
      seen += n;
    }
    EXPECT_NEAR(expected / kRounds, seen / kRounds, 0.2 * seen / kRounds) << hold;
  }
}

TEST(CostTable, knows_what_it_was_told_and_the_line_between) {
  CostTable table;
  table.record(1, 100, 2.0);
  table.record(5, 100, 4.0);
  EXPECT_DOUBLE_EQ(table.estimate(1, 100), 2.0);
  EXPECT_DOUBLE_EQ(table.estimate(3, 100), 3.0);
  EXPECT_DOUBLE_EQ(table.estimate(5, 900), 4.0);
  EXPECT_DOUBLE_EQ(table.estimate(9, 100), 6.0);  // as steep as what was measured
  table.record(100, 100, 100.0);
  EXPECT_NEAR(table.estimate(60, 100), 59.0, 2.0);
  EXPECT_LT(table.estimate(99, 100), table.estimate(100, 100));  // inside a cell too
}

TEST(CostTable, an_untried_count_is_guessed_from_the_nearest) {
  CostTable table;
  EXPECT_GT(table.estimate(8, 0), table.estimate(1, 0));
  table.record(4, 100'000, 8.0);
  EXPECT_DOUBLE_EQ(table.estimate(4, 0), 8.0);  // no shorter context was measured
  EXPECT_LT(table.estimate(1, 0), 8.0);
  EXPECT_GT(table.estimate(16, 0), 8.0);
}

// A context that has grown has seen few counts: what others cost is known from shorter ones.
TEST(CostTable, a_new_context_takes_the_shape_of_the_nearest) {
  CostTable table;
  for (int64_t n = 1; n <= 16; ++n) table.record(n, 0, 1 + 0.1 * static_cast<double>(n - 1));
  table.record(8, 5000, 3.4);
  EXPECT_DOUBLE_EQ(table.estimate(8, 5000), 3.4);
  EXPECT_NEAR(table.estimate(1, 5000), 2.0, 1e-9);
  EXPECT_NEAR(table.estimate(16, 5000), 5.0, 1e-9);
}

TEST(CostTable, a_disturbed_step_moves_it_little_and_a_lasting_change_is_followed) {
  CostTable table;
  for (int i = 0; i < 20; ++i) table.record(2, 0, 1.0);
  for (int i = 0; i < 5; ++i) table.record(2, 0, 300.0);
  EXPECT_LE(table.estimate(2, 0), 1.0);
  for (int i = 0; i < 20; ++i) table.record(2, 0, 3.0);
  EXPECT_DOUBLE_EQ(table.estimate(2, 0), 3.0);
  for (int i = 0; i < 3; ++i) table.record(2, 0, 1.0);
  EXPECT_DOUBLE_EQ(table.estimate(2, 0), 1.0);
}

// Steps whose cost is known, measured on a machine that lengthens a third of them at random.
TEST(CostTable, is_right_and_rises_on_a_machine_that_others_use) {
  SeededRandom random(2);
  const auto uniform = [&] { return static_cast<double>(random.next_u64() >> 11) * 0x1p-53; };
  CostTable table;
  const auto cost = [](int64_t n) { return 1 + 0.2 * static_cast<double>(n - 1); };
  for (int step = 0; step < 2000; ++step) {
    const auto n = 1 + static_cast<int64_t>(random.next_u64() % 16);
    const double slow = uniform() < 0.33 ? 1 + 4 * uniform() : 1 + 0.1 * uniform();
    table.record(n, 0, slow * cost(n));
    if (step < 200) continue;
    for (int64_t i = 1; i <= 16; ++i) {
      ASSERT_NEAR(table.estimate(i, 0), cost(i), 0.35 * cost(i)) << i;
      ASSERT_GE(table.estimate(i + 1, 0), table.estimate(i, 0));
    }
  }
}

// A step costs 1 + slope·(rows - 1) ms, the drafter `draft` ms a block.
DraftCosts costs_of(double slope, double draft) {
  DraftCosts costs;
  for (int64_t rows = 1; rows <= 64; ++rows) {
    costs.step.record(rows, 0, 1 + slope * static_cast<double>(rows - 1));
    costs.draft.record(rows, 0, draft);
  }
  return costs;
}

Acceptance holding(int32_t n_held) {
  Acceptance a;
  for (int round = 0; round < 40; ++round) a.record(15, n_held);
  return a;
}

TEST(PlanDepths, rows_that_cost_nothing_are_all_taken_and_rows_that_cost_a_step_none) {
  const Acceptance good = holding(15);
  const DraftOption options[] = {{15, DraftSource::kDrafter, &good}};
  int32_t depth[1];
  plan_depths(options, {.n_rows = 1}, 100, costs_of(0, 0.1), depth);
  EXPECT_EQ(depth[0], 15);
  plan_depths(options, {.n_rows = 1}, 100, costs_of(1, 0.1), depth);
  EXPECT_EQ(depth[0], 0);
}

TEST(PlanDepths, a_stream_whose_drafts_fail_decodes_plainly) {
  const Acceptance bad = holding(0);
  const DraftOption options[] = {{15, DraftSource::kDrafter, &bad}};
  int32_t depth[1];
  plan_depths(options, {.n_rows = 1}, 100, costs_of(0.1, 0.1), depth);
  EXPECT_EQ(depth[0], 0);
}

TEST(PlanDepths, the_depth_is_where_drafts_stop_holding) {
  const Acceptance some = holding(4);
  const DraftOption options[] = {{15, DraftSource::kDrafter, &some}};
  int32_t depth[1];
  plan_depths(options, {.n_rows = 1}, 100, costs_of(0.1, 0.1), depth);
  EXPECT_EQ(depth[0], 4);
}

TEST(PlanDepths, streams_that_share_a_step_get_rows_by_what_each_accepts) {
  const Acceptance good = holding(15), bad = holding(0);
  const DraftOption options[] = {{15, DraftSource::kDrafter, &bad},
                                 {15, DraftSource::kDrafter, &good},
                                 {0, DraftSource::kDrafter, nullptr},
                                 {3, DraftSource::kCopy, &good}};
  int32_t depths[4];
  plan_depths(options, {.n_rows = 4}, 100, costs_of(0.2, 0.1), depths);
  EXPECT_EQ(depths[0], 0);
  EXPECT_EQ(depths[2], 0);
  EXPECT_EQ(depths[3], 3);
  EXPECT_GT(depths[1], 8);
}

// No other depth is expected to be better, over many machines and streams.
TEST(PlanDepths, no_single_depth_of_a_lone_stream_is_better) {
  SeededRandom random(9);
  const auto uniform = [&] { return static_cast<double>(random.next_u64() >> 11) * 0x1p-53; };
  for (int trial = 0; trial < 200; ++trial) {
    const DraftCosts costs = costs_of(uniform(), uniform());
    Acceptance a;
    for (int round = 0; round < 20; ++round)
      a.record(15, static_cast<int32_t>(random.next_u64() % 16));
    const DraftOption options[] = {
        {15, uniform() < 0.5 ? DraftSource::kDrafter : DraftSource::kCopy, &a}};
    int32_t depth[1];
    const PlainStep plain{.n_rows = 1};
    plan_depths(options, plain, 100, costs, depth);
    const double chosen = worth_of(options[0], depth[0], plain, costs);
    for (int32_t other = 0; other <= 15; ++other)
      ASSERT_LE(worth_of(options[0], other, plain, costs), chosen * (1 + 1e-12));
  }
}

TEST(Probe, the_first_round_is_tried_and_later_ones_seldomer_and_seldomer) {
  Probe probe;
  EXPECT_EQ(probe.depth(0, 0, 15), 0);
  EXPECT_EQ(probe.depth(0, 7, 15), 7);
  std::vector<int> gaps;
  int gap = 0;
  for (int step = 0; step < 4000; ++step) {
    ++gap;
    if (probe.depth(0, 7, 15) == 0) continue;
    gaps.push_back(gap);
    gap = 0;
  }
  ASSERT_GT(gaps.size(), 5u);
  for (size_t i = 1; i < gaps.size(); ++i) EXPECT_GE(gaps[i], gaps[i - 1]);
  EXPECT_EQ(gaps[1], 2 * gaps[0]);
  EXPECT_EQ(gaps.back(), 512);
}

TEST(Probe, a_try_costs_half_a_plain_step_or_is_one_draft) {
  const Acceptance a;
  const DraftOption all{15, DraftSource::kCopy, &a}, two{2, DraftSource::kCopy, &a}, none{};
  for (const auto& [row, depth] : std::map<double, int32_t>{{0.02, 7}, {0.1, 5}, {0.24, 2}, {2, 1}})
    EXPECT_EQ(depth_of_try(all, {.n_rows = 1}, costs_of(row, 0)), depth) << row;
  EXPECT_EQ(depth_of_try(two, {.n_rows = 1}, costs_of(0.02, 0)), 2);
  EXPECT_EQ(depth_of_try(none, {.n_rows = 1}, costs_of(0.02, 0)), 0);
}

// A row costs more than half a step, so that only a nearly whole block pays; a try has one draft.
TEST(Probe, tries_that_hold_go_deeper_until_drafts_pay) {
  Probe probe;
  std::vector<int32_t> tried;
  for (int32_t depth = probe.depth(0, 1, 15); depth > 0; depth = probe.depth(0, 1, 15)) {
    tried.push_back(depth);
    ASSERT_LT(tried.size(), 9u);
    probe.note(depth, tried.size() < 5);
  }
  EXPECT_EQ(tried, (std::vector<int32_t>{1, 3, 7, 15, 15}));
  probe = {};
  EXPECT_EQ(probe.depth(0, 1, 15), 1);
  probe.note(1, true);
  EXPECT_EQ(probe.depth(5, 1, 15), 5);  // the plan is deeper
  probe.note(5, true);
  EXPECT_EQ(probe.depth(0, 1, 15), 0);  // that was no try
  EXPECT_FALSE(probe.of_next().goes_deeper());

  const DraftCosts costs = costs_of(0.7, 0.1);
  Acceptance a;
  probe = {};
  int64_t n_drafts = 0;
  for (int step = 0; step < 100; ++step) {
    const DraftOption options[] = {{15, DraftSource::kCopy, &a}};
    int32_t planned[1];
    plan_depths(options, {.n_rows = 1}, 100, costs, planned);
    const int32_t depth =
        probe.depth(planned[0], depth_of_try(options[0], {.n_rows = 1}, costs), 15);
    if (depth > 0) a.record(depth, depth);
    probe.note(depth, true);
    n_drafts += depth;
  }
  EXPECT_GT(n_drafts, 90 * 15);
}

// Drafts that never hold, in short replies, where a row costs half a step: nearly nothing is lost.
TEST(Probe, hopeless_drafts_cost_a_short_reply_less_than_three_hundredths) {
  const DraftCosts costs = costs_of(0.45, 0);
  Acceptance a;
  Probe probe;
  double ms = 0;
  constexpr int kTokens = 48;
  for (int step = 0; step < kTokens; ++step) {
    const DraftOption options[] = {{15, DraftSource::kDrafter, &a}};
    int32_t planned[1];
    plan_depths(options, {.n_rows = 1}, 100, costs, planned);
    const int32_t depth =
        probe.depth(planned[0], depth_of_try(options[0], {.n_rows = 1}, costs), 15);
    if (planned[0] == 0 && depth > 0) a.fade();
    if (depth > 0) a.record(depth, 0);
    probe.note(depth, false);
    ms += costs.step.estimate(1 + depth, 0);
  }
  EXPECT_LT(kTokens * costs.step.estimate(1, 0) / ms, 1);
  EXPECT_GT(kTokens * costs.step.estimate(1, 0) / ms, 0.97);
}

// A stream changes from hopeless to perfect; the choice follows within the wait of a probe.
TEST(Probe, a_stream_that_becomes_predictable_is_found_out) {
  const DraftCosts costs = costs_of(0.3, 0.2);
  Acceptance a;
  Probe probe;
  int64_t n_late = 0, n_early_drafts = 0;
  for (int step = 0; step < 600; ++step) {
    const DraftOption options[] = {{15, DraftSource::kDrafter, &a}};
    int32_t planned[1];
    plan_depths(options, {.n_rows = 1}, 100, costs, planned);
    const bool is_new = !probe.goes_deeper();
    const int32_t depth =
        probe.depth(planned[0], depth_of_try(options[0], {.n_rows = 1}, costs), 15);
    const bool is_predictable = step >= 200;
    if (planned[0] == 0 && depth > 0 && is_new) a.fade();
    if (depth > 0) a.record(depth, is_predictable ? depth : 0);
    probe.note(depth, is_predictable);
    if (!is_predictable) n_early_drafts += depth;
    if (step >= 500) n_late += depth;
  }
  EXPECT_LT(n_early_drafts, 40);
  EXPECT_GT(n_late, 10 * 100);
}

TEST(CopyMatch, proposes_what_followed_the_last_time) {
  Tokens text;
  for (int32_t i = 0; i < 30; ++i) text.push_back(100 + i);
  text.push_back(7);
  for (int32_t i = 5; i < 15; ++i) text.push_back(100 + i);
  CopyMatch match(200);
  match.extend(text);
  Tokens out(6);
  ASSERT_EQ(match.propose(text, out), 6);
  EXPECT_EQ(out, (Tokens{115, 116, 117, 118, 119, 120}));
}

TEST(CopyMatch, proposes_nothing_where_nothing_repeats) {
  Tokens text;
  for (int32_t i = 0; i < 50; ++i) text.push_back(i);
  CopyMatch match(200);
  match.extend(text);
  Tokens out(6);
  EXPECT_EQ(match.propose(text, out), 0);
  EXPECT_EQ(match.propose(Tokens{1, 2}, out), 0);
}

TEST(CopyMatch, the_same_tokens_come_whatever_the_steps_in_which_they_were_taken_in) {
  SeededRandom random(3);
  Tokens text;
  for (int i = 0; i < 400; ++i) text.push_back(static_cast<int32_t>(random.next_u64() % 2));
  CopyMatch whole(400), stepwise(400);
  whole.extend(text);
  for (size_t n = 0; n <= text.size(); n += 1 + random.next_u64() % 5)
    stepwise.extend(std::span(text).first(n));
  stepwise.extend(text);
  Tokens a(15), b(15);
  EXPECT_EQ(whole.propose(text, a), 15);
  EXPECT_EQ(stepwise.propose(text, b), 15);
  EXPECT_EQ(a, b);
}

TEST(CopyMatch, a_run_that_repeats_itself_goes_on_repeating) {
  Tokens text;
  for (int i = 0; i < 20; ++i) text.push_back(i % 3);
  CopyMatch match(40);
  match.extend(text);
  Tokens out(9);
  ASSERT_EQ(match.propose(text, out), 9);
  for (size_t i = 0; i < out.size(); ++i)
    EXPECT_EQ(out[i], static_cast<int32_t>((text.size() + i) % 3));
}

TEST(SimulateWalk, each_round_begins_behind_the_token_that_the_target_adds) {
  const Tokens text = {9, 9, 1, 2, 3, 4, 5, 6, 7, 8};
  std::vector<int32_t> anchors;
  const auto draft = [&](int32_t position) {
    anchors.push_back(position);
    Tokens drafts(text.begin() + position + 1, text.end());
    drafts.resize(4, 0);
    if (position == 2) drafts[2] = 0;  // two hold
    return drafts;
  };
  EXPECT_EQ(simulate_walk(text, 2, draft), (Tokens{2, 4}));
  EXPECT_EQ(anchors, (Tokens{2, 5}));
}

TEST(DraftFigures, accept_length_counts_plain_steps_and_every_token_kept) {
  DraftFigures f;
  f.record_round(8, 7, 7);
  f.n_tokens += 8;
  f.record_round(4, 3, 1);
  f.n_tokens += 2;
  f.n_plain_steps = 2;
  f.n_tokens += 2;
  EXPECT_DOUBLE_EQ(f.accept_length(), 3);
  EXPECT_EQ(f.n_rows, 12);
  EXPECT_EQ(f.drafted_at[2], 2);
  EXPECT_EQ(f.accepted_at[2], 1);
  EXPECT_EQ(f.accepted_at[0], 2);
}

// A clock that stands still: costs are what the test has recorded.
class StillClock final : public Clock {
 public:
  int64_t now_ns() const override { return 0; }
  int64_t unix_seconds() const override { return 0; }
};

// Drafts that count upwards from the anchor.
void count_up(std::span<const DraftBlock> blocks, std::span<int32_t> tokens) {
  size_t at = 0;
  for (const DraftBlock& block : blocks) {
    for (int32_t i = 1; i < block.n_rows; ++i) tokens[at++] = block.anchor + i;
  }
  ASSERT_EQ(at, tokens.size());
}

// One stream alone.
struct LoneStream {
  explicit LoneStream(Tokens its_text) : text(std::move(its_text)) {}
  Tokens text;
  StreamDrafts s;
  CopyMatch matches{100};
  RoundStream streams[1] = {{&s, &matches, text, 15, nullptr, {}}};
};

class RoundsTest : public testing::Test {
 protected:
  void set_costs(Rounds& rounds, double slope, double draft) {
    rounds.costs() = costs_of(slope, draft);
  }
  StillClock clock_;
};

TEST_F(RoundsTest, each_stream_gets_the_drafts_of_its_own_block) {
  Rounds rounds(4, 16, 60, clock_);
  set_costs(rounds, 0, 0.1);
  StreamDrafts a, b, c;
  CopyMatch matches[] = {CopyMatch(100), CopyMatch(100), CopyMatch(100)};
  const Tokens text_a = {1, 2, 3}, text_b = {50, 60}, text_c = {7};
  RoundStream streams[] = {{&a, &matches[0], text_a, 15, nullptr, {}},
                           {&b, &matches[1], text_b, 0, nullptr, {}},
                           {&c, &matches[2], text_c, 4, nullptr, {}}};
  rounds.plan(streams, {.n_rows = 3}, 60, count_up);
  EXPECT_EQ(b.n_drafts, 0);
  EXPECT_EQ(a.n_drafts, 15);
  EXPECT_EQ(a.drafts[0], 4);
  ASSERT_EQ(c.n_drafts, 4);
  EXPECT_EQ(c.drafts[3], 11);
}

// Of one stream after another, 20 tokens each: how many drafts a stream brings.
TEST_F(RoundsTest, a_stream_begins_with_what_the_one_before_has_shown) {
  Rounds rounds(1, 16, 15, clock_);
  set_costs(rounds, 0.3, 0.2);
  const auto drafts_of_stream = [&](bool holds) {
    LoneStream lone({1, 2, 3});
    StreamDrafts& s = lone.s;
    rounds.begin(s);
    for (int step = 0; step < 20; ++step) {
      rounds.plan(lone.streams, {.n_rows = 1}, 15, count_up);
      Rounds::note(s, holds ? s.n_drafts : 0, false);
    }
    rounds.end(s);
    return s.figures.n_drafted;
  };
  EXPECT_GT(drafts_of_stream(false), 0);  // the first one of all tries
  int64_t n_hopeless = 0;
  for (int stream = 0; stream < 32; ++stream) n_hopeless += drafts_of_stream(false);
  EXPECT_GT(n_hopeless, 0);   // they try again,
  EXPECT_LE(n_hopeless, 32);  // and less than once a stream
  int n_streams = 0;
  while (drafts_of_stream(true) < 50) ASSERT_LT(++n_streams, 10);
  EXPECT_GE(drafts_of_stream(true), 100);  // from the first token on
}

TEST_F(RoundsTest, no_more_drafts_than_the_step_has_room_for) {
  Rounds rounds(3, 16, 60, clock_);
  set_costs(rounds, 0, 0.1);
  const Tokens text = {1, 2, 3};
  for (const int32_t room : {0, 1, 9, 20}) {
    StreamDrafts state[3];
    CopyMatch matches[] = {CopyMatch(100), CopyMatch(100), CopyMatch(100)};
    std::vector<RoundStream> streams;
    for (size_t i = 0; i < 3; ++i)
      streams.push_back({&state[i], &matches[i], text, 15, nullptr, {}});
    rounds.plan(streams, {.n_rows = 3}, room, count_up);
    EXPECT_EQ(state[0].n_drafts + state[1].n_drafts + state[2].n_drafts, room);
  }
}

TEST_F(RoundsTest, a_copy_needs_no_drafter_and_competes_with_one) {
  Tokens text;
  for (int i = 0; i < 12; ++i) text.push_back(i);
  for (int i = 0; i < 9; ++i) text.push_back(i);
  for (const int32_t block_rows : {0, 16}) {
    Rounds rounds(1, block_rows, 15, clock_);
    set_costs(rounds, 0.1, 0.5);
    LoneStream lone(text);
    StreamDrafts& s = lone.s;
    rounds.plan(lone.streams, {.n_rows = 1}, 15, count_up);
    ASSERT_GT(s.n_drafts, 2);
    EXPECT_EQ(s.source, DraftSource::kCopy);
    EXPECT_EQ(s.drafts[0], 9);
    EXPECT_EQ(s.drafts[1], 10);
    // Copies that never hold give way to the drafter, or to plain steps.
    for (int round = 0; round < 20; ++round) {
      s.source = DraftSource::kCopy;
      s.n_drafts = 5;
      Rounds::note(s, 0, false);
    }
    rounds.plan(lone.streams, {.n_rows = 1}, 15, count_up);
    EXPECT_TRUE(s.n_drafts == 0 || s.source == DraftSource::kDrafter);
  }
}

TEST_F(RoundsTest, drafts_end_where_the_drafter_had_none) {
  Rounds rounds(1, 16, 15, clock_);
  set_costs(rounds, 0, 0.1);
  LoneStream lone({5});
  StreamDrafts& s = lone.s;
  rounds.plan(lone.streams, {.n_rows = 1}, 15,
              [](std::span<const DraftBlock>, std::span<int32_t> tokens) {
                tokens[0] = 6;
                tokens[1] = -1;
              });
  EXPECT_EQ(s.n_drafts, 1);
  rounds.plan(lone.streams, {.n_rows = 1}, 15,
              [](std::span<const DraftBlock>, std::span<int32_t>) {});  // all are none
  EXPECT_EQ(s.n_drafts, 0);
}

// Whether it has none, or none but an end that does not come.
TEST_F(RoundsTest, a_drafter_that_comes_to_nothing_is_soon_asked_no_more) {
  for (const bool guesses_end : {false, true}) {
    Rounds rounds(1, 16, 15, clock_);
    set_costs(rounds, 0.3, 0.2);
    LoneStream lone({5});
    StreamDrafts& s = lone.s;
    int n_asked = 0;
    for (int step = 0; step < 40; ++step) {
      rounds.plan(lone.streams, {.n_rows = 1}, 15,
                  [&](std::span<const DraftBlock>, std::span<int32_t> tokens) {
                    ++n_asked;
                    if (guesses_end) tokens[0] = 0;
                  });
      if (s.n_drafts > 0)
        s.n_drafts = 0, s.rowless = StreamDrafts::Rowless::kEnd;  // as Sequence::fit_drafts
      Rounds::note(s, 0, false);
    }
    EXPECT_GT(n_asked, 0);
    EXPECT_LT(n_asked, 8) << guesses_end;
  }
}

TEST_F(RoundsTest, an_end_that_was_guessed_and_came_is_a_draft_that_held) {
  StreamDrafts s;
  const double before = s.by_drafter.survival(1);
  s.rowless = StreamDrafts::Rowless::kEnd;
  Rounds::note(s, 0, true);
  EXPECT_GT(s.by_drafter.survival(1), before);
  s.rowless = StreamDrafts::Rowless::kEnd;
  Rounds::note(s, 0, false);
  EXPECT_LT(s.by_drafter.survival(1), before);
}

}  // namespace
}  // namespace roost
