#include "text/detokenizer.h"

#include "base/utf8.h"

namespace roost {

std::string Detokenizer::push(std::string_view bytes) {
  held_ += bytes;
  std::string text;
  size_t at = 0;
  while (at < held_.size()) {
    const Utf8Unit unit = read_utf8(held_, at);
    if (unit.kind == Utf8::kCut) break;
    if (unit.kind == Utf8::kWhole)
      text.append(held_, at, unit.n_bytes);
    else
      text += kReplacementCharacter;
    at += unit.n_bytes;
  }
  held_.erase(0, at);
  return text;
}

std::string Detokenizer::finish() {
  // What is held is one cut sequence, and one mark stands for it.
  std::string text(held_.empty() ? std::string_view() : kReplacementCharacter);
  held_.clear();
  return text;
}

}  // namespace roost
