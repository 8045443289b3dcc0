// Files: whole small ones, mapped large ones.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "base/result.h"

namespace roost {

// The bytes of a file; refuses file.missing, file.read, and files of more than n_bytes_max.
Result<std::string> read_file(const std::string& path, size_t n_bytes_max);
bool file_exists(const std::string& path);  // as a regular file

// An open file that is closed with the object.
class FileDescriptor {
 public:
  FileDescriptor() = default;
  explicit FileDescriptor(int fd) : fd_(fd) {}  // negative: none
  FileDescriptor(FileDescriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  FileDescriptor& operator=(FileDescriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~FileDescriptor();
  explicit operator bool() const { return fd_ >= 0; }
  int get() const { return fd_; }

 private:
  int fd_ = -1;
};

// A read-only mapping that ends with the object. An empty file maps to an empty span.
class MappedFile {
 public:
  static Result<MappedFile> open(const std::string& path);
  // Memory of its own instead of a file's: zeros, and no page is taken before it is touched.
  static MappedFile anonymous(size_t n_bytes);
  std::span<std::byte> anonymous_bytes() const {  // of an anonymous one
    return {const_cast<std::byte*>(data_.get()), bytes().size()};
  }
  std::span<const std::byte> bytes() const {
    return {data_.get(), data_ ? data_.get_deleter().n_bytes : 0};
  }
  // Takes memory in place of the mapping, of huge pages where the system has them, and reads the
  // file into it: from then on no access faults, and nothing that happens to the file matters.
  // Pointers stay valid; nobody may read the bytes meanwhile. After a refusal (file.read) the bytes
  // are lost. Memory without a file is left as it is.
  Result<void> make_resident() const;

 private:
  struct Unmap {
    size_t n_bytes;
    void operator()(const std::byte* data) const;
  };
  std::string path_;
  FileDescriptor file_;
  std::unique_ptr<const std::byte[], Unmap> data_;
};

}  // namespace roost
