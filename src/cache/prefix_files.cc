#include "cache/prefix_files.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <tuple>
#include <utility>

#include "base/check.h"
#include "base/limits.h"
#include "base/log.h"

namespace roost {
namespace {

constexpr uint64_t kMagic = 0x3230565845525052;  // "RPREXV02", little-endian
constexpr char kSuffix[] = ".prefix";
constexpr size_t kEntriesMax = 1 << 16;  // their keys are kept in memory

// The start of a file. Behind it: keys, checksum of both; pages, their checksum; the state and its
// checksum, if there is one.
struct Head {
  uint64_t magic = kMagic;
  Hash128 identity, name, parent, salt;
  int64_t start = 0, position = 0;
  uint64_t page_bytes = 0, snapshot_bytes = 0;
  uint64_t has_state = 0;
};
static_assert(sizeof(Head) == 8 + 64 + 32 + 8);

Hash128 identity_hash(const std::string& identity) {
  return xxh3_128(std::as_bytes(std::span(identity)), 1);
}

bool is_zero(const Hash128& hash) {
  return hash == Hash128{};
}

Error damaged(const std::string& path, const char* what) {
  return Error{Refusal::CacheFile, path + ": " + what};
}

// Everything, or nothing that counts.
bool write_all(int fd, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::write(fd, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    bytes = bytes.subspan(static_cast<size_t>(n));
  }
  return true;
}

bool read_all(int fd, std::span<std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::read(fd, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    bytes = bytes.subspan(static_cast<size_t>(n));
  }
  return true;
}

template <class T>
std::span<std::byte> bytes_of(T& value) {
  return std::as_writable_bytes(std::span(&value, 1));
}

// Bytes and the checksum behind them.
bool write_summed(int fd, std::span<const std::byte> bytes) {
  Hash128 sum = xxh3_128(bytes, 0);
  return write_all(fd, bytes) && write_all(fd, bytes_of(sum));
}
bool read_summed(int fd, std::span<std::byte> bytes) {
  Hash128 sum;
  return read_all(fd, bytes) && read_all(fd, bytes_of(sum)) && sum == xxh3_128(bytes, 0);
}

bool sync_folder(const std::string& folder) {
  const FileDescriptor file(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  return file && ::fsync(file.get()) == 0;
}

}  // namespace

Hash128 prefix_name(const Hash128& salt, std::span<const int32_t> keys, bool has_state) {
  const uint64_t seed = salt.low ^ (salt.high * 0x9E3779B97F4A7C15);
  return xxh3_128(std::as_bytes(keys), seed + (has_state ? 0 : 1));
}

// ---- Opening ------------------------------------------------------------------------------------

Result<std::unique_ptr<PrefixFiles>> PrefixFiles::open(const Options& options) {
  std::unique_ptr<PrefixFiles> files(new PrefixFiles(options));
  ROOST_TRY_DO(files->take_folder());
  files->index_files();
  return files;
}

Result<void> PrefixFiles::take_folder() {
  std::error_code error;
  std::filesystem::create_directories(options_.folder, error);
  if (error) return Error{Refusal::CacheFolder, options_.folder + ": " + error.message()};
  const std::string path = options_.folder + "/lock";
  lock_ = FileDescriptor(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (!lock_)
    return Error{Refusal::CacheFolder, path + ": " + std::generic_category().message(errno)};
  if (::flock(lock_.get(), LOCK_EX | LOCK_NB) != 0)
    return Error{Refusal::CacheFolder, options_.folder + ": another process uses it"};
  return {};
}

// Left-over temporary files are of writes that were cut off. An entry whose parent is missing or is
// none is of no use.
void PrefixFiles::index_files() {
  std::error_code error;
  struct Found {
    std::filesystem::file_time_type time;
    std::string path;
    uint64_t n_bytes;
  };
  std::vector<Found> found;
  for (const auto& item : std::filesystem::directory_iterator(options_.folder, error)) {
    const std::string path = item.path().string();
    if (path.ends_with(".temporary")) std::filesystem::remove(item.path(), error);
    if (!path.ends_with(kSuffix)) continue;
    const uint64_t n_bytes = item.file_size(error);
    found.push_back({item.last_write_time(error), path, error ? 0 : n_bytes});
  }
  std::sort(found.begin(), found.end(), [](const Found& a, const Found& b) {
    return std::tie(a.time, a.path) < std::tie(b.time, b.path);
  });
  // By position: a parent stands before its children.
  std::multimap<int64_t, std::pair<PrefixEntry, uint64_t>> entries;
  const auto skip = [&](const std::string& path, uint64_t n_bytes, const std::string& why) {
    log(LogLevel::kWarning, "prefix_file_skipped", {{"why", why}});
    ++counts_.n_skipped;
    strangers_.push_back({path, n_bytes});
    counts_.n_bytes += n_bytes;
  };
  for (const Found& file : found) {
    Result<PrefixEntry> entry = entry_of(file.path);
    if (!entry) {
      skip(file.path, file.n_bytes, entry.error().detail);
    } else if (file.path != path_of(entry->name) || file.n_bytes != file_bytes_of(*entry)) {
      skip(file.path, file.n_bytes, file.path + ": cut off, or of another name");
    } else {
      const int64_t position = entry->position;
      entries.emplace(position, std::pair(std::move(entry).value(), file.n_bytes));
    }
  }
  for (auto& [position, file] : entries) {
    auto& [entry, n_bytes] = file;
    const PrefixEntry* parent = find(entry.parent);
    const bool fits = is_zero(entry.parent) ? entry.start == 0
                                            : parent != nullptr && parent->salt == entry.salt &&
                                                  entry.start <= parent->position &&
                                                  parent->position <= entry.position;
    if (fits && !find(entry.name)) {
      insert(std::move(entry), n_bytes);
    } else {
      const std::string path = path_of(entry.name);
      skip(path, n_bytes, path + ": what it builds on is not there");
    }
  }
}

Result<PrefixEntry> PrefixFiles::entry_of(const std::string& path) const {
  const FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  return read_head(file.get(), path);
}

// Head and keys: what an entry is.
Result<PrefixEntry> PrefixFiles::read_head(int fd, const std::string& path) const {
  Head head;
  if (fd < 0 || !read_all(fd, bytes_of(head))) return damaged(path, "too short");
  if (head.magic != kMagic) return damaged(path, "not a file of the prefix cache");
  if (!(head.identity == identity_hash(options_.identity)))
    return damaged(path, "of another model, build or format");
  const bool is_sane =
      head.page_bytes == options_.page_bytes && head.snapshot_bytes == options_.snapshot_bytes &&
      head.has_state <= 1 && head.start >= 0 && head.start % 64 == 0 &&
      head.position > head.start && head.position - head.start <= kEntryPagesMax * 64 &&
      head.position <= limits::kContextMax && (head.has_state == 1 || head.position % 64 == 0);
  if (!is_sane) return damaged(path, "sizes that cannot be");
  const auto n_keys = static_cast<size_t>(head.position - head.start);
  std::vector<std::byte> all(sizeof head + n_keys * sizeof(int32_t));
  std::memcpy(all.data(), &head, sizeof head);
  Hash128 sum;
  if (!read_all(fd, std::span(all).subspan(sizeof head)) || !read_all(fd, bytes_of(sum)))
    return damaged(path, "cut off");
  if (!(sum == xxh3_128(all, 0))) return damaged(path, "the checksum differs");
  PrefixEntry entry{.name = head.name, .parent = head.parent, .salt = head.salt};
  entry.start = head.start;
  entry.position = head.position;
  entry.has_state = head.has_state == 1;
  entry.keys.resize(n_keys);
  std::memcpy(entry.keys.data(), all.data() + sizeof head, n_keys * sizeof(int32_t));
  return entry;
}

std::string PrefixFiles::path_of(const Hash128& name) const {
  return options_.folder + "/" + hex_of(name) + kSuffix;
}

size_t PrefixFiles::entry_bytes(int64_t n_pages, bool has_state) const {
  return static_cast<size_t>(n_pages) * options_.page_bytes +
         (has_state ? options_.snapshot_bytes : 0);
}

uint64_t PrefixFiles::file_bytes_of(const PrefixEntry& entry) const {
  const size_t n_keys = entry.keys.size() * sizeof(int32_t);
  const size_t n_sums = 2 + size_t{entry.has_state};
  return sizeof(Head) + n_keys + entry_bytes(entry.n_pages(), entry.has_state) +
         n_sums * sizeof(Hash128);
}

// ---- Index --------------------------------------------------------------------------------------

const PrefixEntry* PrefixFiles::find(const Hash128& name) const {
  const auto at = known_.find(name);
  return at == known_.end() ? nullptr : &at->second.entry;
}

void PrefixFiles::chain(const Hash128& salt, std::span<const int32_t> keys, int64_t n_max,
                        bool with_state, std::vector<const PrefixEntry*>& out) const {
  out.clear();
  const PrefixEntry* deepest = nullptr;
  std::vector<const std::vector<Hash128>*> to_visit = {&roots_};
  n_max = std::min(n_max, static_cast<int64_t>(keys.size()));
  while (!to_visit.empty()) {
    const std::vector<Hash128>& siblings = *to_visit.back();
    to_visit.pop_back();
    for (const Hash128& name : siblings) {
      const Known& known = known_.at(name);
      const PrefixEntry& e = known.entry;
      if (!(e.salt == salt) || e.position > n_max) continue;
      if (!std::equal(e.keys.begin(), e.keys.end(), keys.begin() + e.start)) continue;
      to_visit.push_back(&known.children);
      if (with_state && !e.has_state) continue;
      const bool is_deeper = deepest == nullptr || e.position > deepest->position ||
                             (e.position == deepest->position && e.has_state);
      if (is_deeper) deepest = &e;
    }
  }
  for (; deepest != nullptr; deepest = find(deepest->parent)) out.push_back(deepest);
  std::reverse(out.begin(), out.end());
}

void PrefixFiles::insert(PrefixEntry entry, uint64_t n_file_bytes) {
  const Hash128 name = entry.name;
  if (is_zero(entry.parent)) {
    roots_.push_back(name);
  } else {
    Known& parent = known_.at(entry.parent);
    leaves_.erase(parent.order);
    parent.children.push_back(name);
  }
  counts_.n_bytes += n_file_bytes;
  leaves_[++order_] = name;
  known_[name] = {
      .entry = std::move(entry), .n_file_bytes = n_file_bytes, .order = order_, .children = {}};
}

void PrefixFiles::note_use(const Hash128& name) {
  Known& known = known_.at(name);
  const bool is_leaf = leaves_.erase(known.order) > 0;
  known.order = ++order_;
  if (is_leaf) leaves_[order_] = name;
}

// With all that builds on it.
void PrefixFiles::take_out(const Hash128& name, std::vector<std::string>& paths) {
  const Hash128 gone = name;  // the argument may live in what is taken out
  while (!known_.at(gone).children.empty()) take_out(known_.at(gone).children.back(), paths);
  const Known& known = known_.at(gone);
  leaves_.erase(known.order);
  const Hash128 parent = known.entry.parent;
  std::vector<Hash128>& siblings = is_zero(parent) ? roots_ : known_.at(parent).children;
  std::erase(siblings, gone);
  if (!is_zero(parent) && siblings.empty()) leaves_[known_.at(parent).order] = parent;
  counts_.n_bytes -= known.n_file_bytes;
  known_.erase(gone);
  paths.push_back(path_of(gone));
}

bool PrefixFiles::make_room(uint64_t n_bytes, std::vector<std::string>& paths) {
  if (n_bytes > options_.bytes_max) return false;
  while (counts_.n_bytes + n_bytes > options_.bytes_max || known_.size() >= kEntriesMax) {
    ++counts_.n_removed;
    if (!strangers_.empty()) {
      counts_.n_bytes -= strangers_.back().n_file_bytes;
      paths.push_back(strangers_.back().path);
      strangers_.pop_back();
    } else {
      const Hash128 oldest = leaves_.begin()->second;
      take_out(oldest, paths);
    }
  }
  return true;
}

// ---- Writing ------------------------------------------------------------------------------------

bool PrefixFiles::plan_write(PrefixEntry entry, std::span<const std::byte> bytes, Write& job) {
  ROOST_CHECK(bytes.size() == entry_bytes(entry.n_pages(), entry.has_state));
  const Hash128 parent = entry.parent;
  if (!is_zero(parent)) note_use(parent);  // it must not go to make room for its child
  job.to_remove.clear();
  job.is_written = false;
  // When nothing else is left, the parent goes after all.
  if (!make_room(file_bytes_of(entry), job.to_remove) ||
      (!is_zero(parent) && find(parent) == nullptr)) {
    for (const std::string& path : job.to_remove) ::unlink(path.c_str());
    return false;
  }
  job.entry = std::move(entry);
  job.bytes = bytes;
  return true;
}

void PrefixFiles::run(Write& job) const {
  for (const std::string& path : job.to_remove) ::unlink(path.c_str());
  const PrefixEntry& entry = job.entry;
  std::error_code error;
  const auto space = std::filesystem::space(options_.folder, error);
  if (error || space.available < options_.free_min ||
      space.available - options_.free_min < file_bytes_of(entry))
    return;
  const Head head{.identity = identity_hash(options_.identity),
                  .name = entry.name,
                  .parent = entry.parent,
                  .salt = entry.salt,
                  .start = entry.start,
                  .position = entry.position,
                  .page_bytes = options_.page_bytes,
                  .snapshot_bytes = options_.snapshot_bytes,
                  .has_state = entry.has_state};
  std::vector<std::byte> front(sizeof head + entry.keys.size() * sizeof(int32_t));
  std::memcpy(front.data(), &head, sizeof head);
  std::memcpy(front.data() + sizeof head, entry.keys.data(), front.size() - sizeof head);
  const auto pages = job.bytes.first(entry_bytes(entry.n_pages(), false));
  const auto state = job.bytes.subspan(pages.size());

  const std::string path = path_of(entry.name), temporary = path + ".temporary";
  FileDescriptor file(::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
  const bool is_whole =
      file && write_summed(file.get(), front) && write_summed(file.get(), pages) &&
      (!entry.has_state || write_summed(file.get(), state)) && ::fsync(file.get()) == 0;
  job.is_written =
      is_whole && ::rename(temporary.c_str(), path.c_str()) == 0 && sync_folder(options_.folder);
  if (job.is_written) return;
  ::unlink(temporary.c_str());
  ::unlink(path.c_str());
}

void PrefixFiles::note(const Write& job) {
  if (!job.is_written) {
    ++counts_.n_failed_writes;
    return;
  }
  ++counts_.n_written;
  // It may have taken the place of a file that was skipped.
  std::erase_if(strangers_, [&](const Stranger& stranger) {
    if (stranger.path != path_of(job.entry.name)) return false;
    counts_.n_bytes -= stranger.n_file_bytes;
    return true;
  });
  if (find(job.entry.name) == nullptr) insert(job.entry, file_bytes_of(job.entry));
}

void PrefixFiles::remove_all() {
  std::vector<std::string> paths;
  while (!roots_.empty()) take_out(roots_.back(), paths);
  counts_.n_removed += static_cast<int64_t>(paths.size());
  for (const std::string& path : paths) ::unlink(path.c_str());
}

// ---- Reading ------------------------------------------------------------------------------------

void PrefixFiles::run(Read& job) const {
  job.is_good = false;
  const std::string path = path_of(job.entry.name);
  const FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  const Result<PrefixEntry> found = read_head(file.get(), path);
  const bool is_it = found && found->name == job.entry.name && found->keys == job.entry.keys &&
                     found->start == job.entry.start && found->parent == job.entry.parent &&
                     found->has_state == job.entry.has_state && found->salt == job.entry.salt;
  const size_t n_pages = entry_bytes(job.entry.n_pages(), false);
  job.is_good = is_it && read_summed(file.get(), job.bytes.first(n_pages)) &&
                (!job.with_state || read_summed(file.get(), job.bytes.subspan(n_pages)));
}

void PrefixFiles::note(const Read& job) {
  if (find(job.entry.name) == nullptr) return;
  if (job.is_good) return note_use(job.entry.name);
  ++counts_.n_skipped;
  log(LogLevel::kWarning, "prefix_file_skipped",
      {{"why", path_of(job.entry.name) + ": cut off, or a checksum differs"}});
  std::vector<std::string> paths;
  take_out(job.entry.name, paths);
  for (const std::string& path : paths) ::unlink(path.c_str());
}

PrefixFiles::Counts PrefixFiles::counts() const {
  Counts c = counts_;
  c.n_entries = static_cast<int64_t>(known_.size());
  return c;
}

}  // namespace roost
