// Host memory below the prefix tree of a card: kept states and their pages are copied there while
// everything runs, outlive what the card has room for, and are copied back for the prompts that can
// go on from them. Where the model runs in host memory there is no such tier: both would be one.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "base/clock.h"
#include "cache/prefix_tree.h"
#include "engine/sequence.h"
#include "engine/step_runner.h"

namespace roost {

// Engine thread only. Copies are made between steps, some at a time, so that no stream waits long
// for them. What the card forgets before it has been copied is computed again.
class PrefixHost {
 public:
  struct Options {
    int32_t n_pages = 0, n_snapshots = 0;
    int64_t context_max = 0;
    size_t bytes_per_call = size_t{64} << 20;  // of one advance, but a state goes in one piece
    uint64_t write_bytes_per_s = uint64_t{1} << 30;  // copied there while sequences run: the link
                                                     // and the steps are theirs
  };
  // Takes the memory. Everything must outlive it.
  PrefixHost(const Options& options, PrefixTree& tree, StepRunner& runner, const Clock& clock);

  // Between steps: goes on with the copies. has_running: sequences would wait for them.
  void advance(bool has_running);
  // Whether a sequence that could start is better off waiting for pages and a state that are being
  // copied back for it, or for its turn.
  bool must_wait(Sequence& s);
  // The pages of the prompt that is copied back for are needed elsewhere: it is computed instead.
  // False: none are held.
  bool give_up();
  void forget(const Sequence& s) {  // it has ended
    if (restore_.id == s.id) end_restore();
  }
  void drop_snapshots_of(uint64_t owner) { host_.drop_snapshots_of(owner); }  // it failed
  void flush();  // forgets all that no sequence needs
  void tick() { host_.tick(); }

  // When advance has something to do; kNever: not at all.
  static constexpr int64_t kNever = std::numeric_limits<int64_t>::max();
  int64_t next_ns() const;
  bool is_restoring() const { return restore_.id != 0; }
  // Pages of the card.
  const std::vector<int32_t>& held_pages() const { return restore_.pages; }
  const PrefixTree& tree() const { return host_; }
  int64_t n_restored() const { return n_restored_; }

 private:
  // One prompt is copied back for at a time.
  struct Restore {
    uint64_t id = 0;  // of the sequence; 0: none
    Hash128 salt;
    std::vector<int32_t> keys;               // up to the state
    int32_t snapshot = -1;                   // of the host
    std::vector<int32_t> host_pages, pages;  // held: the whole path, and what of it has arrived
  };

  bool write_on();
  void begin_restore(const Sequence& s, const PrefixTree::Hit& hit, int64_t n_in_memory);
  void read_on();
  void end_restore();
  static void release(PrefixTree& tree, std::vector<int32_t>& path);
  std::span<std::byte> page_at(int32_t page) const;
  std::span<std::byte> state_at(int32_t snapshot) const;

  const Options options_;
  PrefixTree& tree_;  // of the card
  StepRunner& runner_;
  const Clock& clock_;
  PrefixTree host_;
  Buffer pages_, states_;                 // [n_pages][page_bytes], [n_snapshots][snapshot_bytes]
  int64_t n_left_ = 0;                    // bytes that this call may still copy
  std::vector<int32_t> path_, old_path_;  // held, of the host: of the state that is being copied
  Restore restore_;
  uint64_t given_up_ = 0;  // the last sequence that need not ask again
  int64_t next_write_ns_ = 0, n_restored_ = 0;
  PrefixTree::Kept kept_;
  std::vector<int32_t> hit_pages_, host_pages_;  // of lookups
};

}  // namespace roost
