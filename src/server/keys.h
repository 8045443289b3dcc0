// API keys: who may call. Kept as hashes, read again when their file changes.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/result.h"

namespace roost {

// Who a request comes from. Without keys: everybody, with an empty label.
struct Caller {
  std::string label;
  bool is_admin = false;
};

struct ApiKey {
  std::string label, sha256;  // hex
  bool is_admin = false;
};

// Lines "label:key", "label:sha256:<hex>", each with ":admin" behind it or not; empty lines and
// those that begin with # are skipped. Refuses config.key_file with the line.
Result<std::vector<ApiKey>> parse_key_file(std::string_view text);

class KeyRing {
 public:
  // file: empty for none; single_key: one more key, labelled "env", or empty. Refuses
  // config.key_file: not readable, malformed, or readable by others than its owner.
  static Result<std::unique_ptr<KeyRing>> create(std::string file, std::string_view single_key,
                                                 const Clock& clock);

  // Any thread. key: as the client sent it, empty for none. Refuses auth.missing, auth.invalid,
  // auth.unavailable. The file is looked at again at most once a second.
  Result<Caller> find(std::string_view key);
  void reload();  // whatever the times of the file say

 private:
  KeyRing(std::string file, std::vector<ApiKey> fixed, const Clock& clock)
      : file_(std::move(file)), fixed_(std::move(fixed)), clock_(clock) {}
  Result<void> read_file_locked();
  void look_again_locked();

  const std::string file_;
  const std::vector<ApiKey> fixed_;
  const Clock& clock_;
  std::mutex mutex_;
  std::vector<ApiKey> from_file_;
  bool is_usable_ = true;
  int64_t looked_ns_ = 0;
  std::string stamp_;  // of the file as it was read: size, times, number
};

}  // namespace roost
