// Prefix cache entries as files: what lets the next process start warm. A file is believed only
// when its name, identity, sizes and checksum are right.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/hash.h"
#include "base/result.h"

namespace roost {

// A kept state behind `position` keys, with the pages of the keys that its parent does not hold.
struct PrefixFile {
  Hash128 name;    // of the salt and all keys up to the position
  Hash128 parent;  // name of the entry that holds what comes before; zero: nothing does
  Hash128 salt;
  int64_t start = 0;  // of its first page: a multiple of 64, at or before the parent's position
  int64_t position = 0;
  std::vector<int32_t> keys;     // [start, position)
  std::vector<std::byte> bytes;  // the pages, then the state; empty in an index
  uint64_t n_file_bytes = 0;
  int64_t written_order = 0;  // later ones are larger; across processes by the files' times

  int64_t n_pages() const { return (position - start + 63) / 64; }
};

// Names an entry by what it holds.
Hash128 prefix_name(const Hash128& salt, std::span<const int32_t> keys);

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
    int64_t n_entries = 0, n_skipped = 0, n_written = 0, n_removed = 0, n_failed_writes = 0;
    uint64_t n_bytes = 0;
  };

  // Takes the folder for this process and reads what the files say of themselves. Refuses
  // cache.folder when it cannot be used, and when another process has it.
  static Result<std::unique_ptr<PrefixFiles>> open(const Options& options);
  ~PrefixFiles();
  PrefixFiles(const PrefixFiles&) = delete;
  PrefixFiles& operator=(const PrefixFiles&) = delete;

  bool contains(const Hash128& name) const { return find(name) != nullptr; }
  const std::vector<PrefixFile>& entries() const { return entries_; }  // without their bytes

  // The entry with its bytes. A file that does not hold what it should is taken out of the index
  // and counted.
  Result<PrefixFile> read(const Hash128& name);
  // Writes under a temporary name, syncs, renames: after a crash the entry is there or it is not.
  // Older entries that no other needs go when the budget demands it. False: nothing was written.
  bool write(const PrefixFile& entry);

  void remove_all();

  Counts counts() const;

 private:
  explicit PrefixFiles(Options options) : options_(std::move(options)) {}
  Result<void> take_folder();
  void index_files();
  const PrefixFile* find(const Hash128& name) const;
  bool make_room(uint64_t n_bytes);
  void remove(const Hash128& name);
  std::string path_of(const Hash128& name) const;
  Result<PrefixFile> read_path(const std::string& path, bool with_bytes) const;

  const Options options_;
  std::vector<PrefixFile> entries_;
  Counts counts_;
  int64_t order_ = 0;
  int lock_ = -1;
};

}  // namespace roost
