// A file that grows line by line, for what a person asked to have written down.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <string_view>

#include "base/file.h"
#include "base/result.h"

namespace roost {

class LineFile {
 public:
  // Goes on behind what is there, or begins anew; from then on its owner alone may read it. Refuses
  // file.write.
  static Result<std::unique_ptr<LineFile>> append_to(const std::string& path);
  static Result<std::unique_ptr<LineFile>> begin(const std::string& path);

  // Any thread: the line and its end stand together, behind all earlier ones. What cannot be
  // written is lost, and the log says so once.
  void write(std::string_view line);

 private:
  static Result<std::unique_ptr<LineFile>> open(const std::string& path, int flags);
  explicit LineFile(FileDescriptor file) : file_(std::move(file)) {}

  const FileDescriptor file_;
  std::atomic<bool> has_failed_ = false;
};

}  // namespace roost
