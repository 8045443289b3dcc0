// Prefix cache entries as files: what the next process starts warm from, and what memory had no
// room for. A file is believed only when its name, identity, sizes and checksums are right.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/file.h"
#include "base/hash.h"
#include "base/result.h"

namespace roost {

// Most pages of one entry: what a buffer must hold.
inline constexpr int64_t kEntryPagesMax = 40;

// Pages of K/V behind those of its parent, and perhaps the state behind the last of their keys.
struct PrefixEntry {
  Hash128 name;    // of the salt, all keys up to the position, and whether there is a state
  Hash128 parent;  // name of the entry that holds what comes before; zero: nothing does
  Hash128 salt;
  int64_t start = 0;  // of its first page: a multiple of 64, at or before the parent's position
  int64_t position = 0;
  bool has_state = false;     // without one the position is a multiple of 64
  std::vector<int32_t> keys;  // [start, position)

  int64_t n_pages() const { return (position - start + 63) / 64; }
};

// Names an entry by what it holds.
Hash128 prefix_name(const Hash128& salt, std::span<const int32_t> keys, bool has_state);

// The folder's index, and the files behind it. The index is one thread's; what touches the disk for
// long is cut in three: plan_… and note_… are that thread's, run may be called on another one and
// touches nothing but the job.
class PrefixFiles {
 public:
  struct Options {
    std::string folder;                     // made if it is not there
    uint64_t bytes_max = 0;                 // of all files together
    uint64_t free_min = uint64_t{1} << 30;  // that must stay free on the disk
    std::string identity;                   // of everything that the bytes depend on
    size_t page_bytes = 0, snapshot_bytes = 0;
  };
  struct Counts {
    // n_skipped: files that were damaged, cut off, or of another model, build or format.
    int64_t n_entries = 0, n_skipped = 0, n_written = 0, n_removed = 0, n_failed_writes = 0;
    uint64_t n_bytes = 0;  // of all files, skipped ones included
  };

  // Takes the folder for this process and reads what the files say of themselves. Refuses
  // cache.folder when it cannot be used, and when another process has it.
  static Result<std::unique_ptr<PrefixFiles>> open(const Options& options);

  size_t entry_bytes(int64_t n_pages, bool has_state) const;  // of pages and state
  const PrefixEntry* find(const Hash128& name) const;         // null: there is none
  // The deepest entry of this salt at or before n_max keys whose keys are the first ones of `keys`,
  // and everything before it, first page first. with_state: it has a state. Empty: there is none.
  // Names stay valid, entries until the index changes.
  void chain(const Hash128& salt, std::span<const int32_t> keys, int64_t n_max, bool with_state,
             std::vector<const PrefixEntry*>& out) const;
  void note_use(const Hash128& name);  // it goes later when the budget demands that entries go

  // Written under a temporary name, synced, renamed: after a crash the entry is there or it is not.
  struct Write {
    PrefixEntry entry;
    std::span<const std::byte> bytes;  // the pages, then the state; the caller's until it is noted
    std::vector<std::string> to_remove;  // for which there is no room any more
    bool is_written = false;
  };
  // Older entries that no other needs go when the budget demands it. False: there is no room.
  bool plan_write(PrefixEntry entry, std::span<const std::byte> bytes, Write& job);
  void run(Write& job) const;
  void note(const Write& job);

  struct Read {
    PrefixEntry entry;
    bool with_state = false;
    std::span<std::byte> bytes;  // entry_bytes(entry.n_pages(), with_state)
    bool is_good = false;
  };
  void run(Read& job) const;
  // A file that did not hold what it should is taken out with all that builds on it, and counted.
  void note(const Read& job);

  // What a file says of itself. Refuses cache.file with the reason for which it is skipped.
  Result<PrefixEntry> entry_of(const std::string& path) const;

  void remove_all();  // every entry with its file; while no job runs

  Counts counts() const;

 private:
  struct Known {
    PrefixEntry entry;
    uint64_t n_file_bytes = 0;
    int64_t order = 0;  // of its last use: later ones are larger
    std::vector<Hash128> children;
  };
  struct Hasher {
    size_t operator()(const Hash128& hash) const { return hash.low; }
  };
  struct Stranger {
    std::string path;
    uint64_t n_file_bytes;
  };

  explicit PrefixFiles(Options options) : options_(std::move(options)) {}
  Result<void> take_folder();
  void index_files();
  Result<PrefixEntry> read_head(int fd, const std::string& path) const;
  void insert(PrefixEntry entry, uint64_t n_file_bytes);
  void take_out(const Hash128& name, std::vector<std::string>& paths);
  bool make_room(uint64_t n_bytes, std::vector<std::string>& paths);
  std::string path_of(const Hash128& name) const;
  uint64_t file_bytes_of(const PrefixEntry& entry) const;

  const Options options_;
  std::unordered_map<Hash128, Known, Hasher> known_;
  std::vector<Hash128> roots_;
  std::map<int64_t, Hash128> leaves_;  // by order: entries that no other builds on
  std::vector<Stranger> strangers_;    // skipped files; the first to go
  Counts counts_;
  int64_t order_ = 0;
  FileDescriptor lock_;
};

}  // namespace roost
