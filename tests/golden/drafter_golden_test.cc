// Fledgling's drafter against reference values that an independent program computed
// (tests/golden/README.md), and its walk over the ten golden answers.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <map>

#include "tests/golden/draft_walk.h"

namespace roost::testing {
namespace {

Values values_of(const Tensor& t) {
  Values values;
  for (int64_t i = 0; i < t.n_elements(); ++i) values.push_back(t.get(i));
  return values;
}

double largest_error(const Values& have, const Values& want) {
  double error = 0, largest = 0;
  ROOST_CHECK(have.size() == want.size());
  for (size_t i = 0; i < want.size(); ++i) {
    error = std::max(error, std::abs(have[i] - want[i]));
    largest = std::max(largest, std::abs(want[i]));
  }
  return error / largest;
}

double relative_rms(const Values& have, const Values& want) {
  double error = 0, size = 0;
  ROOST_CHECK(have.size() == want.size());
  for (size_t i = 0; i < want.size(); ++i) {
    error += (have[i] - want[i]) * (have[i] - want[i]);
    size += want[i] * want[i];
  }
  return std::sqrt(error / size);
}

// What golden stores of one draft, behind the first token of the code answer.
struct Drafted {
  std::map<std::string, Values> tensors;
  Tokens walk;
};

Drafted draft_code(Ops& ops) {
  const json::Value& answer = answer_named("code");
  const Tokens prompt = tokens_of(*answer.find("prompt_ids"));
  Drafted drafted;
  DraftRun run(ops);
  run.drafter().set_tap([&](std::string_view place, const Tensor& t) {
    drafted.tensors[std::string(place)] = values_of(t);
  });
  run.read(prompt);
  drafted.tensors["taps"] = values_of(run.taps());
  drafted.walk =
      run.draft(tokens_of(*answer.find("ids"))[0], static_cast<int32_t>(prompt.size()), 16);
  return drafted;
}

// Rows 1 to 15 of what golden has for the whole block.
Values without_anchor(const Values& rows) {
  return {rows.begin() + static_cast<std::ptrdiff_t>(rows.size() / 16), rows.end()};
}

Values logits_of_candidates(const Drafted& drafted) {
  const Values& ids = drafted.tensors.at("ids");
  const Values& logits = drafted.tensors.at("logits");
  Values chosen;
  for (size_t i = 0; i < ids.size(); ++i)
    chosen.push_back(logits[i / 16 * static_cast<size_t>(target_on_host()->config.vocabulary) +
                            static_cast<size_t>(ids[i])]);
  return chosen;
}

TEST(DrafterGolden, references_without_rounding_are_the_drafter) {
  const auto ops = make_reference_ops({.rounding = false});
  const Drafted drafted = draft_code(*ops);
  const auto expect_near = [](const char* what, const Values& have, const Values& want) {
    const double error = largest_error(have, want);
    std::printf("  %-10s largest error %.2g of the largest value\n", what, error);
    EXPECT_LE(error, 1e-5) << what;
  };
  expect_near("taps", drafted.tensors.at("taps"), golden("draft.taps"));
  expect_near("context", drafted.tensors.at("context"), golden("draft.context"));
  expect_near("hidden", drafted.tensors.at("hidden"), without_anchor(golden("draft.hidden")));
  expect_near("top_logits", logits_of_candidates(drafted), golden("draft.top_logits"));
  expect_near("scores", drafted.tensors.at("scores"), golden("draft.scores"));
  EXPECT_EQ(drafted.tensors.at("ids"), golden("draft.top_ids"));
  const Values walk = golden("draft.walk");
  EXPECT_EQ(drafted.walk, Tokens(walk.begin(), walk.end()));
}

TEST(DrafterGolden, the_cpu_backend_is_as_close_as_its_rounding_points_allow) {
  ThreadPool pool(2);
  OpsLimits limits = Qwen35::ops_limits(target_on_host()->config, kContext);
  Drafter::widen(drafter_on_host()->config, kContext, 16, limits);
  const auto cpu = make_cpu_ops(pool, limits);
  const auto rounded = make_reference_ops({.rounding = true});
  const Drafted by_cpu = draft_code(*cpu), by_reference = draft_code(*rounded);
  for (const auto& [name, want] :
       {std::pair("taps", golden("draft.taps")), std::pair("context", golden("draft.context")),
        std::pair("hidden", without_anchor(golden("draft.hidden")))}) {
    const double cpu_error = relative_rms(by_cpu.tensors.at(name), want);
    const double reference_error = relative_rms(by_reference.tensors.at(name), want);
    std::printf("  %-10s cpu %.5f  references with rounding %.5f\n", name, cpu_error,
                reference_error);
    EXPECT_LE(cpu_error, 1.5 * reference_error) << name;
  }
  const Values walk = golden("draft.walk");
  EXPECT_EQ(by_cpu.walk, Tokens(walk.begin(), walk.end()));
}

// Rounds whose accepted drafts differ from golden's because a draft of the walk is a near-tie are
// counted; all else is equal.
TEST(DrafterGolden, the_walk_over_the_answers_accepts_what_golden_accepts) {
  ThreadPool pool(2);
  OpsLimits limits = Qwen35::ops_limits(target_on_host()->config, kContext);
  Drafter::widen(drafter_on_host()->config, kContext, 16, limits);
  const auto cpu = make_cpu_ops(pool, limits);
  DraftRun run(*cpu);
  int n_walks = 0, n_equal = 0;
  int64_t n_tokens = 0, n_rounds = 0, golden_rounds = 0;
  for (const json::Value* answer : text_answers()) {
    for (const int32_t n_rows : {16, 8}) {
      const Tokens have = run.walk(*answer, n_rows);
      const Tokens want = tokens_of(*answer->find("accepted")->find(std::to_string(n_rows)));
      ++n_walks;
      n_equal += have == want;
      n_rounds += static_cast<int64_t>(have.size());
      golden_rounds += static_cast<int64_t>(want.size());
      for (const int32_t a : have) n_tokens += a + 1;
      if (have == want) continue;
      std::printf("  %s, %d rows:", answer->find("name")->as_string().c_str(), n_rows);
      for (const int32_t a : have) std::printf(" %d", a);
      std::printf(", golden");
      for (const int32_t a : want) std::printf(" %d", a);
      std::printf("\n");
    }
  }
  std::printf("  %d of %d walks equal; accept length %.3f, golden %.3f\n", n_equal, n_walks,
              static_cast<double>(n_tokens) / static_cast<double>(n_rounds),
              static_cast<double>(n_tokens) / static_cast<double>(golden_rounds));
  EXPECT_EQ(n_walks, 20);
  EXPECT_GE(n_equal, 17);
  EXPECT_NEAR(static_cast<double>(n_rounds), static_cast<double>(golden_rounds),
              0.03 * static_cast<double>(golden_rounds));
}

class DrafterLaws : public ::testing::Test {
 protected:
  DrafterLaws() {
    limits_ = Qwen35::ops_limits(target_on_host()->config, kContext);
    Drafter::widen(drafter_on_host()->config, kContext, 48, limits_);
    ops_ = make_cpu_ops(pool_, limits_);
    const json::Value& answer = answer_named("story");
    text_ = tokens_of(*answer.find("prompt_ids"));
    for (const int32_t token : tokens_of(*answer.find("ids"))) text_.push_back(token);
  }
  ThreadPool pool_{2};
  OpsLimits limits_;
  std::unique_ptr<Ops> ops_;
  Tokens text_;
};

std::vector<std::byte> bytes_of(const DrafterState& state) {
  std::vector<std::byte> bytes;
  for (const DrafterState::Pages& p : state.pages) {
    for (const Tensor& t : {p.k, p.v}) bytes.insert(bytes.end(), t.data, t.data + t.n_bytes());
  }
  return bytes;
}

TEST_F(DrafterLaws, rows_absorbed_in_any_cut_leave_the_same_state) {
  DraftRun whole(*ops_);
  whole.read(text_);
  const std::vector<std::byte> want = bytes_of(whole.state());
  for (const int32_t chunk : {1, 3, 64}) {
    DrafterState state = DrafterState::create(drafter_on_host()->config, DType::kBF16,
                                              static_cast<int32_t>(whole.pages().size()));
    const auto n_rows = static_cast<int32_t>(text_.size());
    for (int32_t first = 0; first < n_rows; first += chunk) {
      const int32_t n = std::min(chunk, n_rows - first);
      const RowSpan span{0, n, first, whole.pages().data()};
      whole.drafter().absorb(whole.taps().rows(first, n), {&span, 1}, state);
    }
    EXPECT_TRUE(bytes_of(state) == want) << "in chunks of " << chunk;
  }
}

TEST_F(DrafterLaws, drafting_changes_nothing_and_gives_the_same_again) {
  DraftRun run(*ops_);
  run.read(text_);
  const std::vector<std::byte> before = bytes_of(run.state());
  const Tokens first = run.draft(text_[60], 60, 16), again = run.draft(text_[60], 60, 16);
  EXPECT_EQ(first, again);
  EXPECT_TRUE(bytes_of(run.state()) == before);
}

TEST_F(DrafterLaws, a_block_among_others_is_drafted_as_alone) {
  DraftRun run(*ops_);
  run.read(text_);
  Drafter together(*drafter_on_host(), *target_on_host(), *ops_, kContext, 48,
                   target_on_host()->config.vocabulary);
  std::vector<DraftBlock> blocks;
  Tokens alone;
  for (const auto& [position, n_rows] : {std::pair(40, 16), std::pair(90, 5), std::pair(1, 2)}) {
    blocks.push_back({.anchor = text_[static_cast<size_t>(position)],
                      .n_rows = n_rows,
                      .position = position,
                      .context_begin = 0,
                      .page_table = run.pages().data()});
    for (const int32_t token : run.draft(blocks.back().anchor, position, n_rows))
      alone.push_back(token);
  }
  Tokens tokens(alone.size());
  together.draft(blocks, run.state(), tokens);
  EXPECT_EQ(tokens, alone);
}

TEST_F(DrafterLaws, rows_that_are_not_there_are_never_read) {
  DraftRun run(*ops_);
  run.read(text_);
  DraftBlock block{.anchor = text_[80],
                   .n_rows = 16,
                   .position = 80,
                   .context_begin = 70,
                   .page_table = run.pages().data()};
  Tokens want(15), have(15);
  run.drafter().draft({&block, 1}, run.state(), want);
  for (const DrafterState::Pages& p : run.state().pages) {
    for (const Tensor& pool : {p.k, p.v}) {
      for (int32_t t = 0; t < 70; ++t) {
        const Tensor page = pool.at(run.pages()[static_cast<size_t>(t / kPageTokens)]);
        for (int64_t head = 0; head < page.dim(0); ++head) {
          const Tensor row = page.at(head).at(t % kPageTokens);
          for (int64_t i = 0; i < row.n_elements(); ++i) row.set(i, NAN);
        }
      }
    }
  }
  run.drafter().draft({&block, 1}, run.state(), have);
  EXPECT_EQ(have, want);
  block.context_begin = block.position;  // no context at all is a context
  run.drafter().draft({&block, 1}, run.state(), have);
  for (const int32_t token : have) EXPECT_GE(token, 0);
}

}  // namespace
}  // namespace roost::testing
