#include "server/response_store.h"

#include <algorithm>

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

std::optional<json::Value> ResponseStore::find_item(const std::string& item_id,
                                                    const std::string& owner) const {
  const auto says = [](const json::Value& item, const char* key, std::string_view text) {
    const json::Value* value = item.find(key);
    return value != nullptr && value->is_string() && value->as_string() == text;
  };
  const auto is_it = [&](const json::Value& item) {
    return says(item, "id", item_id) && !says(item, "type", "item_reference");
  };
  const std::lock_guard lock(mutex_);
  for (const Entry& entry : entries_) {
    if (entry.stored.owner != owner) continue;
    const json::Value* output = entry.stored.response.find("output");
    for (const auto* items :
         {output == nullptr ? nullptr : &output->items(), &entry.stored.input}) {
      if (items == nullptr) continue;
      const auto found = std::find_if(items->begin(), items->end(), is_it);
      if (found != items->end()) return *found;
    }
  }
  return std::nullopt;
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

StoredReplies ResponseStore::of(const std::string& owner) {
  return {[this, owner](const std::string& id) { return find(id, owner); },
          [this, owner](const std::string& id) { return find_item(id, owner); }};
}

size_t ResponseStore::n_bytes() const {
  const std::lock_guard lock(mutex_);
  return n_bytes_;
}

}  // namespace roost
