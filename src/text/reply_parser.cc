#include "text/reply_parser.h"

#include <algorithm>
#include <utility>

#include "base/limits.h"
#include "text/blanks.h"

namespace roost {
namespace {

constexpr std::string_view kOpening = "<think>";
constexpr std::string_view kClosing = "</think>";
constexpr std::string_view kCallOpen = "<tool_call>";

std::string_view without_trailing_newlines(std::string_view text) {
  return text.substr(0, text.find_last_not_of('\n') + 1);  // npos + 1 is 0
}

}  // namespace

ReplyParser::ReplyParser(ReplyParserOptions options)
    : options_(std::move(options)),
      stops_(options_.stops, options_.keeps_stop_text),
      state_(options_.starts_in_reasoning ? State::kReasoning : State::kContent),
      was_reasoning_(options_.starts_in_reasoning),
      at_reply_start_(!options_.starts_in_reasoning && options_.finds_markers) {}

ReplyParser::Phase ReplyParser::phase() const {
  switch (state_) {
    case State::kContent:
      return Phase::kContent;
    case State::kCall:
      return is_undecided() ? Phase::kContent : Phase::kCall;
    default:
      return Phase::kReasoning;
  }
}

// ---- Reasoning ----------------------------------------------------------------------------------

void ReplyParser::add_reasoning(std::string_view text, std::vector<ReplyEvent>& events) {
  if (text.empty()) return;
  if (std::exchange(at_reasoning_start_, false) && text.front() == '\n') text.remove_prefix(1);
  add_text(events, {ReplyEvent::Kind::kReasoning, std::string(text)});
}

// At the closing marker, which is not in held_.
void ReplyParser::end_reasoning(std::vector<ReplyEvent>& events) {
  add_reasoning(without_trailing_newlines(held_), events);
  held_.clear();
  state_ = State::kContent;
  at_reply_start_ = false;
  drops_newlines_ = true;
  at_line_start_ = true;
}

// held_ is newlines and then, from marker_begin_ on, what may become a marker.
void ReplyParser::take_reasoning(char c, std::vector<ReplyEvent>& events) {
  const std::string_view seen = std::string_view(held_).substr(marker_begin_);
  const auto goes_on = [&](std::string_view marker) {
    return seen.size() < marker.size() && marker[seen.size()] == c && marker.starts_with(seen);
  };
  const bool has_tools = options_.tools != nullptr && n_calls_ < limits::kCallsMax;
  if (goes_on(kClosing) || (has_tools && goes_on(kCallOpen))) {
    held_ += c;
    const std::string_view marker = std::string_view(held_).substr(marker_begin_);
    if (marker == kClosing) {
      held_.resize(marker_begin_);
      marker_begin_ = 0;
      end_reasoning(events);
    } else if (marker == kCallOpen) {
      state_ = State::kReasoningCall;
      marker_begin_ = 0;
      n_marker_ = 0;
      n_shadow_calls_ = 0;
      is_shadow_broken_ = false;
      shadow_events_.clear();
      shadow_.reset();
      for (const char one : kCallOpen) feed_shadow(one);
    }
    return;
  }
  if (seen.empty() && c == '\n') {
    held_ += c;
    ++marker_begin_;
    return;
  }
  // What was held is text after all. A marker begins nowhere else than with its first byte.
  const bool had_marker = !seen.empty();
  add_reasoning(held_, events);
  held_.clear();
  marker_begin_ = 0;
  if (had_marker) return take_reasoning(c, events);
  add_reasoning({&c, 1}, events);
}

// Calls inside reasoning, and blanks between them; anything else breaks the shadow, and so does a
// call that its schema forbids.
void ReplyParser::feed_shadow(char c) {
  if (!shadow_ || shadow_->state() == CallParser::State::kEnded) {
    if (is_blank(c)) return;
    if (c != '<' || n_shadow_calls_ >= limits::kCallsMax) {
      is_shadow_broken_ = true;
      return;
    }
    shadow_.emplace(*options_.tools, n_shadow_calls_, false);
  }
  const CallParser::State state = shadow_->push(c, shadow_events_);
  if (state == CallParser::State::kNoCall) is_shadow_broken_ = true;
  if (state != CallParser::State::kEnded) return;
  ++n_shadow_calls_;
  if (!shadow_->satisfies_schema() || !shadow_->held().empty()) is_shadow_broken_ = true;
}

bool ReplyParser::is_shadow_complete() const {
  return !is_shadow_broken_ && shadow_ && shadow_->state() == CallParser::State::kEnded;
}

void ReplyParser::take_reasoning_call(char c, std::vector<ReplyEvent>& events) {
  if (!is_shadow_complete()) {
    // Nothing inside a call hides the closing marker.
    n_marker_ = c == kClosing[n_marker_] ? n_marker_ + 1 : (c == '<' ? 1 : 0);
    held_ += c;
    if (n_marker_ == kClosing.size()) {
      held_.resize(held_.size() - kClosing.size());
      return end_reasoning(events);
    }
    feed_shadow(c);
    if (is_shadow_broken_) release_reasoning_call(events);
    return;
  }
  if (tag_.empty() && is_blank(c)) {
    held_ += c;
    return;
  }
  tag_ += c;
  if (tag_ == kClosing) {
    tag_.clear();
    state_ = State::kBehindReasoningCall;
  } else if (tag_ == kCallOpen) {
    held_ += std::exchange(tag_, std::string());
    n_marker_ = 0;
    for (const char one : kCallOpen) feed_shadow(one);
  } else if (!kClosing.starts_with(tag_) && !kCallOpen.starts_with(tag_)) {
    held_ += std::exchange(tag_, std::string());
    release_reasoning_call(events);
  }
}

// Reasoning goes on behind what looked like a call. Its last bytes may begin a marker.
void ReplyParser::release_reasoning_call(std::vector<ReplyEvent>& events) {
  const std::string text = std::exchange(held_, std::string());
  state_ = State::kReasoning;
  const size_t tag = text.rfind('<');
  const bool has_tag = tag != 0 && tag + kCallOpen.size() > text.size();
  const std::string_view sure =
      without_trailing_newlines(std::string_view(text).substr(0, has_tag ? tag : text.size()));
  add_reasoning(sure, events);
  for (const char one : std::string_view(text).substr(sure.size())) take(one, events);
}

// Calls that the closing marker followed: whether they were thoughts shows behind it.
void ReplyParser::take_behind_reasoning_call(char c, std::vector<ReplyEvent>& events) {
  if (is_blank(c)) {
    tag_ += c;
    return;
  }
  const std::string blanks = std::exchange(tag_, std::string());
  end_reasoning(events);
  for (const char one : blanks) take(one, events);
  take(c, events);
}

// ---- Content ------------------------------------------------------------------------------------

// Blanks at the end wait: a call drops them.
void ReplyParser::show_content(std::string_view text, std::vector<ReplyEvent>& events) {
  if (options_.tools == nullptr) {
    add_text(events, {ReplyEvent::Kind::kContent, std::string(text)});
    return;
  }
  const size_t end = text.find_last_not_of(" \n\t\r") + 1;  // npos + 1 is 0
  if (end > 0) {
    add_text(events, {ReplyEvent::Kind::kContent,
                      std::exchange(blanks_, std::string()).append(text.substr(0, end))});
  }
  blanks_ += text.substr(end);
}

void ReplyParser::flush_content(std::vector<ReplyEvent>& events) {
  if (run_.empty()) return;
  const std::string run = std::exchange(run_, std::string());
  const bool is_plain = options_.stops.empty() || are_stops_paused_;
  show_content(is_plain ? run : stops_.push(run), events);
}

// Everything of the content so far is decided; a stop string cannot reach across.
void ReplyParser::close_content(std::vector<ReplyEvent>& events) {
  flush_content(events);
  if (!is_over()) show_content(stops_.finish(), events);
}

void ReplyParser::add_content(char c) {
  if (drops_newlines_ && c == '\n') return;
  drops_newlines_ = false;
  if (drops_blanks_ && is_blank(c)) {
    at_line_start_ = c == '\n';
    return;
  }
  drops_blanks_ = false;
  at_line_start_ = c == '\n';
  run_ += c;
}

void ReplyParser::take_content(char c, std::vector<ReplyEvent>& events) {
  if (at_reply_start_) {
    const std::string_view seen = std::string_view(held_).substr(marker_begin_);
    if (kOpening[seen.size()] == c) {
      held_ += c;
      if (seen.size() + 1 < kOpening.size()) return;
      held_.clear();
      marker_begin_ = 0;
      at_reply_start_ = false;
      was_reasoning_ = true;
      state_ = State::kReasoning;
      return;
    }
    if (seen.empty() && is_blank(c)) {
      held_ += c;
      ++marker_begin_;
      return;
    }
    at_reply_start_ = false;
    const std::string held = std::exchange(held_, std::string());
    marker_begin_ = 0;
    for (const char one : held) take(one, events);
    return take(c, events);
  }
  if (c == '<' && options_.tools != nullptr && n_calls_ < limits::kCallsMax) {
    call_.emplace(*options_.tools, n_calls_, at_line_start_);
    state_ = State::kCall;
    return take_call(c, events);
  }
  add_content(c);
}

// The header is proven: what came before it is content, without the blanks between.
void ReplyParser::start_calls(std::vector<ReplyEvent>& events) {
  close_content(events);
  if (is_over()) return;  // a stop string stands before it
  blanks_.clear();
  ++n_calls_;
}

void ReplyParser::take_call(char c, std::vector<ReplyEvent>& events) {
  const bool was_open = is_undecided();
  std::vector<ReplyEvent> call_events;
  const CallParser::State state = call_->push(c, was_open ? call_events : events);
  if (state == CallParser::State::kNoCall) {
    // The first byte is content; a call may begin in what is held behind it.
    const std::string held = call_->held();
    call_.reset();
    state_ = State::kContent;
    add_content(held[0]);
    for (const char one : std::string_view(held).substr(1)) take(one, events);
    return;
  }
  if (was_open && state != CallParser::State::kOpen) {
    start_calls(events);
    if (is_over()) return;
    for (ReplyEvent& event : call_events) events.push_back(std::move(event));
  }
  if (state != CallParser::State::kEnded) return;
  const std::string behind = call_->held();
  call_.reset();
  state_ = State::kContent;
  drops_blanks_ = true;
  has_call_limit_ = options_.ends_at_first_call;
  for (const char one : behind) take(one, events);
}

// ---- Both ---------------------------------------------------------------------------------------

void ReplyParser::take(char c, std::vector<ReplyEvent>& events) {
  if (is_over()) return;
  switch (state_) {
    case State::kReasoning:
      return take_reasoning(c, events);
    case State::kReasoningCall:
      return take_reasoning_call(c, events);
    case State::kBehindReasoningCall:
      return take_behind_reasoning_call(c, events);
    case State::kContent:
      return take_content(c, events);
    case State::kCall:
      return take_call(c, events);
  }
}

void ReplyParser::push(std::string_view text, std::vector<ReplyEvent>& events) {
  for (const char c : text) {
    if (is_over()) return;
    take(c, events);
  }
  if (!is_over()) flush_content(events);
}

void ReplyParser::finish(bool is_cut, std::vector<ReplyEvent>& events) {
  if (is_over()) {
    if (n_calls_ == 0) add_text(events, {ReplyEvent::Kind::kContent, blanks_});
    return;
  }
  const bool is_call_of_reasoning =
      !is_cut && (state_ == State::kBehindReasoningCall ||
                  (state_ == State::kReasoningCall && is_shadow_complete() && tag_.empty()));
  if (is_call_of_reasoning) {
    n_calls_ = n_shadow_calls_;
    for (ReplyEvent& event : shadow_events_) events.push_back(std::move(event));
    return;
  }
  if (state_ == State::kReasoning || state_ == State::kReasoningCall ||
      state_ == State::kBehindReasoningCall) {
    // Newlines at the end are dropped, unless a marker that never came to be stands behind them.
    if (state_ == State::kReasoningCall) held_ += tag_;
    add_reasoning(without_trailing_newlines(held_), events);
    return;
  }
  if (state_ == State::kCall) {
    if (is_undecided()) {
      const std::string held = call_->held();
      call_.reset();
      for (const char one : held) add_content(one);
    } else {
      call_->finish(is_cut, events);
    }
  }
  for (const char one : held_) add_content(one);
  close_content(events);
  if (n_calls_ == 0) add_text(events, {ReplyEvent::Kind::kContent, blanks_});
}

bool prompt_starts_in_reasoning(std::string_view prompt) {
  const size_t opening = prompt.rfind(kOpening);
  const size_t closing = prompt.rfind(kClosing);
  if (opening == std::string_view::npos) return false;
  return closing == std::string_view::npos || opening > closing;
}

}  // namespace roost
