// A sequence and the prefix tree: where its state is kept, what of it others can use, and what it
// takes over from them.
#include <algorithm>

#include "engine/engine_core.h"

namespace roost {

// State is kept before the turns from which later prompts go on: behind the first one (a system
// turn, which other conversations share), before the last but one (the query that may be edited)
// and before the last (the header of the reply, which the next prompt may write differently).
// A prompt without turns that comes again is met at its end. Multiples of the spacing serve prompts
// that are cut anywhere.
void EngineCore::plan_places(Sequence& s) const {
  if (!s.uses_cache) return;
  if (s.is_private) {
    if (s.request.choices != 0) add_place(s, {s.n_prompt - 1, SnapshotKind::kTurn});
    return;
  }
  const int64_t n_ladder = s.n_prompt / options_.snapshot_every;
  s.places.reserve(s.request.places.size() + static_cast<size_t>(n_ladder) + 16);
  for (int64_t i = 1; i <= n_ladder; ++i)
    add_place(s, {i * options_.snapshot_every, SnapshotKind::kLadder});
  for (const int64_t position : s.request.places) add_place(s, {position, SnapshotKind::kTurn});
  int n_found = 0;
  for (int64_t t = s.n_prompt - 1; t > 0 && n_found < 2 && options_.turn_token >= 0; --t) {
    if (s.tokens[static_cast<size_t>(t)] != options_.turn_token) continue;
    add_place(s, {t, SnapshotKind::kTurn});
    ++n_found;
  }
  const auto from = s.tokens.begin() + 1, to = s.tokens.begin() + s.n_prompt;
  const auto second_turn = std::find(from, to, options_.turn_token);
  if (options_.turn_token >= 0 && second_turn != to)
    add_place(s, {second_turn - s.tokens.begin(), SnapshotKind::kTurn});
  const bool has_end = !s.places.empty() && s.places.back().position >= s.n_prompt - kReplayRowsMax;
  if (!has_end) add_place(s, {s.n_prompt - 1, SnapshotKind::kTurn});
}

// In order, once each; a place inside a prompt ends it by one token at least.
void EngineCore::add_place(Sequence& s, Place place) const {
  if (place.position < 1 || place.position >= s.n_tokens()) return;
  const auto at =
      std::lower_bound(s.places.begin(), s.places.end(), place,
                       [](const Place& a, const Place& b) { return a.position < b.position; });
  if (at != s.places.end() && at->position == place.position) {
    if (at->kind == SnapshotKind::kLadder) at->kind = place.kind;
    return;
  }
  s.places.insert(at, place);
}

// Behind the newest token. A step allocates nothing, so there is room for some.
void EngineCore::add_place_at_end(Sequence& s) const {
  if (s.uses_cache && !s.is_private && s.places.size() < s.places.capacity())
    s.places.push_back({s.n_tokens(), SnapshotKind::kReply});
}

// The next position behind the stored state at which it is to be kept: a place, or a multiple of
// the spacing in the reply.
std::optional<Place> EngineCore::next_place(const Sequence& s) const {
  if (!s.uses_cache) return std::nullopt;
  const auto next = std::upper_bound(
      s.places.begin(), s.places.end(), s.n_stored,
      [](int64_t position, const Place& place) { return position < place.position; });
  if (next != s.places.end()) return *next;
  if (s.is_private) return std::nullopt;
  const int64_t every = options_.snapshot_every;
  return Place{(s.n_stored / every + 1) * every, SnapshotKind::kLadder};
}

int64_t EngineCore::estimate_hit(const Sequence& s) {
  if (!s.uses_cache) return 0;
  return tree_.find(s.request.cache_salt, s.tokens, s.n_tokens() - 1, hit_pages_).n_tokens;
}

// Holds the pages up to the deepest known state and returns its snapshot; at least the last token
// is left to compute. A branch that leaves a known path far behind the last state gets a state
// where it leaves. The last page may be one of which only a part is used.
std::optional<int32_t> EngineCore::take_over_pages(Sequence& s) {
  const PrefixTree::Hit hit =
      tree_.find(s.request.cache_salt, s.tokens, s.n_tokens() - 1, hit_pages_);
  if (hit.n_known - hit.n_tokens > kBranchTokens)
    add_place(s, {hit.n_known, SnapshotKind::kBranch});
  if (hit.snapshot < 0) return std::nullopt;
  for (const int32_t page : hit_pages_) tree_.hold_page(page);
  s.pages.assign(hit_pages_.begin(), hit_pages_.end());
  s.n_computed = s.n_stored = s.n_kept = hit.n_tokens;
  s.n_published = hit.n_tokens - hit.n_tokens % kPageTokens;
  return hit.snapshot;
}

// Keeps the stored state for others, with the pages up to it.
void EngineCore::keep_snapshot(Sequence& s, SnapshotKind kind) {
  if (!s.uses_cache || s.n_stored == 0 || s.slot < 0) return;
  const int64_t position = s.n_stored;
  s.n_kept = position;
  const PrefixTree::Hit known = tree_.find(s.request.cache_salt, s.tokens, position, hit_pages_);
  if (known.n_tokens == position) {  // another one kept it
    tree_.note_use(known.snapshot);
    return;
  }
  absorb_waiting(s);
  publish(s, position);
  const auto last_page = static_cast<size_t>((position - 1) / kPageTokens);
  const auto snapshot =
      tree_.add_snapshot(s.pages[last_page], position, kind, owner_of(s), s.n_turns);
  if (!snapshot) return;
  runner_.save_state(s.slot, *snapshot);
  if (!s.is_private) return;
  for (const LowerTier tier : {LowerTier::kHost, LowerTier::kDisk})
    tree_.mark_saved(*snapshot, tier);  // it is not to be
}

uint64_t EngineCore::owner_of(const Sequence& s) {
  return s.is_private ? s.request.cache_salt.low : s.id;
}

// A salt that nobody else has, and that hashes of salts do not meet.
void EngineCore::make_private(Sequence& s) {
  constexpr uint64_t kPrivate = 0x70726976617465, kIsChoices = uint64_t{1} << 63;
  const uint64_t number = s.request.choices;
  s.request.cache_salt = {number != 0 ? number | kIsChoices : s.id, kPrivate};
  s.in_host = s.on_disk = Sequence::Below::kNothing;
}

// Of a sequence that has ended, unless another choice of its prompt goes on.
void EngineCore::drop_private(const Sequence& s) {
  if (!s.is_private || s.sink) return;
  const auto shares = [&](const SequencePtr& other) {
    return other->sink && other->request.cache_salt == s.request.cache_salt;
  };
  if (std::none_of(running_.begin(), running_.end(), shares) &&
      std::none_of(waiting_.begin(), waiting_.end(), shares))
    tree_.drop_snapshots_of(owner_of(s));
}

// As keep_snapshot, behind all that is computed: rows that wait in the row store are replayed
// first.
void EngineCore::keep_end(Sequence& s, SnapshotKind kind) {
  if (s.uses_cache && s.n_stored < s.n_computed) {
    runner_.replay(s.slot, static_cast<int32_t>(s.n_computed - s.n_stored));
    s.n_stored = s.n_computed;
  }
  keep_snapshot(s, kind);
}

// The places among the rows that wait in the row store, when no step comes that would pass them.
void EngineCore::keep_waiting_places(Sequence& s) {
  for (auto place = next_place(s); place && place->position <= s.n_computed;
       place = next_place(s)) {
    runner_.replay(s.slot, static_cast<int32_t>(place->position - s.n_stored));
    s.n_stored = place->position;
    keep_snapshot(s, place->kind);
  }
  // Of a reply that is cut behind its newest token that one's row has not run.
  const bool is_at_place = !s.places.empty() && s.places.back().position == s.n_tokens();
  if (is_at_place && s.n_generated() > 0) keep_end(s, SnapshotKind::kReply);
}

// Pages of the first `position` tokens into the tree. Where equal ones are there already, the
// sequence goes on with those: their bytes are the same (law 1).
void EngineCore::publish(Sequence& s, int64_t position) {
  for (int64_t start = s.n_published - s.n_published % kPageTokens; start < position;
       start += kPageTokens) {
    const auto p = static_cast<size_t>(start / kPageTokens);
    const auto n = static_cast<size_t>(std::min<int64_t>(position - start, kPageTokens));
    const std::span keys(s.tokens.data() + start, n);
    s.pages[p] =
        tree_.publish(s.request.cache_salt, p == 0 ? -1 : s.pages[p - 1], s.pages[p], keys);
  }
  s.n_published = std::max(s.n_published, position);
}

}  // namespace roost
