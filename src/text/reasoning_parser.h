// The reply machine's first cut: reasoning, then content (docs/SERVER.md, reply machine).
#pragma once

#include <string>
#include <string_view>

namespace roost {

struct ReplyDelta {
  std::string reasoning;
  std::string content;
};

// Splits generated text into reasoning and content at </think>, across any cut of the pushes:
// newlines around the markers are not part of either; an opening <think> that is generated first is
// swallowed. Concatenated deltas equal the whole fields. The work per byte is constant.
class ReasoningParser {
 public:
  explicit ReasoningParser(bool starts_in_reasoning)
      : in_reasoning_(starts_in_reasoning), was_reasoning_(starts_in_reasoning) {}
  ReplyDelta push(std::string_view text);
  ReplyDelta finish();  // what was held back
  bool in_reasoning() const { return in_reasoning_; }
  bool was_reasoning() const { return was_reasoning_; }  // the reply was in reasoning at some point

 private:
  void take(char c, ReplyDelta& delta);
  void end_marker(ReplyDelta& delta);
  void release(std::string_view text, ReplyDelta& delta);
  bool begins_marker(char c) const;

  bool in_reasoning_;
  bool was_reasoning_;
  bool at_reply_start_ = true;  // only blanks so far: an opening marker is swallowed
  bool at_field_start_ = true;  // leading newlines of the field are dropped
  std::string
      blanks_;  // at the start of the reply; in reasoning newlines that may turn out trailing
  std::string marker_;  // the beginning of a possible marker, behind the blanks
};

// True iff the last <think> in the rendered prompt comes after the last </think>.
bool prompt_starts_in_reasoning(std::string_view prompt);

}  // namespace roost
