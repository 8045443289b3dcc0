// One request inside the engine: its tokens, how far they are computed, and what it holds.
#pragma once

#include <algorithm>
#include <memory>
#include <span>
#include <vector>

#include "cache/prefix_tree.h"
#include "engine/engine.h"
#include "engine/scheduler.h"
#include "engine/speculation/rounds.h"

namespace roost {

// A prompt that leaves a known one further than this behind the last kept state is kept there too.
inline constexpr int64_t kBranchTokens = 256;

// A position behind which the state of a sequence is kept.
struct Place {
  int64_t position = 0;
  SnapshotKind kind = SnapshotKind::kTurn;
};

// What one sharer has had lately: rows that were run for it and tokens that it kept.
struct Share {
  Hash128 sharer;
  double n_served = 0;  // fades
};

struct Sequence final : RowHook {
  Engine::RequestId id = 0;  // in the order of arrival
  EngineRequest request;
  EventSink sink;               // empty: it has ended
  std::vector<int32_t> tokens;  // prompt and kept tokens, in order
  int64_t n_prompt = 0;
  int64_t new_tokens_max = 0;      // clamped to the context
  bool is_cut_by_context = false;  // new_tokens_max comes from the context, not from the request

  // The commit point: K/V of tokens [0, n_computed) is in the pages; the slot's state is behind
  // n_stored tokens, and the rows from there to n_computed wait in its row store.
  int64_t n_computed = 0, n_stored = 0;
  std::vector<int32_t> pages;  // its page table: every page held
  int32_t slot = -1;

  // Prefix cache.
  bool uses_cache = false;
  // What it keeps is for itself, should memory run out, and for the other choices of its prompt;
  // nothing of it outlives them.
  bool is_private = false;
  std::vector<Place> places;   // ascending; those behind n_stored have been passed
  int64_t n_published = 0;     // tokens whose pages are in the tree
  int32_t n_turns = 0;         // of its conversation before it, as the tree knows them
  int64_t n_kept = 0;          // behind which the last snapshot of it stands
  int64_t n_hit_estimate = 0;  // by a lookup when it came: for the order of the queue
  // Whether host memory and files may hold more of its prefix than the prefix tree does.
  enum class Below : uint8_t { kUnknown, kWaits, kNothing };
  Below in_host = Below::kUnknown, on_disk = Below::kUnknown;
  int64_t on_disk_since_ns = 0;  // when it was first asked

  StreamDrafts drafts;

  // Queue.
  Share* share = nullptr;  // of its sharer, in the engine
  bool is_queued = true;   // not admitted yet: counts against the queue's limit
  bool has_started = false;
  bool is_cancelled = false;
  int32_t n_overtaken = 0;
  // The running sequence that shares the longest prefix with this waiting one, as of an epoch.
  Sequence* leader = nullptr;
  int64_t n_shared = 0, leader_epoch = -1;

  // What the request changes in its rows of logits, and wants to know of them.
  PenaltyHistory history;
  BudgetState budget;
  std::vector<int32_t> ending;              // tokens that end the reply
  size_t n_ends_of_model = 0;               // of them, the first ones: not named by the request
  std::vector<float> raw_logits;            // of the row in work, where logprobs are asked for
  double log_total = 0;                     // of that row, ln(sum e^z)
  std::unique_ptr<GrammarMatcher> matcher;  // of a reply that follows a grammar
  TokenMask allowed;
  // Where the times of its masks are counted, from when it is added.
  const Clock* clock = nullptr;
  Counted<kSecondBounds.size()>* mask_seconds = nullptr;

  // Of the step, in rows that the sequence looks at: how many were drawn, the last token of them,
  // whether it ends the reply, and what is told of each.
  int32_t n_drawn = 0, last_drawn = -1;
  bool has_drawn_end = false;
  bool breaks_grammar = false;                // by the last token, which is not kept
  std::vector<TokenLogprobs> drawn_logprobs;  // one a row; none without logprobs

  // Where the prompt is told: tokens of it whose logprobs are known or need none, those that are
  // when the step's rows are drawn, and what those rows told.
  int64_t n_told = 1, n_told_end = 1;
  std::vector<TokenLogprobs> told;
  bool has_bad_told = false;  // a row of them had a logit that is not finite
  bool tells_prompt() const { return request.tells_prompt && n_told < n_prompt; }
  bool is_telling() const { return n_told < n_told_end; }  // by the row in work

  EngineEvent event;  // reused for every event, so that a step allocates nothing
  int64_t last_tokens_ns = 0;

  int64_t n_tokens() const { return static_cast<int64_t>(tokens.size()); }
  int64_t n_generated() const { return n_tokens() - n_prompt; }
  // Takes the memory that the members above need; the request must be in its place.
  // rows_max: rows from which a step draws for it.
  void prepare_rows(int64_t vocabulary, const std::vector<int32_t>& end_tokens, size_t rows_max);
  // Rows are drawn one by one; the state above goes with them.
  bool looks_at_rows() const { return wants_logits() || matcher || !request.budget.is_off(); }
  void begin_rows() { n_drawn = 0, has_drawn_end = false; }
  bool wants_row() const override;
  bool wants_logits() const override {
    return request.top_logprobs >= 0 || !request.adjust.is_off() || request.budget.needs_content;
  }
  void before_draw(std::span<float> logits) override;
  std::span<const int32_t> held_ends() const;
  const uint32_t* mask() override;
  int32_t after_draw(int32_t drawn) override;
  // Cuts the drafts where the reply would end or leave its grammar; where the budget forces a
  // token, that one is drafted.
  void fit_drafts();

  bool is_background() const { return request.priority >= kBackgroundPriority; }
  bool ends_reply(int32_t token) const {
    return std::find(ending.begin(), ending.end(), token) != ending.end();
  }
  // As the planner sees it; computed: tokens whose rows need not run.
  SequenceNeed need(int64_t computed) const {
    return {.n_left = n_tokens() - computed,
            .n_computed = computed,
            .priority = request.priority,
            .n_served = share->n_served,
            .n_overtaken = n_overtaken,
            .arrival = id};
  }
};

}  // namespace roost
