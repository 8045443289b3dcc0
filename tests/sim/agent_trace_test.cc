// An agent's day before the engine's core: a long first prompt, turns with tool results,
// sub-agents with the same system turn, a title request; what is computed twice, and how long
// anybody is silent. And a long conversation beside a stream, and many requests in little memory.
#include <gtest/gtest.h>

#include <stdlib.h>

#include <filesystem>
#include <memory>
#include <random>
#include <string>

#include "tests/agent_trace.h"
#include "tests/side_work.h"
#include "tests/sim/fake_runner.h"

namespace roost {
namespace {

using testing::Desk;
using testing::FakeModel;
using testing::FakeRunner;
using testing::Tokens;
using testing::Trace;
using testing::TraceReply;
using testing::VirtualClock;

constexpr int32_t kTurn = 998;

// The engine's core over a fake model, with memory for a few conversations.
struct Office {
  Office(int32_t n_pages, int32_t n_snapshots, int64_t context_max, uint64_t seed,
         FakeRunner::Costs costs = {}, double attended_guess = 0)
      : runner(n_pages, 4, n_snapshots, clock, costs),
        core(options(n_pages, n_snapshots, context_max, attended_guess), runner, clock),
        desk(core, clock, kTurn, 1, 990, seed) {
    core.measure_costs(300'000'000);
  }
  static CoreOptions options(int32_t n_pages, int32_t n_snapshots, int64_t context_max,
                             double attended_guess) {
    CoreOptions options;
    options.attended_guess = attended_guess;
    options.streams_max = 4;
    options.context_max = context_max;
    options.n_pages = n_pages;
    options.n_snapshots = n_snapshots;
    options.turn_token = kTurn;
    options.end_tokens = {FakeModel::kEndToken};
    return options;
  }
  VirtualClock clock;
  FakeRunner runner;
  EngineCore core;
  Desk desk;
};

void append(Tokens& to, const Tokens& from) {
  to.insert(to.end(), from.begin(), from.end());
}

TEST(AgentTrace, recomputes_at_most_3_percent_of_what_was_known) {
  Office office(4000, 64, 262'144, 1);
  const Trace trace = testing::run_agent_trace(office.desk, 1);
  std::printf(
      "  %lld prompt tokens were known, %lld of them computed again; longest silence %.1f ms\n",
      static_cast<long long>(trace.n_old), static_cast<long long>(trace.n_recomputed),
      static_cast<double>(trace.gap_max_ns) / 1e6);
  EXPECT_GT(trace.n_old, 1'000'000);
  EXPECT_LE(trace.recomputed_share(), 0.03);
  EXPECT_LE(trace.gap_max_ns, 260'000'000);
}

// Memory for the main conversation and a little more: what comes and goes beside it is worth less.
TEST(AgentTrace, sub_agents_and_titles_do_not_push_out_the_main_conversation) {
  Office office(1000, 32, 32'768, 3);
  Desk& desk = office.desk;
  Tokens system = {kTurn};
  append(system, desk.text(4'000));
  Tokens main = system;
  desk.add_turn(main, desk.text(6'000));
  int64_t n_known = 0;
  for (int turn = 0; turn < 12; ++turn) {
    const TraceReply reply = desk.ask(main, 60, 7);
    // The header and the reply may be computed again: states behind so few tokens are worth little.
    EXPECT_GE(reply.end.n_cached, n_known - 64) << turn;
    append(main, reply.tokens);
    n_known = static_cast<int64_t>(main.size()) - 1;
    desk.add_turn(main, desk.text(500));
    for (int i = 0; i < 4; ++i) {
      Tokens agent = system;
      desk.add_turn(agent, desk.text(desk.between(1'000, 5'000)));
      const TraceReply first = desk.ask(agent, 40, 8);
      EXPECT_GE(first.end.n_cached, turn + i == 0 ? 0 : static_cast<int64_t>(system.size()));
      append(agent, first.tokens);
      desk.add_turn(agent, desk.text(800));
      desk.ask(agent, 40, 8);
    }
    Tokens title;
    desk.add_turn(title, desk.text(300));
    desk.ask(title, 20);
  }
  EXPECT_GT(office.core.counts().n_evicted_snapshots, 0);
}

TEST(Soak, sixty_turns_beside_a_stream_equal_the_same_alone) {
  const auto converse = [](bool has_stream) {
    Office office(1200, 32, 32'768, 2);
    Desk& desk = office.desk;
    std::shared_ptr<TraceReply> stream;
    if (has_stream) stream = desk.submit(desk.text(100), 20'000, 3);
    Office other(1, 1, 64, 9);
    Desk& texts = other.desk;  // the turns are the same with the stream and without
    Tokens conversation = {kTurn};
    std::vector<Tokens> replies;
    for (int turn = 0; turn < 60; ++turn) {
      desk.add_turn(conversation, texts.text(texts.between(10, 300)));
      replies.push_back(desk.ask(conversation, 50, 11).tokens);
      append(conversation, replies.back());
    }
    EXPECT_TRUE(!has_stream || !stream->is_done);
    return replies;
  };
  EXPECT_EQ(converse(true), converse(false));
}

TEST(Soak, every_page_and_slot_comes_back_after_20000_requests) {
  Office office(200, 16, 4096, 4);
  Desk& desk = office.desk;
  Tokens conversation = {kTurn};
  for (int i = 0; i < 20'000; ++i) {
    Tokens prompt = i % 3 == 0 ? desk.text(desk.between(1, 200)) : conversation;
    if (i % 3 != 0) desk.add_turn(prompt, desk.text(desk.between(1, 60)));
    const TraceReply reply = desk.ask(prompt, desk.between(1, 8), static_cast<uint64_t>(i));
    if (i % 3 != 0) {
      conversation = prompt;
      append(conversation, reply.tokens);
      if (conversation.size() > 3000) conversation = {kTurn};
    }
  }
  desk.core().check_invariants();
  const Engine::Counts counts = desk.core().counts();
  EXPECT_EQ(counts.n_free_pages, counts.n_pages);
  EXPECT_EQ(counts.n_free_slots, counts.n_slots);
  EXPECT_EQ(counts.n_requests, 20'000);
}

// Who reads a reply knows sooner than the engine that it has ended, and says so some rows later.
TEST(CutReplies, the_next_turn_goes_on_behind_the_token_where_the_reader_cut) {
  for (const int n_late : {0, 1, 2, 5, 30}) {
    Office office(200, 16, 4096, 8);
    Desk& desk = office.desk;
    EngineRequest first;
    first.prompt = desk.text(150);
    first.new_tokens_max = 200;
    first.ignore_end_tokens = true;
    const Tokens whole = desk.ask(first.prompt, 60).tokens;
    const auto cut =
        static_cast<int64_t>(std::find(whole.begin(), whole.end(), whole[9]) - whole.begin() + 1);
    first.cache_salt = {9, 9};
    first.place_token = whole[static_cast<size_t>(cut) - 1];
    int64_t n_kept = 0;
    auto sequence = EngineCore::make_sequence(
        first, [&](const EngineEvent& event) { n_kept = event.n_generated; }, office.core.options(),
        0);
    sequence->id = 1000;
    office.core.add(std::move(sequence));
    while (n_kept < cut + n_late) desk.step();
    office.core.cancel(1000);
    desk.step();
    EngineRequest next = first;
    next.prompt.insert(next.prompt.end(), whole.begin(), whole.begin() + cut);
    next.prompt.push_back(kTurn);
    int64_t n_cached = 0;
    sequence = EngineCore::make_sequence(
        next, [&](const EngineEvent& event) { n_cached = event.n_cached; }, office.core.options(),
        0);
    office.core.add(std::move(sequence));
    while (office.core.has_work()) desk.step();
    // At once: the row of the newest token has not run.
    const int64_t n_rows = n_late == 0 ? 2 : 1;
    EXPECT_EQ(n_cached, static_cast<int64_t>(next.prompt.size()) - n_rows) << n_late;
    office.core.check_invariants();
  }
}

TEST(EqualPrompts, the_waiter_takes_over_where_the_first_was_cancelled) {
  Office office(200, 16, 8192, 6);
  Desk& desk = office.desk;
  const Tokens prompt = desk.text(1500);
  const auto first = desk.submit(prompt, 4), second = desk.submit(prompt, 4);
  desk.step();
  desk.step();
  EXPECT_EQ(desk.core().counts().n_running, 1);
  EXPECT_EQ(desk.core().counts().n_waiting, 1);
  desk.core().cancel(1);
  while (!second->is_done) desk.step();
  EXPECT_EQ(first->end.finish, Finish::kCancelled);
  EXPECT_EQ(second->end.n_cached, 1024);  // two steps of 512 rows
  EXPECT_EQ(second->tokens.size(), 4u);
}

// Four conversations start behind a running stream, shortest last; nobody waits for ever.
TEST(Fairness, a_stream_of_short_prompts_does_not_starve_a_long_one) {
  Office office(1200, 16, 32'768, 5);
  Desk& desk = office.desk;
  const auto running = desk.submit(desk.text(50), 4'000);
  while (running->tokens.empty()) desk.step();
  const auto long_one = desk.submit(desk.text(20'000), 4);
  std::vector<std::shared_ptr<TraceReply>> short_ones;
  int n_before = 0;
  for (int i = 0; !long_one->is_done && i < 3'000; ++i) {
    if (i % 2 == 0) short_ones.push_back(desk.submit(desk.text(600), 2));
    desk.step();
  }
  ASSERT_TRUE(long_one->is_done);
  for (const auto& reply : short_ones)
    n_before += reply->is_done && reply->end.first_token_ns < long_one->end.first_token_ns;
  while (!running->is_done) desk.step();
  EXPECT_GT(n_before, 0);
  EXPECT_LE(n_before, 8 + 4);  // and those that ran already when it was due
  EXPECT_LE(running->end.gap_max_ns, 260'000'000);
}

// Steps cost what they cost on two cores at 35B, rows behind long contexts more, and each a tenth
// more at random. Long prompts come, short ones, and a long one again, for which only the end is
// computed.
TEST(Fairness, a_stream_keeps_its_gap_beside_prompts_of_any_length_though_steps_are_late) {
  const int64_t step_ns = 10'000'000, row_ns = 4'500'000;
  Office office(1200, 16, 32'768, 5,
                {.step_ns = step_ns, .row_ns = row_ns, .attended_ns = 200, .noise = 0.1}, 1);
  Desk& desk = office.desk;
  const auto running = desk.submit(desk.text(50), 4'000);
  while (running->tokens.empty()) desk.step();
  Tokens known = desk.text(14'000);
  desk.ask(desk.text(300), 2);
  desk.ask(known, 2);
  for (int i = 0; i < 3; ++i) {
    desk.ask(desk.text(700), 2);
    append(known, desk.text(600));
    EXPECT_GE(desk.ask(known, 2).end.n_cached, 13'000);
  }
  const int64_t n_steps = office.core.counts().n_steps;
  desk.core().cancel(1);
  while (!running->is_done) desk.step();
  EXPECT_LE(running->end.gap_max_ns, 250'000'000);
  // Care costs the prompts something, not much.
  EXPECT_LT(n_steps, 650);
}

// Files grow as fast as their budget lets them, whatever there is to write, and in the end hold it.
TEST(PrefixDiskBudget, writes_no_faster_than_its_budget) {
  constexpr uint64_t kBytesPerSecond = 20'000;
  std::string folder = (std::filesystem::temp_directory_path() / "roost-budget-XXXXXX").string();
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  Office office(400, 32, 4096, 7);
  auto files = PrefixFiles::open({.folder = folder,
                                  .bytes_max = 10'000'000,
                                  .free_min = 0,
                                  .identity = "fake",
                                  .page_bytes = office.runner.page_bytes(),
                                  .snapshot_bytes = office.runner.snapshot_bytes()});
  ASSERT_TRUE(files);
  testing::SideWorkByHand side;
  office.core.keep_in(**files, side, kBytesPerSecond);
  Desk& desk = office.desk;
  for (int i = 0; i < 10; ++i) desk.ask(desk.text(1000), 2);
  const int64_t from = office.clock.now_ns();
  const auto n_bytes = [&] { return office.core.counts().n_cache_file_bytes; };
  const int64_t n_before = n_bytes();
  for (int i = 0; i < 3000; ++i) {
    desk.step();
    side.finish();
    office.clock.advance(10'000'000);
    const double seconds = static_cast<double>(office.clock.now_ns() - from) * 1e-9;
    // Heads and keys of files are not counted, and are half of what a fake page has; the first
    // entry comes at once.
    EXPECT_LE(static_cast<double>(n_bytes() - n_before), 1.6 * kBytesPerSecond * seconds + 25'000);
  }
  EXPECT_GT(n_bytes(), 80'000);
  EXPECT_EQ(office.core.disk()->next_ns(), PrefixDisk::kNever);
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace roost
