#include "cache/prefix_tree.h"

#include <algorithm>
#include <bit>
#include <limits>

#include "base/check.h"

namespace roost {
namespace {

constexpr double kHalfAge = 64;  // requests after which the chance of reuse has halved
constexpr int32_t kUsesMax = 3;  // more uses say nothing more
// A conversation that came back so often comes back once more: its front outlives the states of
// sub-agents, which are used once or twice and then never.
constexpr int32_t kTurnsMax = 6;

double weight_of(SnapshotKind kind) {
  switch (kind) {
    case SnapshotKind::kLadder:
      return 0.25;  // met only by prompts that are cut somewhere
    case SnapshotKind::kBorder:
      return 0.5;
    case SnapshotKind::kTurn:
    case SnapshotKind::kBranch:
    case SnapshotKind::kReply:
      return 1;
    case SnapshotKind::kSuspended:
      return 16;  // its sequence is certain to come back
  }
  return 0;
}

int64_t n_common(std::span<const int32_t> a, std::span<const int32_t> b) {
  const size_t n = std::min(a.size(), b.size());
  return std::mismatch(a.begin(), a.begin() + static_cast<int64_t>(n), b.begin()).first - a.begin();
}

uint64_t hash_of(const Hash128& salt, int32_t parent, std::span<const int32_t> keys) {
  const uint64_t seed =
      parent < 0 ? salt.low ^ (salt.high * 0x9E3779B97F4A7C15) : static_cast<uint64_t>(parent) + 1;
  return xxh3_128(std::as_bytes(keys), seed).low;
}

}  // namespace

PrefixTree::PrefixTree(int32_t n_pages, int32_t n_snapshots)
    : nodes_(at(n_pages)),
      snapshots_(at(n_snapshots)),
      index_(std::bit_ceil(2 * at(std::max(n_pages, 1))), -1) {
  free_.reserve(nodes_.size());
  for (int32_t page = n_pages - 1; page >= 0; --page) free_.push_back(page);
  free_snapshots_.reserve(snapshots_.size());
  for (int32_t s = n_snapshots - 1; s >= 0; --s) free_snapshots_.push_back(s);
  path_.reserve(nodes_.size());
}

// ---- Pages --------------------------------------------------------------------------------------

std::optional<int32_t> PrefixTree::take_page() {
  while (free_.empty()) {
    if (!evict_for_page()) return std::nullopt;
  }
  const int32_t page = free_.back();
  free_.pop_back();
  node(page).n_holders = 1;
  ++n_held_;
  return page;
}

void PrefixTree::hold_page(int32_t page) {
  Node& n = node(page);
  ROOST_CHECK(n.n_holders > 0 || n.is_in_tree);
  n_held_ += n.n_holders == 0;
  ++n.n_holders;
}

void PrefixTree::release_page(int32_t page) {
  Node& n = node(page);
  ROOST_CHECK(n.n_holders > 0);
  if (--n.n_holders > 0) return;
  --n_held_;
  if (n.is_in_tree) {
    free_if_dead(page);
  } else {
    free_.push_back(page);
  }
}

// Frees a node that nobody holds and no prompt can resume from, then its parents of which the same
// has become true.
void PrefixTree::free_if_dead(int32_t page) {
  while (page >= 0) {
    const Node& n = node(page);
    if (n.n_holders > 0 || n.first_child >= 0 || n.first_snapshot >= 0) return;
    const int32_t parent = n.parent;
    unlink(page);
    free_.push_back(page);
    page = parent;
  }
}

void PrefixTree::link(int32_t page, int32_t parent) {
  Node& n = node(page);
  int32_t& first = first_child_of(parent);
  n.is_in_tree = true;
  n.parent = parent;
  n.start = parent < 0 ? 0 : node(parent).start + kTreePageTokens;
  n.previous = -1;
  n.next = first;
  if (first >= 0) node(first).previous = page;
  first = page;
}

void PrefixTree::unlink(int32_t page) {
  Node& n = node(page);
  ROOST_CHECK(n.first_child < 0 && n.first_snapshot < 0);
  if (n.n_keys == kTreePageTokens) unindex(page);
  if (n.previous >= 0) {
    node(n.previous).next = n.next;
  } else {
    first_child_of(n.parent) = n.next;
  }
  if (n.next >= 0) node(n.next).previous = n.previous;
  n.is_in_tree = false;
  n.n_keys = 0;
  n.parent = n.next = n.previous = -1;
}

// ---- Index --------------------------------------------------------------------------------------

int32_t PrefixTree::find_full(const Hash128& salt, int32_t parent,
                              std::span<const int32_t> keys) const {
  const uint64_t hash = hash_of(salt, parent, keys);
  const size_t mask = index_.size() - 1;
  for (size_t i = hash & mask; index_[i] >= 0; i = (i + 1) & mask) {
    const Node& n = node(index_[i]);
    if (n.hash == hash && n.parent == parent && (parent >= 0 || n.salt == salt) &&
        std::equal(keys.begin(), keys.end(), n.keys.begin()))
      return index_[i];
  }
  return -1;
}

void PrefixTree::index(int32_t page) {
  Node& n = node(page);
  n.hash = hash_of(n.salt, n.parent, n.keys);
  const size_t mask = index_.size() - 1;
  size_t i = n.hash & mask;
  while (index_[i] >= 0) i = (i + 1) & mask;
  index_[i] = page;
}

// Takes the entry out and moves back those behind it that a lookup would no longer reach.
void PrefixTree::unindex(int32_t page) {
  const size_t mask = index_.size() - 1;
  size_t hole = node(page).hash & mask;
  while (index_[hole] != page) hole = (hole + 1) & mask;
  index_[hole] = -1;
  for (size_t i = (hole + 1) & mask; index_[i] >= 0; i = (i + 1) & mask) {
    const size_t home = node(index_[i]).hash & mask;
    if (((i - home) & mask) < ((i - hole) & mask)) continue;
    index_[hole] = index_[i];
    index_[i] = -1;
    hole = i;
  }
}

// ---- Lookup -------------------------------------------------------------------------------------

PrefixTree::Hit PrefixTree::find(const Hash128& salt, std::span<const int32_t> keys, int64_t n_max,
                                 std::vector<int32_t>& pages) {
  pages.clear();
  path_.clear();
  Hit hit;
  const auto n_keys = static_cast<int64_t>(keys.size());
  n_max = std::min(n_max, n_keys);
  for (int32_t parent = -1; hit.n_known + kTreePageTokens <= n_keys;) {
    parent =
        find_full(salt, parent, keys.subspan(static_cast<size_t>(hit.n_known), kTreePageTokens));
    if (parent < 0) break;
    path_.push_back(parent);
    hit.n_known += kTreePageTokens;
  }
  // From the deepest level up: among the children there, the snapshot that stands furthest within
  // the keys that they share with the prompt. The first level that has one has the deepest.
  const int64_t n_full = hit.n_known;
  for (auto level = static_cast<int64_t>(path_.size()); level >= 0 && hit.snapshot < 0; --level) {
    const int64_t start = level * kTreePageTokens;
    const int32_t parent = level == 0 ? -1 : path_[static_cast<size_t>(level - 1)];
    const auto rest = keys.subspan(static_cast<size_t>(start));
    for (int32_t c = first_child_of(parent); c >= 0; c = node(c).next) {
      const Node& child = node(c);
      if (level == 0 && !(child.salt == salt)) continue;
      if (start < n_full && child.first_snapshot < 0) continue;  // it cannot add to what is known
      const int64_t n = n_common({child.keys.data(), static_cast<size_t>(child.n_keys)}, rest);
      hit.n_known = std::max(hit.n_known, start + n);
      for (int32_t s = child.first_snapshot; s >= 0; s = snapshots_[at(s)].next) {
        const int64_t position = snapshots_[at(s)].position;
        if (position > std::min(start + n, n_max) || position <= hit.n_tokens) continue;
        hit.n_tokens = position;
        hit.snapshot = s;
      }
    }
    if (hit.snapshot < 0) continue;
    pages.assign(path_.begin(), path_.begin() + level);
    pages.push_back(snapshots_[at(hit.snapshot)].page);
  }
  return hit;
}

// ---- Filling ------------------------------------------------------------------------------------

int32_t PrefixTree::publish(const Hash128& salt, int32_t parent, int32_t page,
                            std::span<const int32_t> keys) {
  Node& n = node(page);
  const auto n_keys = static_cast<int32_t>(keys.size());
  ROOST_CHECK(n.n_holders > 0 && n_keys <= kTreePageTokens &&
              (parent < 0 || node(parent).n_keys == kTreePageTokens));
  if (n.is_in_tree && n.n_keys >= n_keys) return page;
  if (n_keys == kTreePageTokens) {
    const int32_t same = find_full(salt, parent, keys);
    if (same >= 0) {
      hold_page(same);
      if (n.is_in_tree) {
        move_snapshots(page, same);
        unlink(page);
      }
      release_page(page);
      return same;
    }
  }
  if (!n.is_in_tree) {
    n.salt = salt;
    link(page, parent);
  }
  ROOST_DCHECK(n.parent == parent &&
               std::equal(n.keys.begin(), n.keys.begin() + n.n_keys, keys.begin()));
  std::copy(keys.begin() + n.n_keys, keys.end(), n.keys.begin() + n.n_keys);
  n.n_keys = n_keys;
  if (n_keys == kTreePageTokens) index(page);
  return page;
}

// Of two snapshots of one place the one that is there stays.
void PrefixTree::move_snapshots(int32_t from, int32_t to) {
  while (node(from).first_snapshot >= 0) {
    const int32_t id = node(from).first_snapshot;
    Snapshot& moved = snapshots_[at(id)];
    node(from).first_snapshot = moved.next;
    bool is_there = false;
    for (int32_t s = node(to).first_snapshot; s >= 0; s = snapshots_[at(s)].next)
      is_there |= snapshots_[at(s)].position == moved.position;
    if (is_there) {
      moved.page = -1;
      free_snapshots_.push_back(id);
      continue;
    }
    moved.page = to;
    moved.next = node(to).first_snapshot;
    node(to).first_snapshot = id;
  }
}

std::optional<int32_t> PrefixTree::add_snapshot(int32_t page, int64_t position, SnapshotKind kind,
                                                uint64_t owner, int32_t n_turns) {
  Node& n = node(page);
  ROOST_CHECK(n.is_in_tree && position > n.start && position <= n.start + n.n_keys);
  Snapshot fresh{.page = page, .kind = kind, .position = position, .last_use = now_};
  fresh.owner = owner;
  fresh.n_turns = std::min(n_turns, kTurnsMax);
  for (int32_t s = n.first_snapshot; s >= 0; s = snapshots_[at(s)].next) {
    if (snapshots_[at(s)].position == position) return std::nullopt;
  }
  if (free_snapshots_.empty()) {
    if (snapshots_.empty()) return std::nullopt;
    int32_t least = -1;
    double least_value = static_cast<double>(position - position_before(fresh)) * weight_of(kind) *
                         (1 + fresh.n_turns);
    for (int32_t s = 0; s < n_snapshots(); ++s) {
      const double value = value_of(s);
      if (value < least_value) least = s, least_value = value;
    }
    if (least < 0) return std::nullopt;
    ++n_evicted_snapshots_;
    drop_snapshot(least);
  }
  const int32_t id = free_snapshots_.back();
  free_snapshots_.pop_back();
  fresh.next = n.first_snapshot;
  n.first_snapshot = id;
  snapshots_[at(id)] = fresh;
  ++n_added_snapshots_;
  return id;
}

void PrefixTree::drop_snapshot(int32_t snapshot) {
  Snapshot& dropped = snapshots_[at(snapshot)];
  ROOST_CHECK(dropped.page >= 0);
  const int32_t page = dropped.page;
  int32_t* link = &node(page).first_snapshot;
  while (*link != snapshot) link = &snapshots_[at(*link)].next;
  *link = dropped.next;
  dropped.page = -1;
  free_snapshots_.push_back(snapshot);
  free_if_dead(page);
}

void PrefixTree::drop_unneeded() {
  for (int32_t s = 0; s < n_snapshots(); ++s) {
    const Snapshot& kept = snapshots_[at(s)];
    if (kept.page >= 0 && kept.kind != SnapshotKind::kSuspended) drop_snapshot(s);
  }
}

void PrefixTree::drop_snapshots_of(uint64_t owner) {
  for (int32_t s = 0; s < n_snapshots(); ++s) {
    if (snapshots_[at(s)].page >= 0 && snapshots_[at(s)].owner == owner) drop_snapshot(s);
  }
}

int32_t PrefixTree::note_use(int32_t snapshot) {
  Snapshot& s = snapshots_[at(snapshot)];
  const int32_t n_turns = s.n_uses == 0 ? s.n_turns + 1 : 0;
  s.last_use = now_;
  ++s.n_uses;
  s.n_turns = 0;                                                           // the front moves on
  if (s.kind == SnapshotKind::kSuspended) s.kind = SnapshotKind::kBorder;  // it has come back
  return n_turns;
}

void PrefixTree::kept(int32_t snapshot, Kept& out) const {
  const Snapshot& s = snapshots_[at(snapshot)];
  out.pages.clear(), out.keys.clear();
  for (int32_t page = s.page; page >= 0; page = node(page).parent) out.pages.push_back(page);
  std::reverse(out.pages.begin(), out.pages.end());
  out.salt = node(out.pages.front()).salt;
  for (const int32_t page : out.pages)
    out.keys.insert(out.keys.end(), node(page).keys.begin(),
                    node(page).keys.begin() + node(page).n_keys);
  out.keys.resize(static_cast<size_t>(s.position));
}

int32_t PrefixTree::best_unsaved(LowerTier tier) const {
  int32_t best = -1;
  double best_value = 0;
  for (int32_t s = 0; s < n_snapshots(); ++s) {
    if (!snapshots_[at(s)].is_unsaved(tier)) continue;
    const double value = value_of(s);
    if (best < 0 || value > best_value) best = s, best_value = value;
  }
  return best;
}

bool PrefixTree::has_unsaved(LowerTier tier) const {
  return std::any_of(snapshots_.begin(), snapshots_.end(),
                     [tier](const Snapshot& s) { return s.is_unsaved(tier); });
}

// ---- Eviction -----------------------------------------------------------------------------------

// Where a prompt would resume if this snapshot were not there.
int64_t PrefixTree::position_before(const Snapshot& snapshot) const {
  for (int32_t page = snapshot.page; page >= 0; page = node(page).parent) {
    int64_t before = 0;
    for (int32_t s = node(page).first_snapshot; s >= 0; s = snapshots_[at(s)].next) {
      const int64_t position = snapshots_[at(s)].position;
      if (position < snapshot.position) before = std::max(before, position);
    }
    if (before > 0) return before;
  }
  return 0;
}

double PrefixTree::value_of(int32_t snapshot) const {
  const Snapshot& s = snapshots_[at(snapshot)];
  const auto age = static_cast<double>(now_ - s.last_use);
  const double chance =
      weight_of(s.kind) * (1 + std::min(s.n_uses, kUsesMax) + s.n_turns) / (1 + age / kHalfAge);
  return static_cast<double>(s.position - position_before(s)) * chance;
}

// Pages that come free when a leaf has no snapshot any more: it, and its parents that only it
// needs.
int32_t PrefixTree::n_pages_freed_with(int32_t page) const {
  int32_t n = 1;
  for (int32_t p = node(page).parent; p >= 0; p = node(p).parent, ++n) {
    const Node& parent = node(p);
    const bool has_one_child = node(parent.first_child).next < 0;
    if (parent.n_holders > 0 || parent.first_snapshot >= 0 || !has_one_child) break;
  }
  return n;
}

// Of the leaves that nobody holds, the one that is worth least for the pages it gives.
bool PrefixTree::evict_for_page() {
  int32_t least = -1;
  double least_value = std::numeric_limits<double>::infinity();
  for (const Snapshot& candidate : snapshots_) {
    if (candidate.page < 0) continue;
    const Node& leaf = node(candidate.page);
    if (leaf.n_holders > 0 || leaf.first_child >= 0) continue;
    double value = 0;
    for (int32_t s = leaf.first_snapshot; s >= 0; s = snapshots_[at(s)].next) value += value_of(s);
    value /= n_pages_freed_with(candidate.page);
    if (value < least_value) least = candidate.page, least_value = value;
  }
  if (least < 0) return false;
  const size_t n_free = free_.size();
  while (node(least).is_in_tree && node(least).first_snapshot >= 0) {
    ++n_evicted_snapshots_;
    drop_snapshot(node(least).first_snapshot);
  }
  n_evicted_pages_ += static_cast<int64_t>(free_.size() - n_free);
  return true;
}

// ---- Invariants ---------------------------------------------------------------------------------

void PrefixTree::check_invariants() const {
  std::vector<int> n_snapshots_in(nodes_.size(), 0), n_children(nodes_.size(), 0);
  size_t n_kept = 0;
  for (const Snapshot& s : snapshots_) {
    if (s.page < 0) continue;
    ++n_kept;
    ++n_snapshots_in[at(s.page)];
    const Node& n = node(s.page);
    ROOST_CHECK(n.is_in_tree && s.position > n.start && s.position <= n.start + n.n_keys);
  }
  ROOST_CHECK(n_kept + free_snapshots_.size() == snapshots_.size());
  for (const Node& n : nodes_) {
    if (n.is_in_tree && n.parent >= 0) ++n_children[at(n.parent)];
  }
  int32_t n_held = 0, n_in_use = 0;
  for (size_t page = 0; page < nodes_.size(); ++page) {
    const Node& n = nodes_[page];
    n_held += n.n_holders > 0;
    n_in_use += n.n_holders > 0 || n.is_in_tree;
    if (!n.is_in_tree) {
      ROOST_CHECK(n_snapshots_in[page] == 0 && n_children[page] == 0);
      continue;
    }
    // A page in use keeps its path; a path that nothing uses is not there.
    ROOST_CHECK(n.n_holders > 0 || n_children[page] > 0 || n_snapshots_in[page] > 0);
    ROOST_CHECK(n.n_keys == kTreePageTokens || n_children[page] == 0);
    ROOST_CHECK(n.parent < 0 ||
                (node(n.parent).is_in_tree && node(n.parent).start + kTreePageTokens == n.start));
    int n_listed = 0;
    for (int32_t s = n.first_snapshot; s >= 0; s = snapshots_[at(s)].next) ++n_listed;
    ROOST_CHECK(n_listed == n_snapshots_in[page]);
    int n_linked = 0;
    for (int32_t c = n.first_child; c >= 0; c = node(c).next) ++n_linked;
    ROOST_CHECK(n_linked == n_children[page]);
    if (n.n_keys == kTreePageTokens) {
      ROOST_CHECK(find_full(n.salt, n.parent, n.keys) == static_cast<int32_t>(page));
    }
  }
  ROOST_CHECK(n_held == n_held_);
  ROOST_CHECK(n_in_use + static_cast<int32_t>(free_.size()) == n_pages());
}

}  // namespace roost
