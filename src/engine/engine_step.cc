// One step: which rows, the forward call, and what the drawn tokens mean for their sequences.
#include <algorithm>

#include "engine/engine_core.h"

namespace roost {
namespace {

int64_t longest_context(std::span<const RowSpan> rows) {
  int64_t longest = 0;
  for (const RowSpan& span : rows)
    longest = std::max(longest, int64_t{span.first_index} + span.n_rows);
  return longest;
}

}  // namespace

void EngineCore::step() {
  if (running_.empty()) return;
  grow_pages();
  build_step();
  const int64_t from = clock_.now_ns();
  run_rows();
  if (runner_.loss() != nullptr) return end_all();  // nothing of the step is true
  const auto n_rows = static_cast<int64_t>(tokens_.size());
  ++counts_.n_steps;
  counts_.step_rows.add(static_cast<double>(n_rows), kTokenBounds);
  counts_.n_prompt_tokens += n_rows - n_drawn_rows();

  commit_rows();
  rounds_.costs().step.record(n_rows, longest_context(row_spans_),
                              static_cast<double>(clock_.now_ns() - from) * 1e-6);
  keep_places_passed();
  tell_prompts();
  for (const Drawn& drawn : drawn_) keep_drawn(drawn);
  remove_finished();
  note_cost();
}

// Rows of the step from which replies draw.
int64_t EngineCore::n_drawn_rows() const {
  int64_t n = 0;
  for (const Drawn& drawn : drawn_)
    n += 1 + running_[static_cast<size_t>(drawn.sequence_idx)]->drafts.n_drafts;
  return n;
}

// From step to step, as the streams feel it: states that are kept or restored and drafts as well.
void EngineCore::note_cost() {
  StepWork work;
  for (const RowSpan& span : row_spans_) work = work.with(span.n_rows, span.first_index);
  const int64_t now = clock_.now_ns();
  costs_.observe(work, now - round_from_ns_);
  round_from_ns_ = now;
}

void EngineCore::run_rows() {
  drawn_tokens_.resize(logit_rows_.size());
  runner_.run({.tokens = tokens_,
               .positions = positions_,
               .rows = row_spans_,
               .delta_rows = delta_spans_,
               .logit_rows = logit_rows_,
               .sampling = sampling_,
               .hooks = hooks_},
              drawn_tokens_);
}

void EngineCore::build_step() {
  needs_.clear();
  for (const auto& s : running_) {
    needs_.push_back(s->need(s->n_computed));
    // Room for what a stream guesses grows with what it guessed last.
    if (options_.has_drafts && needs_.back().is_decoding())
      needs_.back().n_drafts = std::min(drafts_max(*s), 2 * s->drafts.n_drafts + 1);
  }
  plan_step(needs_, options_.limits, costs_, chunks_);
  fit_told_prompts();
  plan_drafts();
  tokens_.clear(), positions_.clear(), logit_rows_.clear(), drawn_.clear();
  row_spans_.clear(), delta_spans_.clear(), sampling_.clear(), hooks_.clear();
  for (const Chunk& chunk : chunks_) {
    add_rows(*running_[static_cast<size_t>(chunk.sequence_idx)], chunk.sequence_idx, chunk.n_rows);
  }
}

// Rows of a prompt that is told are drawn from, each with its logits: a step has room for so many,
// and beside those that decode only so many as its cost is known for.
void EngineCore::fit_told_prompts() {
  int64_t n_max = options_.drawn_rows_max;
  for (const SequenceNeed& need : needs_)
    if (need.is_decoding()) n_max = std::min(n_max, StepCosts::kTableRows);
  int64_t n_room = std::max<int64_t>(n_max - static_cast<int64_t>(chunks_.size()), 0);
  for (Chunk& chunk : chunks_) {
    if (!running_[static_cast<size_t>(chunk.sequence_idx)]->tells_prompt()) continue;
    chunk.n_rows = 1 + std::min(chunk.n_rows - 1, n_room);
    n_room -= chunk.n_rows - 1;
  }
}

// How many drafts a sequence could bring: of its reply, of its pages, and of the row store, in
// which all rows behind the stored state must have a place.
int32_t EngineCore::drafts_max(const Sequence& s) const {
  const int64_t of_reply = s.new_tokens_max - s.n_generated() - 1;
  const int64_t of_pages = static_cast<int64_t>(s.pages.size()) * kPageTokens - s.n_tokens();
  int64_t stored = s.n_computed;
  if (const std::optional<Place> place = next_place(s)) stored = std::min(stored, place->position);
  const int64_t of_store = kReplayRowsMax - 1 - (s.n_computed - stored);
  const int64_t n = std::min({of_reply, of_pages, of_store, int64_t{s.request.drafts_max}});
  return static_cast<int32_t>(std::max<int64_t>(n, 0));
}

// Sequences that decode guess at the tokens behind their newest one; the guesses become rows of
// this step, as far as it has room for them.
void EngineCore::plan_drafts() {
  for (const SequencePtr& s : running_) s->drafts.n_drafts = 0;
  if (!options_.has_drafts) return;
  round_streams_.clear();
  PlainStep plain;
  int64_t n_drawn = 0, n_planned = 0;
  bool has_prompt = false;
  for (const Chunk& chunk : chunks_) {
    Sequence& s = *running_[static_cast<size_t>(chunk.sequence_idx)];
    const SequenceNeed& need = needs_[static_cast<size_t>(chunk.sequence_idx)];
    plain.n_rows += chunk.n_rows;
    n_planned += need.n_drafts;
    has_prompt |= !need.is_decoding();
    const bool draws = s.n_computed + chunk.n_rows == s.n_tokens();
    n_drawn += s.tells_prompt() ? chunk.n_rows : draws;
    if (s.n_tokens() - s.n_computed != 1 || s.n_generated() == 0) continue;
    plain.context = std::max(plain.context, s.n_tokens());
    round_streams_.push_back({.state = &s.drafts,
                              .matches = &matches_[static_cast<size_t>(s.slot)],
                              .tokens = s.tokens,
                              .drafts_max = drafts_max(s),
                              .page_table = s.pages.data(),
                              .sampling = s.request.sampling});
  }
  int64_t n_room =
      std::min(options_.limits.step_rows_max - plain.n_rows, options_.drawn_rows_max - n_drawn);
  if (has_prompt) n_room = std::min(n_room, n_planned);  // prompts were cut to fit beside these
  rounds_.plan(round_streams_, plain, std::max<int64_t>(n_room, 0),
               [this](std::span<const DraftBlock> blocks, std::span<int32_t> tokens) {
                 for (const SequencePtr& s : running_) {
                   if (s->drafts.n_drafts > 0) absorb_waiting(*s);
                 }
                 runner_.draft(blocks, tokens);
               });
  for (const SequencePtr& s : running_) s->fit_drafts();
}

// The state is stored behind the last row, or at the next place where it is to be kept: rows behind
// that wait in the row store and are replayed by the next step. A chunk that would leave more rows
// than the row store holds ends at the place. Drafts may be wrong, so the state is never stored
// behind the first of them.
void EngineCore::add_rows(Sequence& s, int32_t sequence_idx, int64_t n_rows_max) {
  const int64_t n_drafts = s.drafts.n_drafts;
  int64_t n_rows = n_rows_max;
  int64_t stored = s.n_computed + (n_drafts > 0 ? 0 : n_rows);
  if (const std::optional<Place> place = next_place(s); place && place->position < stored) {
    const bool fits = n_drafts > 0 || stored - place->position <= kReplayRowsMax;
    if (!fits && place->position > s.n_computed) n_rows = place->position - s.n_computed;
    if (fits || place->position > s.n_computed) stored = place->position;
  }
  s.share->n_served += static_cast<double>(n_rows);
  const auto end_row = static_cast<int32_t>(tokens_.size()) + static_cast<int32_t>(n_rows);
  push_rows(s, n_rows, stored);
  if (s.tells_prompt()) add_told_rows(s, end_row);
  if (s.n_computed < s.n_tokens()) return;
  drawn_.push_back({sequence_idx, static_cast<int32_t>(logit_rows_.size()), 0});
  for (int32_t i = 0; i <= n_drafts; ++i) {
    logit_rows_.push_back(end_row - 1 + i);
    sampling_.push_back(s.request.sampling);
    sampling_.back().position = s.n_computed + i;
    hooks_.push_back(s.looks_at_rows() ? &s : nullptr);
  }
  s.begin_rows();
}

// Each row tells how likely the token behind it was. end_row: behind the sequence's last row.
void EngineCore::add_told_rows(Sequence& s, int32_t end_row) {
  s.n_told_end = std::min(s.n_computed + 1, s.n_prompt);
  for (int64_t token = s.n_told; token < s.n_told_end; ++token) {
    logit_rows_.push_back(end_row - static_cast<int32_t>(s.n_computed + 1 - token));
    sampling_.push_back({});
    hooks_.push_back(&s);
  }
}

// n_rows known tokens and the drafts behind them.
void EngineCore::push_rows(Sequence& s, int64_t n_rows, int64_t stored) {
  const auto first_row = static_cast<int32_t>(tokens_.size());
  const auto known = s.tokens.begin() + s.n_computed;
  const auto drafted = s.drafts.drafted();
  tokens_.insert(tokens_.end(), known, known + n_rows);
  tokens_.insert(tokens_.end(), drafted.begin(), drafted.end());
  const auto n_all = static_cast<int32_t>(tokens_.size()) - first_row;
  for (int32_t i = 0; i < n_all; ++i)
    positions_.insert(positions_.end(), 3, static_cast<int32_t>(s.n_computed) + i);
  int32_t first_packed = 0;
  if (!delta_spans_.empty())
    first_packed = delta_spans_.back().first_packed + delta_spans_.back().n_packed();
  row_spans_.push_back({first_row, n_all, static_cast<int32_t>(s.n_computed), s.pages.data()});
  delta_spans_.push_back({.first_row = first_row,
                          .n_new = n_all,
                          .n_replay = static_cast<int32_t>(s.n_computed - s.n_stored),
                          .store_after = static_cast<int32_t>(stored - s.n_stored),
                          .first_packed = first_packed,
                          .slot = s.slot});
  s.n_computed += n_rows;
  s.n_stored = stored;
  if (s.has_started) return;
  s.has_started = true;
  s.event.kind = EngineEvent::Kind::kStarted;
  s.event.started_ns = clock_.now_ns();
  s.sink(s.event);
}

// Rows of drafts that the target would have drawn itself, up to where the reply ends, are the
// sequence's own. The drafter takes in those and what was known before, and never a rejected one.
void EngineCore::commit_rows() {
  tap_rows_.clear();
  size_t next = 0;  // of drawn_, which is in the order of chunks_
  for (size_t i = 0; i < chunks_.size(); ++i) {
    Sequence& s = *running_[static_cast<size_t>(chunks_[i].sequence_idx)];
    RowSpan rows = row_spans_[i];
    const bool draws = next < drawn_.size() && drawn_[next].sequence_idx == chunks_[i].sequence_idx;
    if (draws) {
      Drawn& drawn = drawn_[next++];
      accept(s, drawn);
      rows.n_rows += drawn.n_accepted - s.drafts.n_drafts;
    }
    const bool is_plain = draws && rows.n_rows == 1 && s.drafts.n_drafts == 0;
    tap_rows_.push_back({rows, s.slot, is_plain});
  }
  runner_.absorb(tap_rows_);
}

void EngineCore::tell_prompts() {
  for (const Chunk& chunk : chunks_) {
    Sequence& s = *running_[static_cast<size_t>(chunk.sequence_idx)];
    if (s.has_bad_told) fail(s, Refusal::EngineNonfinite);
    if (!s.sink) continue;
    if (!s.told.empty()) {
      s.event.kind = EngineEvent::Kind::kPrompt;
      std::swap(s.event.logprobs, s.told);
      s.sink(s.event);
      std::swap(s.event.logprobs, s.told);
      s.told.clear();
    }
    if (s.n_generated() > 0) continue;
    s.event.kind = EngineEvent::Kind::kProgress;
    s.event.n_prompt_done = s.n_computed;
    s.sink(s.event);
  }
}

// No draft ends the reply, so only the token behind the accepted ones can.
void EngineCore::accept(const Sequence& s, Drawn& drawn) const {
  const auto drafts = s.drafts.drafted();
  const std::span chosen(drawn_tokens_.data() + drawn.first_logit, drafts.size() + 1);
  drawn.n_accepted = count_accepted(drafts, chosen);
  drawn.is_end = s.looks_at_rows() ? s.has_drawn_end
                                   : s.ends_reply(chosen[static_cast<size_t>(drawn.n_accepted)]);
}

// Before anybody reads what the drafter keeps of the sequence.
void EngineCore::absorb_waiting(const Sequence& s) {
  const TapRows rows{{0, 0, static_cast<int32_t>(s.n_computed), s.pages.data()}, s.slot, false};
  runner_.absorb({&rows, 1});
}

// The accepted drafts and the one token behind them.
void EngineCore::keep_drawn(const Drawn& drawn) {
  Sequence& s = *running_[static_cast<size_t>(drawn.sequence_idx)];
  if (!s.sink) return;  // a row of its prompt was not finite
  if (s.n_generated() == 0) {
    rounds_.begin(s.drafts);
  } else {
    Rounds::note(s.drafts, drawn.n_accepted, drawn.is_end);
  }
  s.share->n_served += drawn.n_accepted;
  for (int32_t i = 0; i <= drawn.n_accepted; ++i) {
    const int32_t token = drawn_tokens_[static_cast<size_t>(drawn.first_logit + i)];
    s.n_computed += i > 0;  // the row of the draft that this token follows
    ++counts_.n_generated_tokens;
    if (token < 0 && s.breaks_grammar) {
      ++counts_.n_grammar_violations;
      fail(s, Refusal::EngineGrammar);
    } else if (token < 0) {
      fail(s, Refusal::EngineNonfinite);
    } else if (s.new_tokens_max == 0) {
      note_prompt_done(s);
      finish(s, Finish::kLength);
    } else if (drawn.is_end && i == drawn.n_accepted) {
      if (s.n_generated() == 0) note_prompt_done(s);
      s.event.end_token = token;
      finish(s, Finish::kEndToken);
    } else {
      if (s.request.top_logprobs >= 0)
        std::swap(s.event.logprobs[0], s.drawn_logprobs[static_cast<size_t>(i)]);
      keep(s, token);
    }
  }
}

// Every sequence whose state has come to stand at a place keeps it.
void EngineCore::keep_places_passed() {
  for (const Chunk& chunk : chunks_) {
    Sequence& s = *running_[static_cast<size_t>(chunk.sequence_idx)];
    if (!s.uses_cache) continue;
    const auto place =
        std::lower_bound(s.places.begin(), s.places.end(), s.n_stored,
                         [](const Place& p, int64_t position) { return p.position < position; });
    if (place != s.places.end() && place->position == s.n_stored) {
      keep_snapshot(s, place->kind);
    } else if (!s.is_private && s.n_stored % options_.snapshot_every == 0) {
      keep_snapshot(s, SnapshotKind::kLadder);
    }
  }
}

void EngineCore::keep(Sequence& s, int32_t token) {
  if (s.n_generated() == 0) note_prompt_done(s);
  s.tokens.push_back(token);
  if (token == s.request.place_token) add_place_at_end(s);
  const int64_t now = clock_.now_ns();
  if (s.n_generated() == 1) {
    s.event.first_token_ns = now;
  } else {
    s.event.gap_max_ns = std::max(s.event.gap_max_ns, now - s.last_tokens_ns);
  }
  s.last_tokens_ns = now;
  s.event.kind = EngineEvent::Kind::kTokens;
  s.event.tokens.assign(1, token);
  s.event.n_generated = s.n_generated();
  s.sink(s.event);
  if (s.n_generated() == s.new_tokens_max)
    finish(s, s.is_cut_by_context ? Finish::kContext : Finish::kLength);
}

// Prompts that came earlier and are not done have been overtaken once more.
void EngineCore::note_prompt_done(const Sequence& s) {
  for (const SequencePtr& other : running_) {
    const bool is_passed = other->id < s.id && other->n_generated() == 0 &&
                           other->request.priority == s.request.priority;
    other->n_overtaken += is_passed && other->n_computed < other->n_prompt;
  }
}

}  // namespace roost
