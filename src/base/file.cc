#include "base/file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <system_error>
#include <thread>
#include <vector>

#include "base/check.h"

namespace roost {
namespace {

// Reading a large file in: enough readers to fill one drive's queue, in pieces of whole huge pages.
constexpr size_t kReaders = 4;
constexpr size_t kPieceBytes = size_t{8} << 20;

std::string reason() {
  return std::generic_category().message(errno);
}

// Size of an open regular file. Anything else (a folder, a pipe, a device) has no bytes to read to
// the end and is refused.
Result<size_t> size_of(int fd, const std::string& path) {
  struct stat info{};
  if (::fstat(fd, &info) != 0) return Error{Refusal::FileRead, path + ": " + reason()};
  if (!S_ISREG(info.st_mode)) return Error{Refusal::FileRead, path + ": not a regular file"};
  return static_cast<size_t>(info.st_size);
}

// O_NONBLOCK: opening a named pipe that nobody writes must not wait; regular files ignore it.
int open_to_read(const std::string& path) {
  // A path with a zero byte would name another file than the caller's string says.
  if (path.find('\0') != std::string::npos) {
    errno = ENOENT;
    return -1;
  }
  return ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
}

// Fills `to` from the file's bytes at `offset`.
Result<void> read_at(int fd, const std::string& path, size_t offset, std::span<std::byte> to) {
  size_t n_read = 0;
  while (n_read < to.size()) {
    const ssize_t n =
        ::pread(fd, to.data() + n_read, to.size() - n_read, static_cast<off_t>(offset + n_read));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return Error{Refusal::FileRead, path + ": " + reason()};
    if (n == 0)
      return Error{Refusal::FileRead, path + ": ends after " + std::to_string(offset + n_read) +
                                          " of " + std::to_string(offset + to.size()) + " bytes"};
    n_read += static_cast<size_t>(n);
  }
  return {};
}

}  // namespace

FileDescriptor::~FileDescriptor() {
  if (fd_ >= 0) ::close(fd_);
}

Result<std::string> read_file(const std::string& path, size_t n_bytes_max) {
  const FileDescriptor file(open_to_read(path));
  if (!file) return Error{Refusal::FileMissing, path + ": " + reason()};
  ROOST_TRY(const size_t n_bytes, size_of(file.get(), path));
  if (n_bytes > n_bytes_max)
    return Error{Refusal::FileRead, path + ": " + std::to_string(n_bytes) + " bytes, at most " +
                                        std::to_string(n_bytes_max) + " are read"};
  std::string bytes(n_bytes, '\0');
  ROOST_TRY_DO(read_at(file.get(), path, 0, std::as_writable_bytes(std::span(bytes))));
  return bytes;
}

bool file_exists(const std::string& path) {
  struct stat info{};
  return path.find('\0') == std::string::npos && ::stat(path.c_str(), &info) == 0 &&
         S_ISREG(info.st_mode);
}

void MappedFile::Unmap::operator()(const std::byte* data) const {
  ::munmap(const_cast<std::byte*>(data), n_bytes);
}

Result<void> MappedFile::make_resident() const {
  const size_t n_bytes = bytes().size();
  if (n_bytes == 0 || !file_) return {};  // memory without a file is where it is
  auto* data = const_cast<std::byte*>(data_.get());
  // In place of the file's pages: whoever holds a pointer into them keeps it.
  if (::mmap(data, n_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1,
             0) == MAP_FAILED)
    return Error{Refusal::FileRead, path_ + ": no memory to hold it: " + reason()};
#ifdef MADV_HUGEPAGE
  ::madvise(data, n_bytes, MADV_HUGEPAGE);
#endif
  std::atomic<size_t> next = 0;
  std::vector<Result<void>> results(kReaders);
  std::vector<std::thread> readers;
  for (Result<void>& result : results) {
    readers.emplace_back([&] {
      for (size_t at; result && (at = next.fetch_add(kPieceBytes)) < n_bytes;) {
        const std::span piece(data + at, std::min(kPieceBytes, n_bytes - at));
        result = read_at(file_.get(), path_, at, piece);
      }
    });
  }
  for (std::thread& reader : readers) reader.join();
  ::mprotect(data, n_bytes, PROT_READ);
  for (Result<void>& result : results) ROOST_TRY_DO(std::move(result));
  return {};
}

Result<MappedFile> MappedFile::open(const std::string& path) {
  MappedFile mapped;
  mapped.path_ = path;
  mapped.file_ = FileDescriptor(open_to_read(path));
  if (!mapped.file_) return Error{Refusal::FileMissing, path + ": " + reason()};
  ROOST_TRY(const size_t n_bytes, size_of(mapped.file_.get(), path));
  if (n_bytes == 0) return mapped;  // the kernel does not map nothing
  void* data = ::mmap(nullptr, n_bytes, PROT_READ, MAP_PRIVATE, mapped.file_.get(), 0);
  if (data == MAP_FAILED) return Error{Refusal::FileRead, path + ": " + reason()};
  mapped.data_ = {static_cast<const std::byte*>(data), Unmap{n_bytes}};
  return mapped;
}

MappedFile MappedFile::anonymous(size_t n_bytes) {
  MappedFile mapped;
  if (n_bytes == 0) return mapped;
  void* data = ::mmap(nullptr, n_bytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  ROOST_CHECK(data != MAP_FAILED);
  mapped.data_ = {static_cast<const std::byte*>(data), Unmap{n_bytes}};
  return mapped;
}

}  // namespace roost
