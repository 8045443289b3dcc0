// Fledgling's drafter against reference values that an independent program computed
// (tests/golden/README.md), and its walk over the ten golden answers.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>

#include "engine/speculation/walk.h"
#include "model/drafter.h"
#include "tests/model_run.h"

namespace roost {
namespace {

using testing::Feed;
using testing::ModelRun;
using Values = std::vector<double>;
using Tokens = std::vector<int32_t>;

constexpr int64_t kContext = 1024;

const json::Value& index() {
  static const json::Value value =
      json::parse(read_file(ROOST_SOURCE_DIR "/tests/golden/golden.json", 1 << 20).value()).value();
  return value;
}

Values golden(const std::string& name) {
  static const MappedFile file =
      MappedFile::open(ROOST_SOURCE_DIR "/tests/golden/golden.safetensors").value();
  static const auto entries = parse_safetensors(file.bytes(), "golden.safetensors").value();
  Values values;
  for (const TensorEntry& e : entries) {
    if (e.name != name) continue;
    const Tensor t{
        .data = const_cast<std::byte*>(e.bytes.data()), .dtype = e.dtype, .shape = e.shape};
    for (int64_t i = 0; i < t.n_elements(); ++i) values.push_back(t.get(i));
  }
  ROOST_CHECK(!values.empty());
  return values;
}

Tokens tokens_of(const json::Value& list) {
  Tokens tokens;
  for (const json::Value& id : list.items()) tokens.push_back(static_cast<int32_t>(*id.as_int64()));
  return tokens;
}

const ModelWeights& target() {
  static const auto weights = testing::load_model(ROOST_SOURCE_DIR "/models/fledgling");
  return *weights;
}

const DrafterWeights& drafter_weights() {
  static const DrafterWeights weights =
      load_drafter(ROOST_SOURCE_DIR "/models/fledgling/drafter", target()).value();
  return weights;
}

Values values_of(const Tensor& t) {
  Values values;
  for (int64_t i = 0; i < t.n_elements(); ++i) values.push_back(t.get(i));
  return values;
}

// What a test may do wrong on purpose.
struct Faults {
  int64_t tap_shift = 0;      // layers
  bool leaks_anchor = false;  // a token's row holds the taps of the next one
};

// The drafter over one text whose taps the target has made.
class DraftRun {
 public:
  explicit DraftRun(Ops& ops, const Faults& faults = {})
      : ops_(ops),
        faults_(faults),
        drafter_(drafter_weights(), target(), ops, kContext, 1, target().config.vocabulary),
        state_(DrafterState::create(drafter_weights().config, ops.activation(), kPages)) {
    for (int32_t i = 0; i < kPages; ++i) pages_.push_back((i * 7 + 3) % kPages);
  }

  Drafter& drafter() { return drafter_; }

  // Runs the target over the text and absorbs every row.
  void read(const Tokens& text) {
    const DrafterConfig& c = drafter_weights().config;
    const auto n_rows = static_cast<int64_t>(text.size());
    memory_ = Buffer(static_cast<size_t>(n_rows * c.tap_width()) * size_of(ops_.activation()));
    taps_ = memory_.tensor(ops_.activation(), {n_rows, c.tap_width()});
    ModelRun run(target(), ops_, 1, kContext, n_rows, 5);
    run.model().set_tap([&](std::string_view place, int64_t layer, const Tensor& x) {
      if (place != "residual") return;
      for (size_t i = 0; i < c.taps.size(); ++i) {
        if (c.taps[i] + 1 + faults_.tap_shift != layer) continue;
        for (int64_t t = 0; t < n_rows; ++t) {
          const int64_t from = std::min(t + faults_.leaks_anchor, n_rows - 1);
          for (int64_t h = 0; h < c.hidden; ++h)
            taps_.set(t * c.tap_width() + static_cast<int64_t>(i) * c.hidden + h,
                      x.get(from * c.hidden + h));
        }
      }
    });
    run.step({Feed{0, text}});
    const RowSpan span{0, static_cast<int32_t>(n_rows), 0, pages_.data()};
    drafter_.absorb(taps_, {&span, 1}, state_);
  }

  Tokens draft(int32_t anchor, int32_t position, int32_t n_rows) {
    Tokens tokens(static_cast<size_t>(n_rows) - 1);
    const DraftBlock block{.anchor = anchor,
                           .n_rows = n_rows,
                           .position = position,
                           .context_begin = 0,
                           .page_table = pages_.data()};
    drafter_.draft({&block, 1}, state_, tokens);
    return tokens;
  }

  // Accepted drafts of every round over a golden answer.
  Tokens walk(const json::Value& answer, int32_t n_rows) {
    Tokens text = tokens_of(*answer.find("prompt_ids"));
    const auto n_prompt = static_cast<int32_t>(text.size());
    for (const int32_t token : tokens_of(*answer.find("ids"))) text.push_back(token);
    read(text);
    return simulate_walk(text, n_prompt, [&](int32_t position) {
      return draft(text[static_cast<size_t>(position)], position, n_rows);
    });
  }

  const Tensor& taps() const { return taps_; }
  const std::vector<int32_t>& pages() const { return pages_; }
  DrafterState& state() { return state_; }

 private:
  static constexpr int32_t kPages = kContext / kPageTokens;
  Ops& ops_;
  Faults faults_;
  Drafter drafter_;
  DrafterState state_;
  std::vector<int32_t> pages_;
  Buffer memory_;
  Tensor taps_;
};

std::vector<const json::Value*> text_answers() {
  std::vector<const json::Value*> answers;
  for (const json::Value& answer : index().find("continuations")->items()) {
    if (!answer.find("name")->as_string().starts_with("picture")) answers.push_back(&answer);
  }
  return answers;
}

const json::Value& answer_named(const std::string& name) {
  for (const json::Value* answer : text_answers()) {
    if (answer->find("name")->as_string() == name) return *answer;
  }
  ROOST_CHECK(false);
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
    chosen.push_back(logits[i / 16 * static_cast<size_t>(target().config.vocabulary) +
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
  OpsLimits limits = Qwen35::ops_limits(target().config, kContext);
  Drafter::widen(drafter_weights().config, kContext, 1, limits);
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
  OpsLimits limits = Qwen35::ops_limits(target().config, kContext);
  Drafter::widen(drafter_weights().config, kContext, 1, limits);
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

int64_t rounds_of_three(Ops& ops, const Faults& faults) {
  DraftRun run(ops, faults);
  int64_t n = 0;
  for (const char* name : {"count", "code", "story"})
    n += static_cast<int64_t>(run.walk(answer_named(name), 16).size());
  return n;
}

// The walk is sensitive to what an engine can get wrong: each fault costs rounds, by far more than
// a near-tie could.
TEST(DrafterGolden, the_walk_sees_taps_of_a_neighbouring_layer_and_a_leaked_anchor) {
  ThreadPool pool(2);
  OpsLimits limits = Qwen35::ops_limits(target().config, kContext);
  Drafter::widen(drafter_weights().config, kContext, 1, limits);
  const auto cpu = make_cpu_ops(pool, limits);
  const int64_t right = rounds_of_three(*cpu, {});
  const int64_t early = rounds_of_three(*cpu, {.tap_shift = -1});
  const int64_t late = rounds_of_three(*cpu, {.tap_shift = 1});
  const int64_t leaked = rounds_of_three(*cpu, {.leaks_anchor = true});
  const int64_t blind = rounds_of_three(*cpu, {.has_no_taps = true});
  std::printf(
      "  rounds: right %ld, taps a layer early %ld, late %ld, anchor leaked %ld, none %ld\n",
      static_cast<long>(right), static_cast<long>(early), static_cast<long>(late),
      static_cast<long>(leaked), static_cast<long>(blind));
  for (const int64_t wrong : {early, late, leaked, blind}) EXPECT_GT(wrong, right + right / 10);
}

class DrafterLaws : public ::testing::Test {
 protected:
  DrafterLaws() {
    limits_ = Qwen35::ops_limits(target().config, kContext);
    Drafter::widen(drafter_weights().config, kContext, 3, limits_);
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
    DrafterState state = DrafterState::create(drafter_weights().config, DType::kBF16,
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
  Drafter together(drafter_weights(), target(), *ops_, kContext, 3, target().config.vocabulary);
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
}  // namespace roost
