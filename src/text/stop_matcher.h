// Stop strings in a stream of text: what may still become a match is held, nothing more.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace roost {

class StopMatcher {
 public:
  StopMatcher(std::vector<std::string> stops, bool keeps_match)
      : stops_(std::move(stops)), keeps_match_(keeps_match) {}

  // The text that is certain to be shown. The match that completes first ends it; of several that
  // complete at one byte, the one that starts earliest.
  std::string push(std::string_view text);
  std::string finish();  // what was held

  const std::optional<std::string>& matched() const { return matched_; }

 private:
  std::vector<std::string> stops_;
  bool keeps_match_;
  std::string held_;
  std::optional<std::string> matched_;
};

}  // namespace roost
