#include "engine/prefix_host.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace roost {
namespace {

int32_t parent_of(const std::vector<int32_t>& path) {
  return path.empty() ? -1 : path.back();
}

// The keys of page p of a path.
std::span<const int32_t> keys_of_page(std::span<const int32_t> keys, size_t p) {
  const auto rest = keys.subspan(p * kTreePageTokens);
  return rest.first(std::min<size_t>(rest.size(), kTreePageTokens));
}

}  // namespace

PrefixHost::PrefixHost(const Options& options, PrefixTree& tree, StepRunner& runner,
                       const Clock& clock)
    : options_(options),
      tree_(tree),
      runner_(runner),
      clock_(clock),
      host_(options.n_pages, options.n_snapshots),
      pages_(static_cast<size_t>(options.n_pages) * runner.page_bytes()),
      states_(static_cast<size_t>(options.n_snapshots) * runner.snapshot_bytes()) {
  const auto n_keys = static_cast<size_t>(options_.context_max);
  const size_t n_pages = n_keys / kTreePageTokens + 1;
  for (auto* keys : {&kept_.keys, &restore_.keys}) keys->reserve(n_keys);
  for (auto* pages : {&kept_.pages, &path_, &old_path_, &restore_.host_pages, &restore_.pages,
                      &hit_pages_, &host_pages_})
    pages->reserve(n_pages);
}

std::span<std::byte> PrefixHost::page_at(int32_t page) const {
  const size_t n_bytes = runner_.page_bytes();
  return {pages_.data() + static_cast<size_t>(page) * n_bytes, n_bytes};
}

std::span<std::byte> PrefixHost::state_at(int32_t snapshot) const {
  const size_t n_bytes = runner_.snapshot_bytes();
  return {states_.data() + static_cast<size_t>(snapshot) * n_bytes, n_bytes};
}

// The last page first: a page's children leave before it.
void PrefixHost::release(PrefixTree& tree, std::vector<int32_t>& path) {
  for (; !path.empty(); path.pop_back()) tree.release_page(path.back());
}

void PrefixHost::advance(bool has_running) {
  n_left_ = static_cast<int64_t>(options_.bytes_per_call);
  if (restore_.id != 0) return read_on();
  const int64_t now = clock_.now_ns();
  if (has_running && now < next_write_ns_) return;
  const int64_t n_before = n_left_;
  while (n_left_ > 0 && write_on()) continue;
  const auto n_copied = static_cast<double>(n_before - n_left_);
  next_write_ns_ = now;
  if (has_running)
    next_write_ns_ +=
        static_cast<int64_t>(1e9 * n_copied / static_cast<double>(options_.write_bytes_per_s));
}

int64_t PrefixHost::next_ns() const {
  if (restore_.id != 0) return clock_.now_ns();
  return tree_.has_unsaved(LowerTier::kHost) ? next_write_ns_ : kNever;
}

// ---- To the host --------------------------------------------------------------------------------

// Goes on with the most valuable state that the host lacks: the pages that it lacks too, then the
// state. A state that has gone before it was whole leaves nothing. False: nothing is left to copy.
bool PrefixHost::write_on() {
  const int32_t snapshot = tree_.best_unsaved(LowerTier::kHost);
  if (snapshot < 0) {
    release(host_, path_);
    return false;
  }
  tree_.kept(snapshot, kept_);
  const std::span<const int32_t> keys(kept_.keys);
  const auto position = static_cast<int64_t>(keys.size());
  const bool is_known = host_.find(kept_.salt, keys, position, hit_pages_).n_tokens == position;
  std::swap(path_, old_path_);
  while (!is_known && keys.size() >= (path_.size() + 1) * kTreePageTokens) {
    const int32_t page =
        host_.find_full(kept_.salt, parent_of(path_), keys_of_page(keys, path_.size()));
    if (page < 0) break;
    host_.hold_page(page);
    path_.push_back(page);
  }
  release(host_, old_path_);
  bool has_room = !is_known;
  while (has_room && path_.size() < kept_.pages.size()) {
    if (n_left_ <= 0) return true;
    const std::optional<int32_t> page = host_.take_page();
    has_room = page.has_value();
    if (!has_room) break;
    const size_t p = path_.size();
    runner_.read_page(kept_.pages[p], page_at(*page));
    n_left_ -= static_cast<int64_t>(runner_.page_bytes());
    path_.push_back(host_.publish(kept_.salt, parent_of(path_), *page, keys_of_page(keys, p)));
  }
  if (has_room) {
    const auto copy = host_.add_snapshot(path_.back(), position, tree_.kind_of(snapshot),
                                         tree_.owner_of(snapshot));
    if (copy) {
      runner_.read_snapshot(snapshot, state_at(*copy));
      n_left_ -= static_cast<int64_t>(runner_.snapshot_bytes());
    }
  }
  tree_.mark_saved(snapshot, LowerTier::kHost);
  release(host_, path_);
  return true;
}

// ---- From the host ------------------------------------------------------------------------------

bool PrefixHost::must_wait(Sequence& s) {
  using Below = Sequence::Below;
  if (!s.uses_cache || s.in_host == Below::kNothing) return false;
  if (restore_.id == s.id) return true;
  if (restore_.id != 0 && s.in_host == Below::kWaits) return true;
  const int64_t n_max = s.n_tokens() - 1;
  const int64_t n_in_memory =
      tree_.find(s.request.cache_salt, s.tokens, n_max, hit_pages_).n_tokens;
  const PrefixTree::Hit hit = host_.find(s.request.cache_salt, s.tokens, n_max, host_pages_);
  // What is nearer than a page is computed sooner than copied.
  if (given_up_ == s.id || hit.n_tokens - n_in_memory < kTreePageTokens) {
    s.in_host = Below::kNothing;
    return false;
  }
  s.in_host = Below::kWaits;
  if (restore_.id == 0) begin_restore(s, hit, n_in_memory);
  return true;
}

void PrefixHost::begin_restore(const Sequence& s, const PrefixTree::Hit& hit, int64_t n_in_memory) {
  release(host_, path_);
  restore_.id = s.id;
  restore_.salt = s.request.cache_salt;
  restore_.keys.assign(s.tokens.begin(), s.tokens.begin() + hit.n_tokens);
  restore_.snapshot = hit.snapshot;
  host_.note_use(hit.snapshot);
  restore_.host_pages.assign(host_pages_.begin(), host_pages_.end());
  for (const int32_t page : restore_.host_pages) host_.hold_page(page);
  restore_.pages.assign(hit_pages_.begin(), hit_pages_.begin() + n_in_memory / kTreePageTokens);
  for (const int32_t page : restore_.pages) tree_.hold_page(page);
}

void PrefixHost::read_on() {
  const std::span<const int32_t> keys(restore_.keys);
  while (restore_.pages.size() < restore_.host_pages.size()) {
    if (n_left_ <= 0) return;
    const std::optional<int32_t> page = tree_.take_page();
    if (!page) {
      give_up();
      return;
    }
    const size_t p = restore_.pages.size();
    runner_.write_page(*page, page_at(restore_.host_pages[p]));
    n_left_ -= static_cast<int64_t>(runner_.page_bytes());
    restore_.pages.push_back(
        tree_.publish(restore_.salt, parent_of(restore_.pages), *page, keys_of_page(keys, p)));
  }
  // Its sequence is certain to go on from here.
  const auto position = static_cast<int64_t>(keys.size());
  const auto snapshot =
      tree_.add_snapshot(restore_.pages.back(), position, SnapshotKind::kSuspended, 0);
  if (!snapshot) {
    give_up();
    return;
  }
  runner_.write_snapshot(*snapshot, state_at(restore_.snapshot));
  tree_.mark_saved(*snapshot, LowerTier::kHost);
  ++n_restored_;
  end_restore();
}

bool PrefixHost::give_up() {
  if (restore_.id == 0) return false;
  given_up_ = restore_.id;
  const bool held_some = !restore_.pages.empty();
  end_restore();
  return held_some;
}

void PrefixHost::end_restore() {
  release(tree_, restore_.pages);
  release(host_, restore_.host_pages);
  restore_.id = 0;
}

void PrefixHost::flush() {
  give_up();
  release(host_, path_);
  host_.drop_unneeded();
}

}  // namespace roost
