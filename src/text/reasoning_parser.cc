#include "text/reasoning_parser.h"

namespace roost {
namespace {

constexpr std::string_view kOpening = "<think>";
constexpr std::string_view kClosing = "</think>";

bool is_blank(char c) {
  return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}

std::string_view without_trailing_newlines(std::string_view text) {
  return text.substr(0, text.find_last_not_of('\n') + 1);  // npos + 1 is 0
}

}  // namespace

// Whether the held marker goes on with c.
bool ReasoningParser::begins_marker(char c) const {
  const size_t n = marker_.size();
  const auto goes_on = [&](std::string_view marker) {
    return marker[n] == c && marker.starts_with(marker_);
  };
  return (at_reply_start_ && n < kOpening.size() && goes_on(kOpening)) ||
         (in_reasoning_ && n < kClosing.size() && goes_on(kClosing));
}

void ReasoningParser::release(std::string_view text, ReplyDelta& delta) {
  if (at_field_start_) {
    const size_t begin = text.find_first_not_of('\n');
    if (begin == std::string_view::npos) return;
    text.remove_prefix(begin);
  }
  if (text.empty()) return;
  at_field_start_ = false;
  (in_reasoning_ ? delta.reasoning : delta.content) += text;
}

void ReasoningParser::end_marker(ReplyDelta& delta) {
  const bool is_opening = marker_ == kOpening;
  if (!is_opening) release(without_trailing_newlines(blanks_), delta);
  blanks_.clear();
  marker_.clear();
  in_reasoning_ = is_opening;
  was_reasoning_ = was_reasoning_ || is_opening;
  at_reply_start_ = false;
  at_field_start_ = true;
}

void ReasoningParser::take(char c, ReplyDelta& delta) {
  if (begins_marker(c)) {
    marker_ += c;
    if (marker_ == kOpening || marker_ == kClosing) end_marker(delta);
    return;
  }
  if (marker_.empty() && (at_reply_start_ ? is_blank(c) : in_reasoning_ && c == '\n')) {
    blanks_ += c;
    return;
  }
  // What was held is text after all. A marker begins nowhere else than with its first byte.
  blanks_ += marker_;
  release(blanks_, delta);
  blanks_.clear();
  at_reply_start_ = false;
  if (!marker_.empty()) {
    marker_.clear();
    return take(c, delta);
  }
  release({&c, 1}, delta);
}

ReplyDelta ReasoningParser::push(std::string_view text) {
  ReplyDelta delta;
  for (const char c : text) take(c, delta);
  return delta;
}

ReplyDelta ReasoningParser::finish() {
  ReplyDelta delta;
  if (in_reasoning_ && marker_.empty())
    release(without_trailing_newlines(blanks_), delta);
  else
    release(blanks_ + marker_, delta);
  blanks_.clear();
  marker_.clear();
  return delta;
}

bool prompt_starts_in_reasoning(std::string_view prompt) {
  const size_t opening = prompt.rfind(kOpening);
  const size_t closing = prompt.rfind(kClosing);
  if (opening == std::string_view::npos) return false;
  return closing == std::string_view::npos || opening > closing;
}

}  // namespace roost
