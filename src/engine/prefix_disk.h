// The disk below the prefix tree: kept states are written while everything runs, as fast as a
// budget lets them, and read back for the prompts that can go on from them.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

#include "base/clock.h"
#include "cache/prefix_files.h"
#include "cache/prefix_tree.h"
#include "engine/sequence.h"
#include "engine/side_work.h"
#include "engine/step_runner.h"

namespace roost {

// Engine thread only. The side work touches the files and the staging buffer, one job at a time;
// pages and states are copied between steps.
class PrefixDisk {
 public:
  struct Options {
    PrefixFiles* files = nullptr;
    SideWork* side = nullptr;
    uint64_t write_bytes_per_s = uint64_t{64} << 20;
    int64_t context_max = 0;
  };
  // Everything must outlive it; a job must have ended before it is destroyed.
  PrefixDisk(const Options& options, PrefixTree& tree, StepRunner& runner, const Clock& clock);

  static size_t staging_bytes(size_t page_bytes, size_t snapshot_bytes) {
    return static_cast<size_t>(kEntryPagesMax) * page_bytes + snapshot_bytes;
  }

  // Between steps: takes in the job that has ended, and starts the next one.
  void advance();
  // Whether a sequence that could start is better off waiting for pages and a state that are being
  // read for it, or for its turn to be read for. Waits end: by time, by a damaged file.
  bool must_wait(Sequence& s);
  // The pages of the prompt that is read for are needed elsewhere: it is computed instead. False:
  // none are held.
  bool give_up();
  void forget(const Sequence& s) {  // it has ended
    if (restore_.id == s.id) end_restore();
  }
  // When advance has something to do without a job that ends; kNever: not at all.
  static constexpr int64_t kNever = std::numeric_limits<int64_t>::max();
  int64_t next_ns() const;
  // The next entry that is not written yet, whatever the budget says: the process ends. False:
  // there is none.
  bool write_rest();

  void flush();  // forgets every entry, with its file; waits for the job that runs

  const PrefixFiles& files() const { return *options_.files; }
  const std::vector<int32_t>& held_pages() const { return restore_.pages; }

 private:
  // One prompt is read for at a time.
  struct Restore {
    uint64_t id = 0;  // of the sequence; 0: none
    Hash128 salt;
    std::vector<int32_t> keys;   // up to the state
    std::vector<Hash128> names;  // of the entries to come, the last first
    std::vector<int32_t> pages;  // held: of the path so far
  };

  void take_in_job();
  void end_work();  // of the prompt that is read for, and of the job that runs
  bool is_worth_reading(const Sequence& s, int64_t& n_in_memory);
  void begin_restore(const Sequence& s, int64_t n_in_memory);
  void read_next();
  bool put_pages(const PrefixEntry& entry, bool is_last);
  void end_restore();
  bool start_write();

  const Options options_;
  PrefixTree& tree_;
  StepRunner& runner_;
  const Clock& clock_;
  Buffer staging_;
  enum class Job { kNone, kWrite, kRead } job_ = Job::kNone;
  PrefixFiles::Write write_;
  int32_t written_snapshot_ = -1;
  PrefixFiles::Read read_;
  Restore restore_;
  uint64_t given_up_ = 0, finished_ = 0;  // the last sequences that need not ask again
  int64_t next_write_ns_ = 0;
  PrefixTree::Kept kept_;
  std::vector<const PrefixEntry*> chain_;
  std::vector<int32_t> hit_pages_;
};

}  // namespace roost
