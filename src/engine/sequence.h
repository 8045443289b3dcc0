// One request inside the engine: its tokens, how far they are computed, and what it holds.
#pragma once

#include <algorithm>
#include <memory>
#include <span>
#include <utility>
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
  std::vector<Place> places;   // ascending; those behind n_stored have been passed
  int64_t n_published = 0;     // tokens whose pages are in the tree
  int32_t n_turns = 0;         // of its conversation before it, as the tree knows them
  int64_t n_kept = 0;          // behind which the last snapshot of it stands
  int64_t n_hit_estimate = 0;  // by a lookup when it came: for the order of the queue
  // Whether files may hold more of its prefix than memory does.
  enum class OnDisk : uint8_t { kUnknown, kWaits, kNothing } on_disk = OnDisk::kUnknown;
  int64_t on_disk_since_ns = 0;  // when it was first asked

  StreamDrafts drafts;

  // Queue.
  bool is_queued = true;  // not admitted yet: counts against the queue's limit
  bool has_started = false;
  bool is_cancelled = false;
  int32_t n_overtaken = 0;
  // The running sequence that shares the longest prefix with this waiting one, as of an epoch.
  Sequence* leader = nullptr;
  int64_t n_shared = 0, leader_epoch = -1;

  // What the request changes in its rows of logits, and wants to know of them.
  PenaltyHistory history;
  BudgetState budget;
  std::vector<int32_t> end_mask;            // tokens that are not drawn before adjust.min_tokens
  std::vector<float> raw_logits;            // of the row in work, where logprobs are asked for
  double log_total = 0;                     // of that row, ln(sum e^z)
  std::unique_ptr<GrammarMatcher> matcher;  // of a reply that follows a grammar
  TokenMask mask;

  EngineEvent event;  // reused for every event, so that a step allocates nothing
  int64_t last_tokens_ns = 0;

  int64_t n_tokens() const { return static_cast<int64_t>(tokens.size()); }
  int64_t n_generated() const { return n_tokens() - n_prompt; }
  // Takes the memory that the members above need; the request must be in its place.
  void prepare_rows(int64_t vocabulary, const std::vector<int32_t>& end_tokens);
  bool has_row_work() const { return request.top_logprobs >= 0 || !request.adjust.is_off(); }
  void before_draw(std::span<float> logits) override;
  void note_kept(int32_t token);  // in the history, the budget and the event's logprobs

  bool is_background() const { return request.priority == Priority::kBackground; }
  // The ids that may come next; null when all may. What ends a reply may come when it is a whole.
  const uint32_t* next_mask(const std::vector<int32_t>& end_tokens) {
    if (!matcher) return nullptr;
    matcher->fill_mask(mask);
    if (!matcher->may_end()) return mask.data();
    for (const auto& ends : {std::span(end_tokens), std::span(std::as_const(request.stop_tokens))})
      for (const int32_t token : ends)  // ids that are never drawn may be among them
        if (static_cast<size_t>(token) < mask.size() * 32) allow_token(mask, token);
    return mask.data();
  }
  bool is_stop_token(int32_t token) const {
    return std::find(request.stop_tokens.begin(), request.stop_tokens.end(), token) !=
           request.stop_tokens.end();
  }
  // As the planner sees it; computed: tokens whose rows need not run.
  SequenceNeed need(int64_t computed) const {
    return {.n_left = n_tokens() - computed,
            .is_background = is_background(),
            .n_overtaken = n_overtaken,
            .arrival = id};
  }
};

}  // namespace roost
