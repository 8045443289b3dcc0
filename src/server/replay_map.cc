#include "server/replay_map.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <iterator>
#include <span>
#include <utility>

#include "base/file.h"
#include "base/hash.h"
#include "base/log.h"

namespace roost {

namespace {

// Clients choose what they send: no two turns may share a key.
std::string key_of(const std::string& owner, std::string_view before, std::string_view turn) {
  const std::string whole =
      std::to_string(owner.size()) + '\n' + owner + std::string(before) + '\n' + std::string(turn);
  return sha256_hex(std::as_bytes(std::span(whole)));
}

// Of the rest of a line of the file.
std::string checksum_of(std::string_view text) {
  return hex_of(xxh3_128(std::as_bytes(std::span(text)), 0));
}
constexpr size_t kChecksumDigits = 32;

}  // namespace

size_t ReplayMap::Kept::n_bytes() const {
  constexpr size_t kNode = 256;  // of the list and the map, about
  return kNode + 2 * key.size() + replay.lead.size() + replay.tokens.size() * sizeof(Token);
}

std::string ReplayMap::Kept::line() const {
  json::Value tokens = json::Value::array();
  for (const Token token : replay.tokens) tokens.push(json::Value::integer(token));
  json::Value out = json::Value::object();
  out.set("key", json::Value::string(key));
  out.set("lead", json::Value::string(replay.lead));
  out.set("tokens", std::move(tokens));
  const std::string text = json::write(out);
  return checksum_of(text) + text;
}

void ReplayMap::drop(std::list<Kept>::iterator place) {
  n_bytes_ -= place->n_bytes();
  places_.erase(place->key);
  kept_.erase(place);
}

void ReplayMap::put(const std::string& owner, std::string_view before, std::string_view turn,
                    Replay replay) {
  Kept kept{key_of(owner, before, turn), std::move(replay)};
  kept.replay.tokens.shrink_to_fit();
  const std::lock_guard lock(mutex_);
  if (file_) write_line(kept.line());
  insert(std::move(kept));
  if (!file_ || n_file_bytes_ <= 2 * n_bytes_max_) return;
  if (const Result<void> rewritten = rewrite_file(); !rewritten) {
    file_.reset();
    log(LogLevel::kWarning, "replies_not_kept", {{"reason", rewritten.error().detail}});
  }
}

// Two replies of one text to one prompt: the newer is the one that a conversation goes on with.
void ReplayMap::insert(Kept kept) {
  if (const auto known = places_.find(kept.key); known != places_.end()) drop(known->second);
  kept_.push_front(std::move(kept));
  places_[kept_.front().key] = kept_.begin();
  n_bytes_ += kept_.front().n_bytes();
  while (!kept_.empty() && (kept_.size() > n_replies_max_ || n_bytes_ > n_bytes_max_))
    drop(std::prev(kept_.end()));
}

// ---- The file -----------------------------------------------------------------------------------

Result<void> ReplayMap::keep_in(const std::string& path, const std::string& identity,
                                int64_t n_tokens) {
  const std::lock_guard lock(mutex_);
  take_in(path, identity, n_tokens);
  path_ = path;
  identity_ = identity;
  return rewrite_file();
}

std::optional<ReplayMap::Kept> ReplayMap::kept_of(const json::Value& value, int64_t n_tokens) {
  const json::Value* key = value.find("key");
  const json::Value* lead = value.find("lead");
  const json::Value* tokens = value.find("tokens");
  if (key == nullptr || !key->is_string() || lead == nullptr || !lead->is_string() ||
      tokens == nullptr || !tokens->is_array())
    return std::nullopt;
  Kept kept{key->as_string(), {lead->as_string(), {}}};
  kept.replay.tokens.reserve(tokens->items().size());
  for (const json::Value& item : tokens->items()) {
    const int64_t token = item.is_number() ? item.as_int64().value_or(-1) : -1;
    if (token < 0 || token >= n_tokens) return std::nullopt;
    kept.replay.tokens.push_back(static_cast<Token>(token));
  }
  return kept;
}

// Oldest first, so that the newest stays longest here too. A line that was cut off takes the one
// that was written behind it along.
void ReplayMap::take_in(const std::string& path, const std::string& identity, int64_t n_tokens) {
  const Result<std::string> bytes = read_file(path, 3 * n_bytes_max_);
  if (!bytes) return;
  std::string_view rest = *bytes;
  const auto next_line = [&rest] {
    const std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(line.size() + 1, rest.size()));
    return line;
  };
  if (next_line() != identity) return;
  while (!rest.empty()) {
    const std::string_view line = next_line();
    if (line.size() <= kChecksumDigits) continue;
    const std::string_view text = line.substr(kChecksumDigits);
    if (line.substr(0, kChecksumDigits) != checksum_of(text)) continue;
    const Result<json::Value> value = json::parse(text);
    if (!value) continue;
    if (std::optional<Kept> kept = kept_of(*value, n_tokens)) insert(std::move(*kept));
  }
}

void ReplayMap::write_line(const std::string& line) {
  file_->write(line);
  n_file_bytes_ += line.size() + 1;
}

// What is kept and nothing else; a process that is killed meanwhile leaves the old file.
Result<void> ReplayMap::rewrite_file() {
  const std::string temporary = path_ + ".temporary";
  ROOST_TRY(file_, LineFile::begin(temporary));
  n_file_bytes_ = 0;
  write_line(identity_);
  for (auto kept = kept_.rbegin(); kept != kept_.rend(); ++kept) write_line(kept->line());
  if (std::rename(temporary.c_str(), path_.c_str()) == 0) return {};
  file_.reset();
  return Error{Refusal::FileWrite, path_ + ": " + std::strerror(errno)};
}

std::optional<Replay> ReplayMap::find(const std::string& owner, std::string_view before,
                                      std::string_view turn) {
  const std::string key = key_of(owner, before, turn);
  const std::lock_guard lock(mutex_);
  const auto known = places_.find(key);
  if (known == places_.end()) return std::nullopt;
  kept_.splice(kept_.begin(), kept_, known->second);
  return kept_.front().replay;
}

}  // namespace roost
