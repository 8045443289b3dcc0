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
bool file_exists(const std::string& path);

// A read-only mapping that ends with the object. An empty file maps to an empty span.
class MappedFile {
 public:
  static Result<MappedFile> open(const std::string& path);
  std::span<const std::byte> bytes() const { return {data_.get(), n_bytes_}; }

 private:
  struct Unmap {
    size_t n_bytes = 0;
    void operator()(const std::byte* data) const;
  };
  std::unique_ptr<const std::byte[], Unmap> data_;
  size_t n_bytes_ = 0;
};

}  // namespace roost
