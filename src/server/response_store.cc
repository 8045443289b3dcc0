#include "server/response_store.h"

namespace roost {

void ResponseStore::drop_last_locked() {
  n_bytes_ -= entries_.back().n_bytes;
  by_id_.erase(entries_.back().id);
  entries_.pop_back();
}

void ResponseStore::put(const std::string& id, StoredResponse stored) {
  size_t n_bytes = json::write(stored.response).size();
  for (const json::Value& item : stored.input) n_bytes += json::write(item).size();
  if (n_max_ == 0 || n_bytes > n_bytes_max_) return;
  const std::lock_guard lock(mutex_);
  entries_.push_front({id, std::move(stored), n_bytes});
  by_id_[id] = entries_.begin();
  n_bytes_ += n_bytes;
  while (entries_.size() > n_max_ || n_bytes_ > n_bytes_max_) drop_last_locked();
}

std::optional<StoredResponse> ResponseStore::find(const std::string& id, const std::string& owner) {
  const std::lock_guard lock(mutex_);
  const auto found = by_id_.find(id);
  if (found == by_id_.end() || found->second->stored.owner != owner) return std::nullopt;
  entries_.splice(entries_.begin(), entries_, found->second);
  return found->second->stored;
}

bool ResponseStore::remove(const std::string& id, const std::string& owner) {
  const std::lock_guard lock(mutex_);
  const auto found = by_id_.find(id);
  if (found == by_id_.end() || found->second->stored.owner != owner) return false;
  n_bytes_ -= found->second->n_bytes;
  entries_.erase(found->second);
  by_id_.erase(found);
  return true;
}

size_t ResponseStore::n_bytes() const {
  const std::lock_guard lock(mutex_);
  return n_bytes_;
}

}  // namespace roost
