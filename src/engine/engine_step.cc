// One step: which rows, the forward call, and what the drawn tokens mean for their sequences.
#include <algorithm>

#include "engine/engine_core.h"

namespace roost {

void EngineCore::step() {
  if (running_.empty()) return;
  grow_pages();
  build_step();
  drawn_.resize(logit_rows_.size());
  const int64_t from = clock_.now_ns();
  runner_.run({.tokens = tokens_,
               .positions = positions_,
               .rows = row_spans_,
               .delta_rows = delta_spans_,
               .logit_rows = logit_rows_,
               .sampling = sampling_,
               .masks = masks_},
              drawn_);
  costs_.observe(static_cast<int64_t>(tokens_.size()), clock_.now_ns() - from);
  ++counts_.n_steps;
  counts_.n_generated_tokens += static_cast<int64_t>(logit_rows_.size());
  counts_.n_prompt_tokens += static_cast<int64_t>(tokens_.size() - logit_rows_.size());

  keep_places_passed();
  for (size_t i = 0; i < drawn_.size(); ++i) {
    Sequence& s = *running_[static_cast<size_t>(logit_sequences_[i])];
    if (drawn_[i] < 0) {
      finish(s, Finish::kError,
             Error{Refusal::EngineNonfinite, "position " + std::to_string(s.n_computed)});
    } else {
      keep(s, drawn_[i]);
    }
  }
  remove_finished();
}

void EngineCore::build_step() {
  needs_.clear();
  for (const auto& s : running_) needs_.push_back(s->need(s->n_computed));
  plan_step(needs_, options_.limits, costs_, chunks_);
  tokens_.clear(), positions_.clear(), logit_rows_.clear(), logit_sequences_.clear();
  row_spans_.clear(), delta_spans_.clear(), sampling_.clear(), masks_.clear();
  for (const Chunk& chunk : chunks_) {
    add_rows(*running_[static_cast<size_t>(chunk.sequence_idx)], chunk.sequence_idx, chunk.n_rows);
  }
}

// The state is stored behind the last row, or at the next place where it is to be kept: rows behind
// that wait in the row store and are replayed by the next step. A chunk that would leave more rows
// than the row store holds ends at the place.
void EngineCore::add_rows(Sequence& s, int32_t sequence_idx, int64_t n_rows_max) {
  int64_t n_rows = n_rows_max;
  int64_t stored = s.n_computed + n_rows;
  if (const std::optional<Place> place = next_place(s); place && place->position < stored) {
    const bool fits = stored - place->position <= kReplayRowsMax;
    if (!fits && place->position > s.n_computed) n_rows = place->position - s.n_computed;
    if (fits || place->position > s.n_computed) stored = place->position;
  }
  const auto first_row = static_cast<int32_t>(tokens_.size());
  for (int64_t t = s.n_computed; t < s.n_computed + n_rows; ++t) {
    tokens_.push_back(s.tokens[static_cast<size_t>(t)]);
    positions_.insert(positions_.end(), 3, static_cast<int32_t>(t));
  }
  int32_t first_packed = 0;
  if (!delta_spans_.empty())
    first_packed = delta_spans_.back().first_packed + delta_spans_.back().n_packed();
  row_spans_.push_back({first_row, static_cast<int32_t>(n_rows), static_cast<int32_t>(s.n_computed),
                        s.pages.data()});
  delta_spans_.push_back({.first_row = first_row,
                          .n_new = static_cast<int32_t>(n_rows),
                          .n_replay = static_cast<int32_t>(s.n_computed - s.n_stored),
                          .store_after = static_cast<int32_t>(stored - s.n_stored),
                          .first_packed = first_packed,
                          .slot = s.slot});
  s.n_computed += n_rows;
  s.n_stored = stored;
  if (!s.has_started) {
    s.has_started = true;
    s.event.kind = EngineEvent::Kind::kStarted;
    s.event.started_ns = clock_.now_ns();
    s.sink(s.event);
  }
  if (s.n_computed < s.n_tokens()) return;
  logit_rows_.push_back(first_row + static_cast<int32_t>(n_rows) - 1);
  logit_sequences_.push_back(sequence_idx);
  sampling_.push_back(s.request.sampling);
  sampling_.back().position = s.n_computed;
  masks_.push_back(s.next_mask(options_.end_tokens));
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
    } else if (s.n_stored % options_.snapshot_every == 0) {
      keep_snapshot(s, SnapshotKind::kLadder);
    }
  }
}

void EngineCore::keep(Sequence& s, int32_t token) {
  const bool is_end = (!s.request.ignore_end_tokens || s.matcher) &&
                      std::find(options_.end_tokens.begin(), options_.end_tokens.end(), token) !=
                          options_.end_tokens.end();
  if (s.n_generated() == 0) note_prompt_done(s);
  if (is_end || s.is_stop_token(token)) {
    s.event.end_token = token;
    return finish(s, Finish::kEndToken);
  }
  ROOST_CHECK(!s.matcher || s.matcher->accept(token));  // the mask let it
  s.tokens.push_back(token);
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
                           other->is_background() == s.is_background();
    other->n_overtaken += is_passed && other->n_computed < other->n_prompt;
  }
}

}  // namespace roost
