// The prefix tree and its files: entries are written while nothing runs, and read back at start.
#include <algorithm>
#include <map>

#include "engine/engine_core.h"

namespace roost {

// One entry, with the pages that the nearest saved one before it does not hold.
bool EngineCore::save_one_prefix() {
  if (files_ == nullptr) return false;
  const int32_t snapshot = tree_.first_unsaved();
  if (snapshot < 0) return false;
  tree_.mark_saved(snapshot);  // one try: a full disk is not asked again and again
  const PrefixTree::Kept kept = tree_.kept(snapshot);
  PrefixFile entry;
  entry.salt = kept.salt;
  entry.position = static_cast<int64_t>(kept.keys.size());
  entry.name = prefix_name(kept.salt, kept.keys);
  if (files_->contains(entry.name)) return true;
  int64_t parent_position = 0;
  for (const PrefixFile& known : files_->entries()) {
    if (known.position <= parent_position || known.position >= entry.position) continue;
    const auto shared = std::span(kept.keys).first(static_cast<size_t>(known.position));
    if (!(known.salt == kept.salt) || !(known.name == prefix_name(kept.salt, shared))) continue;
    parent_position = known.position;
    entry.parent = known.name;
  }
  entry.start = parent_position - parent_position % kPageTokens;
  entry.keys.assign(kept.keys.begin() + entry.start, kept.keys.end());
  const size_t page_bytes = runner_.page_bytes();
  const auto n_pages = static_cast<size_t>(entry.n_pages());
  entry.bytes.resize(n_pages * page_bytes + runner_.snapshot_bytes());
  const auto first_page = static_cast<size_t>(entry.start / kPageTokens);
  for (size_t p = 0; p < n_pages; ++p) {
    runner_.read_page(kept.pages[first_page + p],
                      std::span(entry.bytes).subspan(p * page_bytes, page_bytes));
  }
  runner_.read_snapshot(snapshot, std::span(entry.bytes).subspan(n_pages * page_bytes));
  files_->write(entry);
  return true;
}

void EngineCore::flush_prefixes() {
  tree_.drop_unneeded();
  if (files_ != nullptr) files_->remove_all();
}

// The newest first, each with those that it builds on, as long as there is room.
void EngineCore::load_prefixes() {
  if (files_ == nullptr) return;
  std::vector<PrefixFile> newest = files_->entries();
  std::sort(newest.begin(), newest.end(), [](const PrefixFile& a, const PrefixFile& b) {
    return a.written_order > b.written_order;
  });
  std::map<std::pair<uint64_t, uint64_t>, const PrefixFile*> by_name;
  for (const PrefixFile& entry : newest) by_name[{entry.name.high, entry.name.low}] = &entry;
  const auto find = [&](const Hash128& name) {
    const auto at = by_name.find({name.high, name.low});
    return at == by_name.end() ? nullptr : at->second;
  };
  for (const PrefixFile& tip : newest) {
    std::vector<const PrefixFile*> chain;
    for (const PrefixFile* e = &tip; e != nullptr; e = find(e->parent)) {
      if (!chain.empty() && e->position >= chain.back()->position) break;  // no chain, a circle
      chain.push_back(e);
    }
    LoadedPath path;
    for (auto e = chain.rbegin(); e != chain.rend(); ++e) {
      if (!load_prefix(**e, path)) break;
    }
  }
}

// Adds an entry behind the path of the one before it. False: it is damaged, does not fit there, or
// there is no room.
bool EngineCore::load_prefix(const PrefixFile& index, LoadedPath& path) {
  if (index.start > static_cast<int64_t>(path.keys.size())) return false;
  path.keys.resize(static_cast<size_t>(index.start));
  path.keys.insert(path.keys.end(), index.keys.begin(), index.keys.end());
  const auto position = static_cast<int64_t>(path.keys.size());
  const PrefixTree::Hit hit = tree_.find(index.salt, path.keys, position, hit_pages_);
  if (hit.n_tokens == position) return path.pages = hit_pages_, true;  // loaded with another tip
  if (!(prefix_name(index.salt, path.keys) == index.name)) return false;
  if (position > options_.context_max || tree_.n_free_pages() < index.n_pages() ||
      tree_.n_free_snapshots() == 0)
    return false;
  const Result<PrefixFile> entry = files_->read(index.name);
  if (!entry || !(entry->keys == index.keys)) return false;

  const auto first_page = static_cast<size_t>(index.start / kPageTokens);
  path.pages.resize(first_page);
  const std::span bytes(entry->bytes);
  const size_t page_bytes = runner_.page_bytes();
  for (int64_t start = index.start; start < position; start += kPageTokens) {
    const auto p = path.pages.size();
    const int32_t page = *tree_.take_page();
    runner_.write_page(page, bytes.subspan((p - first_page) * page_bytes, page_bytes));
    const auto n = static_cast<size_t>(std::min<int64_t>(position - start, kPageTokens));
    path.pages.push_back(
        tree_.publish(index.salt, p == 0 ? -1 : path.pages[p - 1], page,
                      std::span(path.keys).subspan(static_cast<size_t>(start), n)));
  }
  const auto snapshot = tree_.add_snapshot(path.pages.back(), position, SnapshotKind::kTurn, 0);
  if (snapshot) {
    runner_.write_snapshot(*snapshot, bytes.subspan(bytes.size() - runner_.snapshot_bytes()));
    tree_.mark_saved(*snapshot);
  }
  for (auto p = path.pages.size(); p > first_page; --p) tree_.release_page(path.pages[p - 1]);
  return snapshot.has_value();
}

}  // namespace roost
