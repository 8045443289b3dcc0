// Who runs: the order of the queue, memory reserved at the start, growth, and who waits when memory
// runs out.
#include <algorithm>
#include <cmath>

#include "engine/engine_core.h"

namespace roost {
namespace {

int64_t pages_of(int64_t n_tokens) {
  return (n_tokens + kPageTokens - 1) / kPageTokens;
}

}  // namespace

// The first of the queue's order runs as soon as a slot and its pages are free; nobody else takes
// what it waits for. Background work makes room for it.
void EngineCore::admit() {
  if (runner_.loss() != nullptr) return end_all();
  if (running_.empty()) round_from_ns_ = clock_.now_ns();
  end_what_is_due();
  if (host_) host_->advance(has_running());
  if (disk_) disk_->advance();
  while (const std::optional<size_t> idx = next_waiting()) {
    Sequence& s = *waiting_[*idx];
    const bool has_slot = static_cast<int32_t>(running_.size()) < options_.streams_max;
    if (has_slot && (reserve(s, true) || (running_.empty() && reserve(s, false)))) {
      enter_running(*idx);
      continue;
    }
    if (running_.empty() && give_up_copies()) continue;
    if (running_.empty()) return;
    const size_t victim = newest_of_lowest_class();
    const Sequence& lowest = *running_[victim];
    if (!lowest.is_background() || lowest.request.priority <= s.request.priority) return;
    suspend(victim);
  }
}

// In the planner's order; what waits for a prefix that another one computes or a file holds is
// passed over, and background work while anything else waits. Nothing: nobody can start.
std::optional<size_t> EngineCore::next_waiting() {
  std::optional<size_t> first;
  fade_shares();
  for (size_t i = 0; i < waiting_.size(); ++i) {
    Sequence& s = *waiting_[i];
    const auto need = s.need(s.n_hit_estimate);
    if (first &&
        !is_before(need, waiting_[*first]->need(waiting_[*first]->n_hit_estimate), options_.limits))
      continue;
    if (must_wait_for_leader(s) || must_wait_for_copies(s)) continue;
    first = i;
  }
  if (!first || !waiting_[*first]->is_background()) return first;
  const int32_t priority = waiting_[*first]->request.priority;
  const bool has_better = std::any_of(waiting_.begin(), waiting_.end(), [&](const auto& s) {
    return s->request.priority < priority;
  });
  return has_better ? std::nullopt : first;
}

// A minute leaves 1/e of what was served.
void EngineCore::fade_shares() {
  constexpr double kFadeNs = 60e9;
  const int64_t now = clock_.now_ns();
  const double left = std::exp(-static_cast<double>(now - shares_as_of_ns_) / kFadeNs);
  shares_as_of_ns_ = now;
  for (Share& share : shares_) share.n_served *= left;
}

void EngineCore::enter_running(size_t waiting_idx) {
  SequencePtr s = std::move(waiting_[waiting_idx]);
  waiting_.erase(waiting_.begin() + static_cast<int64_t>(waiting_idx));
  for (SequencePtr& other : waiting_) {
    other->n_overtaken += other->id < s->id && other->request.priority == s->request.priority;
  }
  s->is_queued = false;
  running_.push_back(std::move(s));
  ++epoch_;
}

// Whether a running sequence is about to keep a state within the prefix that both share: then this
// one waits for it, holding nothing, instead of computing it again.
bool EngineCore::must_wait_for_leader(Sequence& s) {
  if (!s.uses_cache) return false;
  if (s.leader_epoch != epoch_) {
    s.leader_epoch = epoch_;
    s.leader = nullptr;
    s.n_shared = 0;
    for (const SequencePtr& r : running_) {
      const bool computes_prompt = r->n_computed < r->n_tokens() - 1;
      if (!r->uses_cache || !computes_prompt || !(r->request.cache_salt == s.request.cache_salt))
        continue;
      const auto n = std::min(r->n_tokens(), s.n_tokens()) - 1;
      const int64_t n_shared =
          std::mismatch(s.tokens.begin(), s.tokens.begin() + n, r->tokens.begin()).first -
          s.tokens.begin();
      if (n_shared > s.n_shared) s.leader = r.get(), s.n_shared = n_shared;
    }
  }
  if (s.leader == nullptr || s.leader->n_stored >= s.n_shared) return false;
  // The deepest place that the leader has still to pass.
  int64_t deepest = 0;
  for (const Place& place : s.leader->places) {
    if (place.position <= s.n_shared) deepest = std::max(deepest, place.position);
  }
  const int64_t known = std::max(s.n_hit_estimate, s.leader->n_stored);
  if (s.n_shared - std::max(deepest, known) > kBranchTokens && s.leader->n_computed < s.n_shared) {
    add_place(*s.leader, {s.n_shared, SnapshotKind::kBranch});
    deepest = s.n_shared;
  }
  return deepest > known;
}

// Whether host memory or files hold more of its prefix, which is being brought.
bool EngineCore::must_wait_for_copies(Sequence& s) {
  return (host_ && host_->must_wait(s)) || (disk_ && disk_->must_wait(s));
}

// What is brought makes room for what runs or could. False: it holds nothing.
bool EngineCore::give_up_copies() {
  return (host_ && host_->give_up()) || (disk_ && disk_->give_up());
}

// A slot, the state to go on from, and the pages of all known tokens and the next new ones.
bool EngineCore::reserve(Sequence& s, bool with_cache) {
  if (slots_.n_free() == 0) return false;
  const int64_t new_left = s.new_tokens_max - s.n_generated();
  const int64_t n_pages = pages_of(s.n_tokens() + std::min(new_left, options_.reserved_new_tokens));
  std::optional<int32_t> snapshot;
  if (with_cache && s.uses_cache) snapshot = take_over_pages(s);
  // A page that is used in part is copied: its original stays.
  const bool has_part = snapshot && s.n_computed % kPageTokens != 0;
  if (n_pages - static_cast<int64_t>(s.pages.size()) + has_part > tree_.n_available_pages()) {
    release(s);
    return false;
  }
  s.slot = *slots_.take();
  if (options_.has_drafts) matches_[static_cast<size_t>(s.slot)].clear();
  if (!snapshot) {
    runner_.reset_slot(s.slot);
  } else if (!runner_.load_state(*snapshot, s.slot)) {
    release(s);
    ++counts_.n_rejected_snapshots;
    tree_.drop_snapshot(*snapshot);  // damaged: the next older one serves
    return reserve(s, with_cache);
  } else {
    s.n_turns = tree_.note_use(*snapshot);
    ++counts_.n_restored_snapshots;
  }
  if (has_part) {
    const int32_t original = s.pages.back(), copy = *tree_.take_page();
    runner_.copy_page(original, copy);
    s.pages.back() = copy;
    tree_.release_page(original);
  }
  while (static_cast<int64_t>(s.pages.size()) < n_pages) s.pages.push_back(*tree_.take_page());
  if (!s.has_started) {
    s.event.n_cached = s.n_computed;
    if (!s.is_private) counts_.n_cached_tokens += s.n_computed;
  }
  counts_.n_restored += s.event.is_from_disk && !s.has_started;
  tree_.tick();
  if (host_) host_->tick();
  return true;
}

void EngineCore::release(Sequence& s) {
  // The last page first: a page's children leave before it.
  while (!s.pages.empty()) {
    tree_.release_page(s.pages.back());
    s.pages.pop_back();
  }
  if (s.slot >= 0) slots_.give_back(s.slot);
  s.slot = -1;
  s.n_computed = s.n_stored = s.n_published = s.n_kept = 0;
}

// Every running sequence gets the page of its next row; cached entries go for it. When all pages
// are held, the newest sequence of the lowest class waits.
void EngineCore::grow_pages() {
  for (size_t i = 0; i < running_.size(); ++i) {
    while (i < running_.size() &&
           static_cast<int64_t>(running_[i]->pages.size()) < pages_of(running_[i]->n_tokens())) {
      if (const auto page = tree_.take_page()) {
        running_[i]->pages.push_back(*page);
        continue;
      }
      if (give_up_copies()) continue;
      // One sequence alone always fits: the context is bounded by the pages.
      ROOST_CHECK(running_.size() > 1);
      const size_t victim = newest_of_lowest_class();
      suspend(victim);
      if (victim < i) --i;
    }
  }
}

size_t EngineCore::newest_of_lowest_class() const {
  size_t newest = 0;
  for (size_t i = 1; i < running_.size(); ++i) {
    const Sequence &a = *running_[i], &b = *running_[newest];
    const bool is_lower = a.request.priority > b.request.priority;
    const bool is_same = a.request.priority == b.request.priority;
    if (is_lower || (is_same && a.id > b.id)) newest = i;
  }
  return newest;
}

// Its tokens so far become a prompt; its state is kept if there is a place for it, else computed
// again. The tokens are the same either way (law 1).
void EngineCore::suspend(size_t running_idx) {
  ++counts_.n_suspended;
  SequencePtr s = std::move(running_[running_idx]);
  running_.erase(running_.begin() + static_cast<int64_t>(running_idx));
  ++epoch_;
  keep_end(*s, SnapshotKind::kSuspended);
  release(*s);
  s->n_hit_estimate = estimate_hit(*s);
  waiting_.push_front(std::move(s));
}

}  // namespace roost
