// Replies of the Responses dialect that were asked to be kept: in memory alone, the least recently
// used go first.
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/json.h"

namespace roost {

struct StoredResponse {
  json::Value response;            // as the client saw it
  std::vector<json::Value> input;  // all items before the reply, of earlier replies too
  std::string owner;               // the label of the key
};

// What is stored for one owner, by its id; nothing: it is not.
struct StoredReplies {
  std::function<std::optional<StoredResponse>(const std::string& id)> find;
  std::function<std::optional<json::Value>(const std::string& id)> find_item;
};

class ResponseStore {
 public:
  ResponseStore(size_t n_max, size_t n_bytes_max) : n_max_(n_max), n_bytes_max_(n_bytes_max) {}

  // Any thread. What is larger than the whole store is not kept.
  void put(const std::string& id, StoredResponse stored);
  // Only the owner's own.
  std::optional<StoredResponse> find(const std::string& id, const std::string& owner);
  // An item of a reply of the owner's or before it, by the item's own id.
  std::optional<json::Value> find_item(const std::string& item_id, const std::string& owner) const;
  bool remove(const std::string& id, const std::string& owner);
  StoredReplies of(const std::string& owner);  // must not outlive the store
  size_t n_bytes() const;

 private:
  struct Entry {
    std::string id;
    StoredResponse stored;
    size_t n_bytes = 0;
  };
  void drop_last_locked();

  const size_t n_max_, n_bytes_max_;
  mutable std::mutex mutex_;
  std::list<Entry> entries_;  // the last used first
  std::unordered_map<std::string, std::list<Entry>::iterator> by_id_;
  size_t n_bytes_ = 0;
};

}  // namespace roost
