#include "server/line_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/log.h"

namespace roost {

Result<std::unique_ptr<LineFile>> LineFile::append_to(const std::string& path) {
  return open(path, 0);
}

Result<std::unique_ptr<LineFile>> LineFile::begin(const std::string& path) {
  return open(path, O_TRUNC);
}

Result<std::unique_ptr<LineFile>> LineFile::open(const std::string& path, int flags) {
  constexpr mode_t kOwnerOnly = 0600;
  FileDescriptor file(
      ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | flags, kOwnerOnly));
  if (!file || ::fchmod(file.get(), kOwnerOnly) != 0)
    return Error{Refusal::FileWrite, path + ": " + std::strerror(errno)};
  return std::unique_ptr<LineFile>(new LineFile(std::move(file)));
}

void LineFile::write(std::string_view line) {
  // One call of the system: lines of several threads do not mix.
  const std::string bytes = std::string(line) + '\n';
  const ssize_t n = ::write(file_.get(), bytes.data(), bytes.size());
  if (n == static_cast<ssize_t>(bytes.size()) || has_failed_.exchange(true)) return;
  log(LogLevel::kWarning, "line_not_written",
      {{"reason", n < 0 ? std::strerror(errno) : "the file takes no more"}});
}

}  // namespace roost
