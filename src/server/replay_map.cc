#include "server/replay_map.h"

#include <iterator>
#include <span>
#include <utility>

#include "base/hash.h"

namespace roost {

namespace {

// Clients choose what they send: no two turns may share a key.
std::string key_of(const std::string& owner, std::string_view before, std::string_view turn) {
  const std::string whole =
      std::to_string(owner.size()) + '\n' + owner + std::string(before) + '\n' + std::string(turn);
  return sha256_hex(std::as_bytes(std::span(whole)));
}

}  // namespace

size_t ReplayMap::Kept::n_bytes() const {
  constexpr size_t kNode = 256;  // of the list and the map, about
  return kNode + 2 * key.size() + replay.lead.size() + replay.tokens.size() * sizeof(Token);
}

void ReplayMap::drop(std::list<Kept>::iterator place) {
  n_bytes_ -= place->n_bytes();
  places_.erase(place->key);
  kept_.erase(place);
}

void ReplayMap::put(const std::string& owner, std::string_view before, std::string_view turn,
                    Replay replay) {
  std::string key = key_of(owner, before, turn);
  const std::lock_guard lock(mutex_);
  // Two replies of one text to one prompt: the newer is the one that a conversation goes on with.
  if (const auto known = places_.find(key); known != places_.end()) drop(known->second);
  kept_.push_front({std::move(key), std::move(replay)});
  kept_.front().replay.tokens.shrink_to_fit();
  places_[kept_.front().key] = kept_.begin();
  n_bytes_ += kept_.front().n_bytes();
  while (!kept_.empty() && (kept_.size() > n_replies_max_ || n_bytes_ > n_bytes_max_))
    drop(std::prev(kept_.end()));
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
