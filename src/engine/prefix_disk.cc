#include "engine/prefix_disk.h"

#include <algorithm>

namespace roost {
namespace {

constexpr int64_t kWaitNsMax = 10'000'000'000;  // for files: a disk that hangs stops nobody

}  // namespace

PrefixDisk::PrefixDisk(const Options& options, PrefixTree& tree, StepRunner& runner,
                       const Clock& clock)
    : options_(options),
      tree_(tree),
      runner_(runner),
      clock_(clock),
      staging_(staging_bytes(runner.page_bytes(), runner.snapshot_bytes())) {
  const auto n_keys = static_cast<size_t>(options_.context_max);
  const size_t n_pages = n_keys / kTreePageTokens + 1;
  for (auto* keys : {&kept_.keys, &restore_.keys}) keys->reserve(n_keys);
  for (auto* pages : {&kept_.pages, &restore_.pages, &hit_pages_}) pages->reserve(n_pages);
}

void PrefixDisk::advance() {
  if (job_ != Job::kNone) {
    if (options_.side->is_busy()) return;
    take_in_job();
  }
  if (restore_.id != 0) {
    read_next();
  } else if (clock_.now_ns() >= next_write_ns_) {
    start_write();
  }
}

void PrefixDisk::take_in_job() {
  const Job ended = job_;
  job_ = Job::kNone;
  if (ended == Job::kWrite) {
    options_.files->note(write_);
    // One try: a disk that is full is not asked again and again.
    if (!write_.is_written && !write_.entry.has_state)
      tree_.mark_saved(written_snapshot_, LowerTier::kDisk);
    return;
  }
  options_.files->note(read_);
  if (restore_.id == 0) return;  // nobody waits for it any more
  const bool is_last = read_.with_state;
  if (!read_.is_good) return end_restore();  // what is left of the chain may serve
  if (!put_pages(read_.entry, is_last)) {
    give_up();
  } else if (is_last) {
    finished_ = restore_.id;
    end_restore();
  } else {
    restore_.names.pop_back();
  }
}

int64_t PrefixDisk::next_ns() const {
  if (job_ != Job::kNone) return kNever;
  return tree_.has_unsaved(LowerTier::kDisk) ? next_write_ns_ : kNever;
}

// ---- Reading ------------------------------------------------------------------------------------

bool PrefixDisk::must_wait(Sequence& s) {
  using Below = Sequence::Below;
  if (!s.uses_cache || s.on_disk == Below::kNothing) return false;
  const int64_t now = clock_.now_ns();
  if (s.on_disk == Below::kUnknown) s.on_disk_since_ns = now;
  const bool is_read_for = restore_.id == s.id;
  const bool is_late = now - s.on_disk_since_ns > kWaitNsMax;
  if (is_late && is_read_for) give_up();
  if (is_late || given_up_ == s.id) {
    s.on_disk = Below::kNothing;
    return false;
  }
  if (is_read_for || (restore_.id != 0 && s.on_disk == Below::kWaits)) return true;
  int64_t n_in_memory = 0;
  if (!is_worth_reading(s, n_in_memory)) {
    s.on_disk = Below::kNothing;
    s.event.is_from_disk = finished_ == s.id;
    return false;
  }
  s.on_disk = Below::kWaits;
  if (restore_.id == 0) begin_restore(s, n_in_memory);
  return true;
}

// A page of keys that need not be computed. Leaves the chain of entries in chain_, and the pages
// that memory has in hit_pages_.
bool PrefixDisk::is_worth_reading(const Sequence& s, int64_t& n_in_memory) {
  const int64_t n_max = s.n_tokens() - 1;
  options_.files->chain(s.request.cache_salt, s.tokens, n_max, true, chain_);
  n_in_memory = tree_.find(s.request.cache_salt, s.tokens, n_max, hit_pages_).n_tokens;
  return !chain_.empty() && chain_.back()->position - n_in_memory >= kTreePageTokens;
}

// Everything that is not in memory: the first entry begins at or before what is there.
void PrefixDisk::begin_restore(const Sequence& s, int64_t n_in_memory) {
  restore_.id = s.id;
  restore_.salt = s.request.cache_salt;
  restore_.keys.assign(s.tokens.begin(), s.tokens.begin() + chain_.back()->position);
  restore_.names.clear();
  int64_t start = 0;
  for (auto e = chain_.rbegin(); e != chain_.rend() && (*e)->position > n_in_memory; ++e) {
    restore_.names.push_back((*e)->name);
    start = (*e)->start;
  }
  restore_.pages.assign(hit_pages_.begin(), hit_pages_.begin() + start / kTreePageTokens);
  for (const int32_t page : restore_.pages) tree_.hold_page(page);
  if (job_ == Job::kNone) read_next();
}

void PrefixDisk::read_next() {
  const PrefixEntry* entry = options_.files->find(restore_.names.back());
  if (entry == nullptr) return end_restore();  // it made room for another
  read_.entry = *entry;
  read_.with_state = restore_.names.size() == 1;
  read_.bytes =
      std::span(staging_.data(), options_.files->entry_bytes(entry->n_pages(), read_.with_state));
  job_ = Job::kRead;
  options_.side->start([this] { std::as_const(*options_.files).run(read_); });
}

// Whole pages of an entry into the tree; of the last one all pages and the state. False: there is
// no room, or it does not fit here.
bool PrefixDisk::put_pages(const PrefixEntry& entry, bool is_last) {
  const auto first = static_cast<size_t>(entry.start / kTreePageTokens);
  const std::span keys(restore_.keys);
  const auto upto = keys.first(static_cast<size_t>(entry.position));
  if (first > restore_.pages.size() ||
      !(prefix_name(restore_.salt, upto, entry.has_state) == entry.name))
    return false;
  for (; restore_.pages.size() > first; restore_.pages.pop_back())
    tree_.release_page(restore_.pages.back());
  const size_t page_bytes = runner_.page_bytes();
  for (int64_t start = entry.start; start < entry.position; start += kTreePageTokens) {
    const auto n = static_cast<size_t>(std::min<int64_t>(entry.position - start, kTreePageTokens));
    if (n < kTreePageTokens && !is_last) break;
    const std::optional<int32_t> page = tree_.take_page();
    if (!page) return false;
    const size_t p = restore_.pages.size();
    runner_.write_page(*page, read_.bytes.subspan((p - first) * page_bytes, page_bytes));
    const int32_t parent = p == 0 ? -1 : restore_.pages.back();
    restore_.pages.push_back(
        tree_.publish(restore_.salt, parent, *page, keys.subspan(static_cast<size_t>(start), n)));
  }
  if (!is_last) return true;
  // Its sequence is certain to go on from here.
  const auto snapshot =
      tree_.add_snapshot(restore_.pages.back(), entry.position, SnapshotKind::kSuspended, 0);
  if (!snapshot) return false;
  runner_.write_snapshot(*snapshot, read_.bytes.last(runner_.snapshot_bytes()));
  tree_.mark_saved(*snapshot, LowerTier::kDisk);
  return true;
}

bool PrefixDisk::give_up() {
  if (restore_.id == 0) return false;
  given_up_ = restore_.id;
  const bool held_some = !restore_.pages.empty();
  end_restore();
  return held_some;
}

void PrefixDisk::end_restore() {
  // The last page first: a page's children leave before it.
  for (; !restore_.pages.empty(); restore_.pages.pop_back())
    tree_.release_page(restore_.pages.back());
  restore_.id = 0;
}

// ---- Writing ------------------------------------------------------------------------------------

// The most valuable state that no file holds, behind the pages that no entry before it holds; where
// these are many, some of them alone. False: nothing is left to write.
bool PrefixDisk::start_write() {
  const int32_t snapshot = tree_.best_unsaved(LowerTier::kDisk);
  if (snapshot < 0) return false;
  tree_.kept(snapshot, kept_);
  PrefixEntry entry{.salt = kept_.salt, .has_state = true};
  entry.position = static_cast<int64_t>(kept_.keys.size());
  PrefixFiles& files = *options_.files;
  files.chain(entry.salt, kept_.keys, entry.position, false, chain_);
  if (!chain_.empty() && chain_.back()->position == entry.position) {
    if (chain_.back()->has_state) return tree_.mark_saved(snapshot, LowerTier::kDisk), true;
    chain_.pop_back();
  }
  if (!chain_.empty()) {
    entry.parent = chain_.back()->name;
    entry.start = chain_.back()->position / kTreePageTokens * kTreePageTokens;
  }
  if (entry.n_pages() > kEntryPagesMax) {
    entry.position = entry.start + kEntryPagesMax * kTreePageTokens;
    entry.has_state = false;
  }
  const auto keys = std::span(kept_.keys).first(static_cast<size_t>(entry.position));
  entry.name = prefix_name(entry.salt, keys, entry.has_state);
  entry.keys.assign(keys.begin() + entry.start, keys.end());

  const std::span bytes(staging_.data(), files.entry_bytes(entry.n_pages(), entry.has_state));
  const size_t page_bytes = runner_.page_bytes();
  const auto first = static_cast<size_t>(entry.start / kTreePageTokens);
  for (size_t p = 0; p < static_cast<size_t>(entry.n_pages()); ++p)
    runner_.read_page(kept_.pages[first + p], bytes.subspan(p * page_bytes, page_bytes));
  if (entry.has_state) {
    runner_.read_snapshot(snapshot, bytes.last(runner_.snapshot_bytes()));
    tree_.mark_saved(snapshot, LowerTier::kDisk);
  }
  if (runner_.loss() != nullptr) return false;  // what was read is not what was kept
  written_snapshot_ = snapshot;
  const int64_t ns_of_budget = static_cast<int64_t>(
      1e9 * static_cast<double>(bytes.size()) / static_cast<double>(options_.write_bytes_per_s));
  next_write_ns_ = std::max(next_write_ns_, clock_.now_ns()) + ns_of_budget;
  if (!files.plan_write(std::move(entry), bytes, write_))
    return tree_.mark_saved(snapshot, LowerTier::kDisk), true;
  job_ = Job::kWrite;
  options_.side->start([this] { std::as_const(*options_.files).run(write_); });
  return true;
}

void PrefixDisk::end_work() {
  give_up();
  if (job_ == Job::kNone) return;
  options_.side->wait();
  take_in_job();
}

bool PrefixDisk::write_rest() {
  end_work();
  return start_write();
}

void PrefixDisk::flush() {
  end_work();
  options_.files->remove_all();
}

}  // namespace roost
