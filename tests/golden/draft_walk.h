// The walk simulation of the bundled drafter over a known text, on the real forward pass, and what
// the golden data hold of it.
#pragma once

#include <algorithm>

#include "engine/speculation/walk.h"
#include "model/drafter.h"
#include "tests/laws/draft_run.h"

namespace roost::testing {

using Values = std::vector<double>;

inline constexpr int64_t kContext = 1024;

inline const json::Value& index() {
  static const json::Value value =
      json::parse(read_file(ROOST_SOURCE_DIR "/tests/golden/golden.json", 1 << 20).value()).value();
  return value;
}

inline Values golden(const std::string& name) {
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

inline Tokens tokens_of(const json::Value& list) {
  Tokens tokens;
  for (const json::Value& id : list.items()) tokens.push_back(static_cast<int32_t>(*id.as_int64()));
  return tokens;
}

// What a test may do wrong on purpose.
struct Faults {
  int64_t tap_shift = 0;      // layers
  bool leaks_anchor = false;  // a token's row holds the taps of the next one
};

// The drafter over one text whose taps the target has made.
class DraftRun {
 public:
  explicit DraftRun(Ops& ops, const Faults& faults = {},
                    const DrafterWeights& weights = *drafter_on_host())
      : ops_(ops),
        faults_(faults),
        drafter_(weights, *target_on_host(), ops, kContext, 16,
                 target_on_host()->config.vocabulary),
        state_(DrafterState::create(weights.config, ops.activation(), kPages)) {
    for (int32_t i = 0; i < kPages; ++i) pages_.push_back((i * 7 + 3) % kPages);
  }

  Drafter& drafter() { return drafter_; }

  // Runs the target over the text and absorbs every row.
  void read(const Tokens& text) {
    const DrafterConfig& c = drafter_.config();
    const auto n_rows = static_cast<int64_t>(text.size());
    memory_ = Buffer(static_cast<size_t>(n_rows * c.tap_width()) * size_of(ops_.activation()));
    taps_ = memory_.tensor(ops_.activation(), {n_rows, c.tap_width()});
    ModelRun run(*target_on_host(), ops_, 1, kContext, n_rows, 5);
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

  // Accepted drafts of every round over a reply, an end token included. drafts_of: how many each
  // round brings.
  Tokens walk(const Tokens& prompt, const Tokens& reply,
              const std::function<int32_t(size_t)>& drafts_of) {
    Tokens text = prompt;
    const auto n_prompt = static_cast<int32_t>(text.size());
    text.insert(text.end(), reply.begin(), reply.end());
    read(text);
    size_t round = 0;
    return simulate_walk(text, n_prompt, [&](int32_t position) {
      const int32_t n = drafts_of(round++);
      return n == 0 ? Tokens() : draft(text[static_cast<size_t>(position)], position, n + 1);
    });
  }

  Tokens walk(const Tokens& prompt, const Tokens& reply, int32_t n_rows) {
    return walk(prompt, reply, [n_rows](size_t) { return n_rows - 1; });
  }

  // The same over a golden answer.
  Tokens walk(const json::Value& answer, int32_t n_rows) {
    return walk(tokens_of(*answer.find("prompt_ids")), tokens_of(*answer.find("ids")), n_rows);
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

inline std::vector<const json::Value*> text_answers() {
  std::vector<const json::Value*> answers;
  for (const json::Value& answer : index().find("continuations")->items()) {
    if (!answer.find("name")->as_string().starts_with("picture")) answers.push_back(&answer);
  }
  return answers;
}

inline const json::Value& answer_named(const std::string& name) {
  for (const json::Value* answer : text_answers()) {
    if (answer->find("name")->as_string() == name) return *answer;
  }
  ROOST_CHECK(false);
}

}  // namespace roost::testing
