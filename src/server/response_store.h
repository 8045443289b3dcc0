// Replies of the Responses dialect that were asked to be kept: in memory alone, the least recently
// used go first.
#pragma once

#include <cstdint>
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

class ResponseStore {
 public:
  ResponseStore(size_t n_max, size_t n_bytes_max) : n_max_(n_max), n_bytes_max_(n_bytes_max) {}

  // Any thread. What is larger than the whole store is not kept.
  void put(const std::string& id, StoredResponse stored);
  // Only the owner's own.
  std::optional<StoredResponse> find(const std::string& id, const std::string& owner);
  bool remove(const std::string& id, const std::string& owner);
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
