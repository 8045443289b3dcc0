// Limits of a key (docs/SERVER.md, security).
#include "server/key_limits.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace roost {

namespace {

constexpr double kMinuteNs = 60e9;
constexpr int64_t kLimitMax = 1'000'000'000;
constexpr double kOne = 1 - 1e-9;  // what fills in parts is a little less than its sum

// Seconds until a bucket that holds `left` holds `wanted`.
int64_t seconds_until(double left, double wanted, int64_t per_minute) {
  const double missing = std::max(0.0, wanted - left);
  return static_cast<int64_t>(std::ceil(missing * 60 / static_cast<double>(per_minute)));
}

Result<int64_t> parse_number(std::string_view text, std::string_view line) {
  int64_t out = 0;
  for (const char c : text) {
    if (c < '0' || c > '9' || out > kLimitMax)
      return Error{Refusal::FlagValue, fmt::format("--key-limits {}: want whole numbers", line)};
    out = out * 10 + (c - '0');
  }
  if (out < 1 || out > kLimitMax)
    return Error{Refusal::FlagValue, fmt::format("--key-limits {}: want 1 to {}", line, kLimitMax)};
  return out;
}

}  // namespace

Result<std::map<std::string, KeyLimits>> parse_key_limits(const std::vector<std::string>& lines) {
  std::map<std::string, KeyLimits> out;
  for (const std::string& line : lines) {
    const size_t colon = line.find(':');
    const std::string label = colon == std::string::npos ? "" : line.substr(0, colon);
    std::string_view rest =
        std::string_view(line).substr(colon == std::string::npos ? 0 : colon + 1);
    KeyLimits limits;
    while (!rest.empty()) {
      const std::string_view one = rest.substr(0, rest.find(','));
      rest.remove_prefix(std::min(one.size() + 1, rest.size()));
      const size_t equals = std::min(one.find('='), one.size());
      const std::string_view name = one.substr(0, equals);
      int64_t* field = name == "concurrent" ? &limits.n_at_once
                       : name == "requests" ? &limits.requests_per_minute
                       : name == "tokens"   ? &limits.tokens_per_minute
                                            : nullptr;
      if (field == nullptr || equals == one.size())
        return Error{Refusal::FlagValue,
                     fmt::format("--key-limits {}: want concurrent=N, requests=N or tokens=N with "
                                 "commas between, behind LABEL: or not",
                                 line)};
      ROOST_TRY(*field, parse_number(one.substr(equals + 1), line));
    }
    if (!out.emplace(label, limits).second)
      return Error{Refusal::FlagValue, fmt::format("--key-limits {}: given twice", line)};
  }
  return out;
}

const KeyLimits* KeyLimiter::limits_of(const std::string& label) const {
  auto at = limits_.find(label);
  if (at == limits_.end()) at = limits_.find("");
  return at == limits_.end() ? nullptr : &at->second;
}

KeyLimiter::Use& KeyLimiter::use_of(const std::string& label, const KeyLimits& limits,
                                    int64_t now_ns) {
  Use& use = uses_[label];
  const auto n_requests = static_cast<double>(limits.requests_per_minute);
  const auto n_tokens = static_cast<double>(limits.tokens_per_minute);
  const double minutes =
      use.is_new ? 1
                 : static_cast<double>(std::max<int64_t>(now_ns - use.filled_ns, 0)) / kMinuteNs;
  use.n_requests = std::min(n_requests, use.n_requests + minutes * n_requests);
  use.n_tokens = std::min(n_tokens, use.n_tokens + minutes * n_tokens);
  use.filled_ns = now_ns;
  use.is_new = false;
  return use;
}

std::optional<KeyLimiter::Refused> KeyLimiter::begin(const std::string& label, int64_t now_ns) {
  const KeyLimits* limits = limits_of(label);
  if (limits == nullptr) return std::nullopt;
  const std::lock_guard lock(mutex_);
  Use& use = use_of(label, *limits, now_ns);
  if (limits->n_at_once > 0 && use.n_running >= limits->n_at_once)
    return Refused{fmt::format("{} replies at once, limit {}", use.n_running, limits->n_at_once),
                   1};
  if (limits->requests_per_minute > 0 && use.n_requests < kOne)
    return Refused{
        fmt::format("limit {} requests a minute", limits->requests_per_minute),
        std::max<int64_t>(seconds_until(use.n_requests, 1, limits->requests_per_minute), 1)};
  if (limits->tokens_per_minute > 0 && use.n_tokens < kOne)
    return Refused{fmt::format("limit {} tokens a minute", limits->tokens_per_minute),
                   std::max<int64_t>(seconds_until(use.n_tokens, 1, limits->tokens_per_minute), 1)};
  ++use.n_running;
  use.n_requests -= 1;
  return std::nullopt;
}

void KeyLimiter::end(const std::string& label, int64_t n_tokens) {
  if (limits_of(label) == nullptr) return;
  const std::lock_guard lock(mutex_);
  Use& use = uses_[label];
  --use.n_running;
  use.n_tokens -= static_cast<double>(n_tokens);
}

HttpHeaders KeyLimiter::headers(const std::string& label, int64_t now_ns) {
  HttpHeaders out;
  const KeyLimits* limits = limits_of(label);
  if (limits == nullptr) return out;
  const std::lock_guard lock(mutex_);
  const Use& use = use_of(label, *limits, now_ns);
  const auto add = [&](const char* what, int64_t limit, double left) {
    if (limit == 0) return;
    const auto whole = static_cast<int64_t>(std::max(0.0, std::floor(left + 1 - kOne)));
    const int64_t reset_s = seconds_until(left, static_cast<double>(limit), limit);
    out.emplace_back(fmt::format("x-ratelimit-limit-{}", what), fmt::to_string(limit));
    out.emplace_back(fmt::format("x-ratelimit-remaining-{}", what), fmt::to_string(whole));
    out.emplace_back(fmt::format("x-ratelimit-reset-{}", what), fmt::format("{}s", reset_s));
  };
  add("requests", limits->requests_per_minute, use.n_requests);
  add("tokens", limits->tokens_per_minute, use.n_tokens);
  return out;
}

}  // namespace roost
