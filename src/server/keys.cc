// API keys (docs/SERVER.md, security).
#include "server/keys.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>

#include "base/file.h"
#include "base/hash.h"
#include "base/limits.h"
#include "base/log.h"

namespace roost {

namespace {

constexpr int64_t kLookEveryNs = 1'000'000'000;
constexpr size_t kKeyBytesMin = 8;

std::string sha256_of(std::string_view text) {
  return sha256_hex(std::as_bytes(std::span(text)));
}

// Takes as long for the first wrong digit as for the last.
bool is_equal(std::string_view a, std::string_view b) {
  if (a.size() != b.size()) return false;
  unsigned difference = 0;
  for (size_t i = 0; i < a.size(); ++i) difference |= static_cast<unsigned char>(a[i] ^ b[i]);
  return difference == 0;
}

bool is_hex_digest(std::string_view s) {
  return s.size() == 64 && s.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

Result<ApiKey> parse_line(std::string_view line, int number) {
  const auto refuse = [&](const char* why) {
    return Error{Refusal::KeyFile, fmt::format("line {}: {}", number, why)};
  };
  ApiKey out;
  if (line.ends_with(":admin")) {
    out.is_admin = true;
    line.remove_suffix(6);
  }
  const size_t colon = line.find(':');
  if (colon == std::string_view::npos || colon == 0) return refuse("want label:key");
  out.label = std::string(line.substr(0, colon));
  if (out.label.size() > limits::kLabelBytesMax) return refuse("the label is too long");
  const std::string_view key = line.substr(colon + 1);
  if (key.starts_with("sha256:")) {
    out.sha256 = std::string(key.substr(7));
    if (!is_hex_digest(out.sha256)) return refuse("want 64 hexadecimal digits behind sha256:");
  } else {
    if (key.size() < kKeyBytesMin) return refuse("the key is shorter than 8 bytes");
    out.sha256 = sha256_of(key);
  }
  return out;
}

}  // namespace

Result<std::vector<ApiKey>> parse_key_file(std::string_view text) {
  std::vector<ApiKey> out;
  int number = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    std::string_view line = text.substr(at, end - at);
    at = end + 1;
    ++number;
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.empty() || line.starts_with('#')) continue;
    ROOST_TRY(ApiKey key, parse_line(line, number));
    out.push_back(std::move(key));
  }
  if (out.empty()) return Error{Refusal::KeyFile, "there is no key in it"};
  return out;
}

Result<std::unique_ptr<KeyRing>> KeyRing::create(std::string file, std::string_view single_key,
                                                 const Clock& clock) {
  std::vector<ApiKey> fixed;
  if (!single_key.empty()) {
    if (single_key.size() < kKeyBytesMin)
      return Error{Refusal::KeyFile, "the key of the environment is shorter than 8 bytes"};
    fixed.push_back({"env", sha256_of(single_key), false});
  }
  std::unique_ptr<KeyRing> out(new KeyRing(std::move(file), std::move(fixed), clock));
  if (!out->file_.empty()) {
    const std::lock_guard lock(out->mutex_);
    ROOST_TRY_DO(out->read_file_locked());
    out->looked_ns_ = clock.now_ns();
  }
  return out;
}

Result<void> KeyRing::read_file_locked() {
  struct stat info{};
  if (stat(file_.c_str(), &info) != 0) return Error{Refusal::KeyFile, "it is not there"};
  if ((info.st_mode & 077) != 0)
    return Error{Refusal::KeyFile, fmt::format("mode {:04o}, want 0600: others can read it",
                                               static_cast<unsigned>(info.st_mode & 07777))};
  stamp_ = fmt::format("{} {} {}.{}", info.st_ino, info.st_size, info.st_mtim.tv_sec,
                       info.st_mtim.tv_nsec);
  ROOST_TRY(const std::string text, read_file(file_, limits::kKeyFileBytesMax));
  ROOST_TRY(from_file_, parse_key_file(text));
  return {};
}

void KeyRing::look_again_locked() {
  struct stat info{};
  std::string stamp;
  if (stat(file_.c_str(), &info) == 0)
    stamp = fmt::format("{} {} {}.{}", info.st_ino, info.st_size, info.st_mtim.tv_sec,
                        info.st_mtim.tv_nsec);
  if (stamp == stamp_ && is_usable_) return;
  const Result<void> read = read_file_locked();
  if (is_usable_ != bool(read) || read)
    log(read ? LogLevel::kInfo : LogLevel::kError, read ? "keys_read" : "keys_unusable",
        {{"keys", fmt::to_string(from_file_.size())}, {"reason", read ? "" : read.error().detail}});
  is_usable_ = bool(read);
}

void KeyRing::reload() {
  const std::lock_guard lock(mutex_);
  stamp_ = "asked for";
  looked_ns_ = 0;
}

Result<Caller> KeyRing::find(std::string_view key) {
  const std::lock_guard lock(mutex_);
  if (!file_.empty() && (looked_ns_ == 0 || clock_.now_ns() - looked_ns_ >= kLookEveryNs)) {
    looked_ns_ = clock_.now_ns();
    look_again_locked();
  }
  if (!is_usable_) return Error{Refusal::AuthUnavailable, ""};
  if (key.empty()) return Error{Refusal::AuthMissing, ""};
  const std::string digest = sha256_of(key);
  const ApiKey* found = nullptr;
  for (const auto* list : std::initializer_list<const std::vector<ApiKey>*>{&fixed_, &from_file_})
    for (const ApiKey& one : *list)
      if (is_equal(one.sha256, digest)) found = &one;
  if (found == nullptr) return Error{Refusal::AuthInvalid, ""};
  return Caller{found->label, found->is_admin};
}

}  // namespace roost
