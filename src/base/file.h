// Files: whole small ones, mapped large ones.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "base/result.h"

namespace roost {

// The bytes of a file; refuses file.missing, file.read, and files of more than n_bytes_max.
Result<std::string> read_file(const std::string& path, size_t n_bytes_max);
bool file_exists(const std::string& path);  // as a regular file

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
  // Reads all pages in and maps them, so that no later access faults. Nothing happens where the
  // system does not offer it.
  void make_resident() const;

 private:
  struct Unmap {
    size_t n_bytes;
    void operator()(const std::byte* data) const;
  };
  std::unique_ptr<const std::byte[], Unmap> data_;
};

}  // namespace roost
