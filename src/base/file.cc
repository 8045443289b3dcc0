#include "base/file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

#include "base/check.h"

namespace roost {
namespace {

struct Close {
  int fd;
  explicit Close(int f) : fd(f) {}
  Close(const Close&) = delete;
  Close& operator=(const Close&) = delete;
  ~Close() {
    if (fd >= 0) ::close(fd);
  }
};

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

}  // namespace

Result<std::string> read_file(const std::string& path, size_t n_bytes_max) {
  const Close file(open_to_read(path));
  if (file.fd < 0) return Error{Refusal::FileMissing, path + ": " + reason()};
  ROOST_TRY(const size_t n_bytes, size_of(file.fd, path));
  if (n_bytes > n_bytes_max)
    return Error{Refusal::FileRead, path + ": " + std::to_string(n_bytes) + " bytes, at most " +
                                        std::to_string(n_bytes_max) + " are read"};
  std::string bytes(n_bytes, '\0');
  size_t n_read = 0;
  while (n_read < n_bytes) {
    const ssize_t n = ::read(file.fd, bytes.data() + n_read, n_bytes - n_read);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return Error{Refusal::FileRead, path + ": " + reason()};
    if (n == 0)
      return Error{Refusal::FileRead, path + ": ends after " + std::to_string(n_read) + " of " +
                                          std::to_string(n_bytes) + " bytes"};
    n_read += static_cast<size_t>(n);
  }
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

void MappedFile::make_resident() const {
#ifdef MADV_POPULATE_READ
  if (!bytes().empty())
    ::madvise(const_cast<std::byte*>(data_.get()), bytes().size(), MADV_POPULATE_READ);
#endif
}

Result<MappedFile> MappedFile::open(const std::string& path) {
  const Close file(open_to_read(path));
  if (file.fd < 0) return Error{Refusal::FileMissing, path + ": " + reason()};
  ROOST_TRY(const size_t n_bytes, size_of(file.fd, path));
  MappedFile mapped;
  if (n_bytes == 0) return mapped;  // the kernel does not map nothing
  void* data = ::mmap(nullptr, n_bytes, PROT_READ, MAP_PRIVATE, file.fd, 0);
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
