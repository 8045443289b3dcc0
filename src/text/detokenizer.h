// Bytes of tokens to text, as a stream that never holds half a character.
#pragma once

#include <string>
#include <string_view>

namespace roost {

class Detokenizer {
 public:
  // The text that has become certain with these bytes; an incomplete UTF-8 tail is held back. A
  // sequence proven invalid gives U+FFFD by the maximal-subpart rule.
  std::string push(std::string_view bytes);
  // The held tail, as U+FFFD, when the sequence ends.
  std::string finish();

 private:
  std::string held_;
};

}  // namespace roost
