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

#include "base/file.h"
#include "base/limits.h"

namespace roost {
namespace {

constexpr uint64_t kMagic = 0x3130565845525052;  // "RPREXV01", little-endian
constexpr char kSuffix[] = ".prefix";

// The start of a file; keys, pages, state and the checksum of all that follow it.
struct Head {
  uint64_t magic = kMagic;
  Hash128 identity, name, parent, salt;
  int64_t start = 0, position = 0;
  uint64_t page_bytes = 0, snapshot_bytes = 0;
};
static_assert(sizeof(Head) == 8 + 64 + 32);

std::string hex_of(const Hash128& hash) {
  static constexpr char kHex[] = "0123456789abcdef";
  std::string text;
  for (const uint64_t half : {hash.high, hash.low}) {
    for (int shift = 60; shift >= 0; shift -= 4) text += kHex[half >> shift & 15];
  }
  return text;
}

Hash128 identity_hash(const std::string& identity) {
  return xxh3_128(std::as_bytes(std::span(identity)), 1);
}

uint64_t file_bytes_of(const Head& head, int64_t n_keys, int64_t n_pages) {
  return sizeof(Head) + static_cast<uint64_t>(n_keys) * sizeof(int32_t) +
         static_cast<uint64_t>(n_pages) * head.page_bytes + head.snapshot_bytes + sizeof(Hash128);
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

bool sync_folder(const std::string& folder) {
  const int fd = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return false;
  const bool is_synced = ::fsync(fd) == 0;
  ::close(fd);
  return is_synced;
}

template <class T>
void append(std::vector<std::byte>& to, std::span<const T> from) {
  const auto bytes = std::as_bytes(from);
  to.insert(to.end(), bytes.begin(), bytes.end());
}

}  // namespace

Hash128 prefix_name(const Hash128& salt, std::span<const int32_t> keys) {
  return xxh3_128(std::as_bytes(keys), salt.low ^ (salt.high * 0x9E3779B97F4A7C15));
}

Result<std::unique_ptr<PrefixFiles>> PrefixFiles::open(const Options& options) {
  std::unique_ptr<PrefixFiles> files(new PrefixFiles(options));
  ROOST_TRY_DO(files->take_folder());
  files->index_files();
  return files;
}

PrefixFiles::~PrefixFiles() {
  if (lock_ >= 0) ::close(lock_);
}

Result<void> PrefixFiles::take_folder() {
  std::error_code error;
  std::filesystem::create_directories(options_.folder, error);
  if (error) return Error{Refusal::CacheFolder, options_.folder + ": " + error.message()};
  const std::string path = options_.folder + "/lock";
  lock_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (lock_ < 0)
    return Error{Refusal::CacheFolder, path + ": " + std::generic_category().message(errno)};
  if (::flock(lock_, LOCK_EX | LOCK_NB) != 0)
    return Error{Refusal::CacheFolder, options_.folder + ": another process uses it"};
  return {};
}

// Left-over temporary files are of writes that were cut off.
void PrefixFiles::index_files() {
  std::error_code error;
  std::vector<std::pair<std::filesystem::file_time_type, std::string>> found;
  for (const auto& item : std::filesystem::directory_iterator(options_.folder, error)) {
    const std::string path = item.path().string();
    if (path.ends_with(".temporary")) std::filesystem::remove(item.path(), error);
    if (path.ends_with(kSuffix)) found.emplace_back(item.last_write_time(error), path);
  }
  std::sort(found.begin(), found.end());
  for (const auto& [time, path] : found) {
    Result<PrefixFile> entry = read_path(path, false);
    if (!entry || path != path_of(entry->name)) {
      ++counts_.n_skipped;
      continue;
    }
    entry->written_order = ++order_;
    entries_.push_back(std::move(entry).value());
  }
}

std::string PrefixFiles::path_of(const Hash128& name) const {
  return options_.folder + "/" + hex_of(name) + kSuffix;
}

const PrefixFile* PrefixFiles::find(const Hash128& name) const {
  const auto at = std::find_if(entries_.begin(), entries_.end(),
                               [&](const PrefixFile& entry) { return entry.name == name; });
  return at == entries_.end() ? nullptr : &*at;
}

// Without the bytes only what the file says of itself is checked, and its size.
Result<PrefixFile> PrefixFiles::read_path(const std::string& path, bool with_bytes) const {
  ROOST_TRY(const MappedFile mapped, MappedFile::open(path));
  const std::span<const std::byte> all = mapped.bytes();
  Head head;
  if (all.size() < sizeof head) return damaged(path, "too short");
  std::memcpy(&head, all.data(), sizeof head);
  if (head.magic != kMagic) return damaged(path, "not a file of the prefix cache");
  if (!(head.identity == identity_hash(options_.identity)))
    return damaged(path, "of another model, build or format");
  const bool is_sane = head.page_bytes == options_.page_bytes &&
                       head.snapshot_bytes == options_.snapshot_bytes && head.start >= 0 &&
                       head.start % 64 == 0 && head.position > head.start &&
                       head.position <= limits::kContextMax;
  if (!is_sane) return damaged(path, "sizes that cannot be");
  PrefixFile entry{.name = head.name, .parent = head.parent, .salt = head.salt};
  entry.start = head.start;
  entry.position = head.position;
  entry.n_file_bytes = all.size();
  const int64_t n_keys = head.position - head.start;
  if (all.size() != file_bytes_of(head, n_keys, entry.n_pages())) return damaged(path, "cut off");
  entry.keys.resize(static_cast<size_t>(n_keys));
  std::memcpy(entry.keys.data(), all.data() + sizeof head, entry.keys.size() * sizeof(int32_t));
  if (!with_bytes) return entry;
  const auto body = all.first(all.size() - sizeof(Hash128));
  Hash128 sum;
  std::memcpy(&sum, all.data() + body.size(), sizeof sum);
  if (!(sum == xxh3_128(body, 0))) return damaged(path, "the checksum differs");
  const auto bytes = body.subspan(sizeof head + entry.keys.size() * sizeof(int32_t));
  entry.bytes.assign(bytes.begin(), bytes.end());
  return entry;
}

Result<PrefixFile> PrefixFiles::read(const Hash128& name) {
  Result<PrefixFile> entry = read_path(path_of(name), true);
  if (entry && entry->name == name) return entry;
  ++counts_.n_skipped;
  std::erase_if(entries_, [&](const PrefixFile& known) { return known.name == name; });
  return entry ? Result<PrefixFile>(damaged(path_of(name), "another name inside")) : entry;
}

bool PrefixFiles::write(const PrefixFile& entry) {
  Head head{.identity = identity_hash(options_.identity),
            .name = entry.name,
            .parent = entry.parent,
            .salt = entry.salt,
            .start = entry.start,
            .position = entry.position,
            .page_bytes = options_.page_bytes,
            .snapshot_bytes = options_.snapshot_bytes};
  const auto n_keys = static_cast<int64_t>(entry.keys.size());
  const uint64_t n_bytes = file_bytes_of(head, n_keys, entry.n_pages());
  if (!make_room(n_bytes)) return false;
  std::vector<std::byte> body;
  body.reserve(n_bytes);
  append(body, std::span<const Head>(&head, 1));
  append(body, std::span<const int32_t>(entry.keys));
  append(body, std::span<const std::byte>(entry.bytes));
  const Hash128 sum = xxh3_128(body, 0);
  append(body, std::span<const Hash128>(&sum, 1));
  ROOST_CHECK(body.size() == n_bytes);

  const std::string path = path_of(entry.name), temporary = path + ".temporary";
  const int fd = ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  bool is_written = fd >= 0 && write_all(fd, body) && ::fsync(fd) == 0;
  if (fd >= 0) is_written &= ::close(fd) == 0;
  is_written =
      is_written && ::rename(temporary.c_str(), path.c_str()) == 0 && sync_folder(options_.folder);
  if (!is_written) {
    ::unlink(temporary.c_str());
    ++counts_.n_failed_writes;
    return false;
  }
  ++counts_.n_written;
  PrefixFile known = entry;
  known.bytes.clear();
  known.n_file_bytes = n_bytes;
  known.written_order = ++order_;
  entries_.push_back(std::move(known));
  return true;
}

// The oldest entries that are no other's parent go first.
bool PrefixFiles::make_room(uint64_t n_bytes) {
  std::error_code error;
  const auto space = std::filesystem::space(options_.folder, error);
  if (error || space.available < options_.free_min + n_bytes) return false;
  while (counts().n_bytes + n_bytes > options_.bytes_max) {
    const PrefixFile* oldest = nullptr;
    for (const PrefixFile& entry : entries_) {
      const bool is_parent =
          std::any_of(entries_.begin(), entries_.end(),
                      [&](const PrefixFile& other) { return other.parent == entry.name; });
      if (is_parent) continue;
      if (oldest == nullptr || entry.written_order < oldest->written_order) oldest = &entry;
    }
    if (oldest == nullptr) return false;
    remove(oldest->name);
  }
  return true;
}

void PrefixFiles::remove_all() {
  while (!entries_.empty()) remove(entries_.back().name);
}

void PrefixFiles::remove(const Hash128& name) {
  const Hash128 removed = name;  // the argument may live in the list
  ::unlink(path_of(removed).c_str());
  std::erase_if(entries_, [&](const PrefixFile& entry) { return entry.name == removed; });
  ++counts_.n_removed;
}

PrefixFiles::Counts PrefixFiles::counts() const {
  Counts c = counts_;
  c.n_entries = static_cast<int64_t>(entries_.size());
  for (const PrefixFile& entry : entries_) c.n_bytes += entry.n_file_bytes;
  return c;
}

}  // namespace roost
