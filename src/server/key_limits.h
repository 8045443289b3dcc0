// What a key may use: replies at once, requests and tokens of a minute.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "server/http_server.h"

namespace roost {

struct KeyLimits {
  int64_t n_at_once = 0, requests_per_minute = 0, tokens_per_minute = 0;  // 0: without bound
};

// "concurrent=4,requests=60,tokens=100000" for every key, or "LABEL:…" for one. A key's own line
// replaces the one for all. Refuses flag.value.
Result<std::map<std::string, KeyLimits>> parse_key_limits(const std::vector<std::string>& lines);

// Requests and tokens are taken from buckets that fill evenly and hold what a minute gives. What a
// reply will cost shows at its end: a bucket may go below zero, and lets nobody in until it is
// back.
class KeyLimiter {
 public:
  explicit KeyLimiter(std::map<std::string, KeyLimits> limits) : limits_(std::move(limits)) {}

  struct Refused {
    std::string detail;
    int64_t retry_after_s = 1;
  };
  // Any thread; label: of the key. Nothing: the request may go on, and its end must be told.
  std::optional<Refused> begin(const std::string& label, int64_t now_ns);
  void end(const std::string& label, int64_t n_tokens);
  // x-ratelimit-*: what is left, and the seconds until everything is. None without limits.
  HttpHeaders headers(const std::string& label, int64_t now_ns);

 private:
  struct Use {
    int64_t n_running = 0, filled_ns = 0;
    double n_requests = 0, n_tokens = 0;  // left
    bool is_new = true;
  };
  const KeyLimits* limits_of(const std::string& label) const;
  Use& use_of(const std::string& label, const KeyLimits& limits, int64_t now_ns);

  const std::map<std::string, KeyLimits> limits_;  // "": every other key
  std::mutex mutex_;
  std::map<std::string, Use> uses_;  // as many as there are keys
};

}  // namespace roost
