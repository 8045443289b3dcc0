// The reply machine: generated text in, pieces of reasoning, content and calls out
// (docs/SERVER.md, reply machine).
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/call_parser.h"
#include "text/reply_event.h"
#include "text/stop_matcher.h"
#include "text/tool_table.h"

namespace roost {

struct ReplyParserOptions {
  bool starts_in_reasoning = false;
  bool finds_markers = true;  // false: all text is content
  std::vector<std::string> stops;
  bool keeps_stop_text = false;
  std::shared_ptr<const ToolTable> tools;  // null: calls are not looked for
  bool ends_at_first_call = false;
};

// The result depends on the bytes alone, not on how the pushes cut them. The work per byte is
// constant.
class ReplyParser {
 public:
  enum class Phase { kReasoning, kContent, kCall };

  explicit ReplyParser(ReplyParserOptions options);

  void push(std::string_view text, std::vector<ReplyEvent>& events);
  void pause_stops(bool is_paused) { are_stops_paused_ = is_paused; }  // stop strings are not seen
  // Decides what was held. is_cut: the reply was cut off by a limit; else its turn has ended.
  void finish(bool is_cut, std::vector<ReplyEvent>& events);

  // After one of these nothing more is taken.
  const std::optional<std::string>& matched_stop() const { return stops_.matched(); }
  bool has_call_limit() const { return has_call_limit_; }

  Phase phase() const;
  bool was_reasoning() const { return was_reasoning_; }
  // Text is held whose kind is not known: it may be a call.
  bool is_undecided() const {
    return state_ == State::kReasoningCall || state_ == State::kBehindReasoningCall ||
           (call_ && call_->state() == CallParser::State::kOpen);
  }
  int n_calls() const { return n_calls_; }

 private:
  enum class State { kReasoning, kReasoningCall, kBehindReasoningCall, kContent, kCall };

  bool is_over() const { return has_call_limit_ || stops_.matched().has_value(); }
  void take(char c, std::vector<ReplyEvent>& events);
  void take_reasoning(char c, std::vector<ReplyEvent>& events);
  void take_reasoning_call(char c, std::vector<ReplyEvent>& events);
  void release_reasoning_call(std::vector<ReplyEvent>& events);
  void take_behind_reasoning_call(char c, std::vector<ReplyEvent>& events);
  void take_content(char c, std::vector<ReplyEvent>& events);
  void take_call(char c, std::vector<ReplyEvent>& events);

  void feed_shadow(char c);
  bool is_shadow_complete() const;
  void add_reasoning(std::string_view text, std::vector<ReplyEvent>& events);
  void end_reasoning(std::vector<ReplyEvent>& events);
  void add_content(char c);
  void flush_content(std::vector<ReplyEvent>& events);
  void show_content(std::string_view text, std::vector<ReplyEvent>& events);
  void close_content(std::vector<ReplyEvent>& events);
  void start_calls(std::vector<ReplyEvent>& events);

  const ReplyParserOptions options_;
  StopMatcher stops_;
  State state_;
  bool was_reasoning_;
  bool has_call_limit_ = false, are_stops_paused_ = false;
  int n_calls_ = 0;

  // Reasoning.
  bool at_reasoning_start_ = true;  // one newline is dropped
  std::string held_;                // newlines that may be the last ones, and what may be a marker
  size_t marker_begin_ = 0;         // of the marker in held_

  // Calls in reasoning are read on the side until it is known what they are.
  std::vector<ReplyEvent> shadow_events_;
  std::optional<CallParser> shadow_;
  int n_shadow_calls_ = 0;
  bool is_shadow_broken_ = false;
  size_t n_marker_ = 0;  // bytes of </think> at the end of held_, inside a call
  std::string tag_;      // behind complete calls: a tag that is begun, or blanks

  // Content.
  bool at_reply_start_;          // only blanks so far: an opening marker is swallowed
  bool drops_newlines_ = false;  // right behind reasoning
  bool drops_blanks_ = false;    // right behind a call
  bool at_line_start_ = true;
  std::string run_;     // content of this push, not yet shown to the stop matcher
  std::string blanks_;  // at the end of the content: dropped if a call follows
  std::optional<CallParser> call_;
};

// True iff the last <think> in the rendered prompt comes after the last </think>.
bool prompt_starts_in_reasoning(std::string_view prompt);

}  // namespace roost
