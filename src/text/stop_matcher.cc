// Matching stop strings byte by byte (docs/SERVER.md, stop strings and UTF-8).
#include "text/stop_matcher.h"

#include <algorithm>
#include <utility>

namespace roost {

namespace {

// Length of the longest suffix of `text` that is a proper prefix of `stop`.
size_t partial_length(std::string_view text, std::string_view stop) {
  for (size_t n = std::min(text.size(), stop.size() - 1); n > 0; --n)
    if (text.substr(text.size() - n) == stop.substr(0, n)) return n;
  return 0;
}

}  // namespace

std::string StopMatcher::push(std::string_view text) {
  if (matched_) return "";
  const size_t n_old = held_.size();
  std::string buffer = std::exchange(held_, std::string());
  buffer += text;
  const std::string_view view = buffer;
  for (size_t end = n_old + 1; end <= view.size(); ++end) {
    const std::string* longest = nullptr;
    for (const std::string& stop : stops_) {
      const bool is_longer = longest == nullptr || stop.size() > longest->size();
      if (is_longer && view.substr(0, end).ends_with(stop)) longest = &stop;
    }
    if (longest == nullptr) continue;
    matched_ = *longest;
    return buffer.substr(0, keeps_match_ ? end : end - longest->size());
  }
  size_t n_held = 0;
  for (const std::string& stop : stops_) n_held = std::max(n_held, partial_length(view, stop));
  held_ = buffer.substr(buffer.size() - n_held);
  buffer.resize(buffer.size() - n_held);
  return buffer;
}

std::string StopMatcher::finish() {
  return std::exchange(held_, std::string());
}

}  // namespace roost
