// The prefix tree: which pages of K/V and which snapshots of recurrent state hold which tokens, who
// holds them, and which go first when memory is short.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/hash.h"

namespace roost {

inline constexpr int kTreePageTokens = 64;  // tokens of a node, which is a page of K/V

// Why a snapshot was taken: how likely it is that a later prompt leaves its branch there.
enum class SnapshotKind : uint8_t {
  kLadder,     // a multiple of the spacing
  kBorder,     // where a prompt was when its request was cancelled
  kTurn,       // before or behind a turn of the prompt
  kBranch,     // where a prompt leaves a known one
  kReply,      // behind the last kept token of a reply
  kSuspended,  // of a sequence that waits and goes on from here
};

// Where else a snapshot may be kept.
enum class LowerTier : uint8_t { kHost = 1, kDisk = 2 };

// Bookkeeping on numbers only: the bytes of pages and states are moved by the caller. A node is a
// page: page p of a path holds the keys [64·p, 64·p + n). Full nodes may have children; a node of
// fewer keys has none and grows with the sequence that writes its page. A page is free, or held by
// sequences, or in the tree, or both of the latter. A node stays as long as a sequence holds it, or
// a snapshot stands in it or below it: what no prompt can resume from is free at once.
//
// A key is what distinguishes tokens: the token id, and for a position of a picture a word of the
// picture's digest, its sign bit set, as no token id has it. Engine thread only; allocates at
// construction only.
class PrefixTree {
 public:
  PrefixTree(int32_t n_pages, int32_t n_snapshots);

  // ------------------------------------------------------------------------------------- pages
  // A page held once, by the caller. Evicts when none is free; nothing when all are held.
  std::optional<int32_t> take_page();
  void hold_page(int32_t page);  // once more; the page must be held or in the tree
  void release_page(int32_t page);
  int32_t n_pages() const { return static_cast<int32_t>(nodes_.size()); }
  int32_t n_held_pages() const { return n_held_; }
  int32_t n_available_pages() const { return n_pages() - n_held_; }  // free, or free by eviction
  int32_t n_cached_pages() const {
    return n_available_pages() - static_cast<int32_t>(free_.size());
  }
  bool is_held(int32_t page) const { return node(page).n_holders > 0; }

  // ------------------------------------------------------------------------------------ lookup
  struct Hit {
    int64_t n_tokens = 0;   // behind which the snapshot stands; 0: nothing to resume from
    int32_t snapshot = -1;  // whose state it is
    int64_t n_known = 0;    // keys that stand in pages, whether a state stands there or not
  };
  // The deepest snapshot at or before n_max keys. pages is cleared and filled with the page table
  // up to it; when n_tokens is no multiple of 64 the last page is used in part, must be copied
  // before it is written, and belongs to others. pages needs room for ceil(n_max / 64).
  Hit find(const Hash128& salt, std::span<const int32_t> keys, int64_t n_max,
           std::vector<int32_t>& pages);
  // The full page of these 64 keys below its parent (-1: the first page); -1: there is none.
  int32_t find_full(const Hash128& salt, int32_t parent, std::span<const int32_t> keys) const;

  // ----------------------------------------------------------------------------------- filling
  // Puts the keys of a held page below its parent (-1: the first page), or adds those behind the
  // ones it has. Returns the page that the caller holds from then on: another one, with the same
  // bytes, when a full page of these keys is there already.
  int32_t publish(const Hash128& salt, int32_t parent, int32_t page, std::span<const int32_t> keys);

  // A place for the state behind `position` keys, which end in this published page. Nothing when
  // every snapshot that is kept is worth more. n_turns: as note_use gave it.
  std::optional<int32_t> add_snapshot(int32_t page, int64_t position, SnapshotKind kind,
                                      uint64_t owner, int32_t n_turns = 0);
  void drop_snapshot(int32_t snapshot);
  void drop_unneeded();                    // all but those that a suspended sequence goes on from
  void drop_snapshots_of(uint64_t owner);  // a failed sequence leaves nothing
  // A sequence resumes from it. Returns how often its conversation has come back: to the first that
  // goes on from it, for the states that this one will keep. Others branch off, and get 0.
  int32_t note_use(int32_t snapshot);
  void tick() { ++now_; }  // a request has come: everything is one older
  int64_t position_of(int32_t snapshot) const { return snapshots_[at(snapshot)].position; }
  SnapshotKind kind_of(int32_t snapshot) const { return snapshots_[at(snapshot)].kind; }
  uint64_t owner_of(int32_t snapshot) const { return snapshots_[at(snapshot)].owner; }
  int32_t n_snapshots() const { return static_cast<int32_t>(snapshots_.size()); }
  int32_t n_used_snapshots() const {
    return n_snapshots() - static_cast<int32_t>(free_snapshots_.size());
  }
  int64_t n_evicted_pages() const { return n_evicted_pages_; }
  int64_t n_evicted_snapshots() const { return n_evicted_snapshots_; }
  int64_t n_added_snapshots() const { return n_added_snapshots_; }

  // What a snapshot stands behind, for storage outside: the salt, all keys, the page table. `out`
  // is reused, so that nothing is allocated once it has had the longest.
  struct Kept {
    Hash128 salt;
    std::vector<int32_t> keys, pages;
  };
  void kept(int32_t snapshot, Kept& out) const;
  // Of the snapshots that have not been marked as saved there the one that is worth most; -1: none.
  int32_t best_unsaved(LowerTier tier) const;
  bool has_unsaved(LowerTier tier) const;
  void mark_saved(int32_t snapshot, LowerTier tier) {
    snapshots_[at(snapshot)].saved_in |= static_cast<uint8_t>(tier);
  }

  // Cost to recompute × chance of reuse, in keys: what is lost with the snapshot.
  double value_of(int32_t snapshot) const;

  void check_invariants() const;  // everything above, counted again; for tests

 private:
  struct Node {
    std::array<int32_t, kTreePageTokens> keys;
    Hash128 salt;       // of the path; compared at first pages only
    uint64_t hash = 0;  // of a full node: parent, salt, keys
    int64_t start = 0;  // keys before its first
    int32_t parent = -1, first_child = -1, next = -1, previous = -1;  // siblings
    int32_t first_snapshot = -1;
    int32_t n_keys = 0, n_holders = 0;
    bool is_in_tree = false;
  };
  struct Snapshot {
    int32_t page = -1;  // -1: free
    int32_t next = -1;  // in its node
    SnapshotKind kind = SnapshotKind::kLadder;
    uint8_t saved_in = 0;  // tiers
    int32_t n_uses = 0;
    int32_t n_turns = 0;  // that led here, while it is the front of its conversation
    int64_t position = 0, last_use = 0;
    uint64_t owner = 0;
    bool is_unsaved(LowerTier tier) const {
      return page >= 0 && (saved_in & static_cast<uint8_t>(tier)) == 0;
    }
  };

  static size_t at(int32_t id) { return static_cast<size_t>(id); }
  Node& node(int32_t page) { return nodes_[at(page)]; }
  const Node& node(int32_t page) const { return nodes_[at(page)]; }
  int32_t& first_child_of(int32_t parent) {
    return parent < 0 ? first_root_ : node(parent).first_child;
  }

  void index(int32_t page);
  void unindex(int32_t page);
  void link(int32_t page, int32_t parent);
  void unlink(int32_t page);
  void free_if_dead(int32_t page);
  void move_snapshots(int32_t from, int32_t to);
  bool evict_for_page();
  int64_t position_before(const Snapshot& snapshot) const;
  int32_t n_pages_freed_with(int32_t page) const;

  std::vector<Node> nodes_;
  std::vector<int32_t> free_;  // pages; a stack: the one given back last is warmest
  std::vector<Snapshot> snapshots_;
  std::vector<int32_t> free_snapshots_;
  std::vector<int32_t> index_;  // full nodes by hash: linear probing, -1 empty
  std::vector<int32_t> path_;   // of the lookup that runs
  int32_t first_root_ = -1, n_held_ = 0;
  int64_t now_ = 0, n_evicted_pages_ = 0, n_evicted_snapshots_ = 0;
  int64_t n_added_snapshots_ = 0;
};

}  // namespace roost
