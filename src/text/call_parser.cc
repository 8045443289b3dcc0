#include "text/call_parser.h"

#include <algorithm>

#include "text/blanks.h"

namespace roost {

namespace {

constexpr std::string_view kCallOpen = "<tool_call>";
constexpr std::string_view kCallClose = "</tool_call>";
constexpr std::string_view kFunctionOpen = "<function=";
constexpr std::string_view kFunctionClose = "</function>";
constexpr std::string_view kParameterOpen = "<parameter=";
constexpr std::string_view kParameterClose = "</parameter>";
constexpr size_t kNameBytesMax = 256;

// As inside a JSON string.
std::string escaped(std::string_view text) {
  std::string quoted;
  json::write_string(text, quoted);
  return quoted.substr(1, quoted.size() - 2);
}

}  // namespace

CallParser::CallParser(const ToolTable& tools, int call_idx, bool at_line_start)
    : tools_(tools), call_idx_(call_idx), at_line_start_(at_line_start) {}

void CallParser::emit(std::string text, std::vector<ReplyEvent>& events) const {
  add_text(events, {ReplyEvent::Kind::kCallArguments, std::move(text), call_idx_,
                    tool_ != nullptr && tool_->is_free_text});
}

// ---- Tags and names, which are held -------------------------------------------------------------

void CallParser::begin_literal(Stage stage) {
  stage_ = stage;
  literal_begin_ = held_.size();
  literal_ = nullptr;
}

// The byte goes on with one of two tags; literal_ is the tag once all of it is there.
bool CallParser::take_literal(char c, std::string_view a, std::string_view b) {
  held_ += c;
  const std::string_view seen = std::string_view(held_).substr(literal_begin_);
  literal_ = seen == a ? a.data() : seen == b && !b.empty() ? b.data() : nullptr;
  return a.starts_with(seen) || b.starts_with(seen);
}

// The byte may stand in a name, or ends one ('>').
bool CallParser::take_name(char c) {
  held_ += c;
  const size_t n = held_.size() - literal_begin_;
  if (c == '>') return !trimmed(std::string_view(held_).substr(literal_begin_, n - 1)).empty();
  return c != '<' && c != '\n' && c != '\r' && n <= kNameBytesMax;
}

std::string CallParser::taken_name() {
  return std::string(
      trimmed(std::string_view(held_).substr(literal_begin_, held_.size() - literal_begin_ - 1)));
}

bool CallParser::is_given(const std::string& key) const {
  return std::find(keys_.begin(), keys_.end(), key) != keys_.end();
}

bool CallParser::may_follow(const std::string& key) const {
  return !is_given(key) && (!ToolTable::is_closed(tool_) || ToolTable::is_declared(tool_, key));
}

// ---- The header ---------------------------------------------------------------------------------

// False: this is no call.
bool CallParser::take_header(char c, std::vector<ReplyEvent>& events) {
  switch (stage_) {
    case Stage::kOpening:
      if (!take_literal(c, kCallOpen, at_line_start_ ? kFunctionOpen : std::string_view()))
        return false;
      if (literal_ == kCallOpen.data()) begin_literal(Stage::kBeforeName);
      if (literal_ == kFunctionOpen.data()) begin_literal(Stage::kName);
      return true;
    case Stage::kBeforeName:
      if (is_blank(c) && held_.size() == literal_begin_) {
        held_ += c;
        ++literal_begin_;
        return true;
      }
      if (!take_literal(c, kFunctionOpen)) return false;
      if (literal_ != nullptr) begin_literal(Stage::kName);
      return true;
    case Stage::kName: {
      if (!take_name(c)) return false;
      if (c != '>') return true;
      name_ = taken_name();
      const bool is_bare = held_.starts_with(kFunctionOpen);
      if (is_bare && !tools_.is_offered(name_)) return false;
      begin_literal(Stage::kBeforeFirst);
      return true;
    }
    case Stage::kBeforeFirst:
      if (is_blank(c) && held_.size() == literal_begin_) {
        held_ += c;
        ++literal_begin_;
        return true;
      }
      if (!take_literal(c, kParameterOpen, kFunctionClose)) return false;
      if (literal_ == kParameterOpen.data()) begin_literal(Stage::kFirstKey);
      if (literal_ == kFunctionClose.data()) {
        start_call(events);
        if (!tool_ || !tool_->is_free_text) emit("{}", events);
        held_.clear();
        begin_literal(Stage::kBehindEmpty);
      }
      return true;
    default:
      if (!take_name(c)) return false;
      if (c != '>') return true;
      start_call(events);
      keys_.push_back(taken_name());
      start_parameter(events);
      return true;
  }
}

void CallParser::start_call(std::vector<ReplyEvent>& events) {
  state_ = State::kInside;
  tool_ = tools_.find(name_);
  ReplyEvent event;
  event.kind = ReplyEvent::Kind::kCallStart;
  event.text = tool_ != nullptr ? tool_->name : name_;
  event.call_idx = call_idx_;
  event.is_free_text = tool_ != nullptr && tool_->is_free_text;
  events.push_back(std::move(event));
}

// ---- Values -------------------------------------------------------------------------------------

void CallParser::start_parameter(std::vector<ReplyEvent>& events) {
  held_.clear();
  stage_ = Stage::kValue;
  value_.clear();
  is_value_begin_ = true;
  is_line_start_ = false;
  const std::string& key = keys_.back();
  type_ = ToolTable::type_of(tool_, key);
  if (ToolTable::is_closed(tool_) && !ToolTable::is_declared(tool_, key)) fits_ = false;
  if (tool_ != nullptr && tool_->is_free_text) return;
  std::string text = keys_.size() == 1 ? "{" : ",";
  json::write_string(key, text);
  text += type_.is_text() ? ":\"" : ":";
  emit(std::move(text), events);
}

void CallParser::add_value(std::string_view text, std::vector<ReplyEvent>& events) {
  if (text.empty()) return;
  is_line_start_ = text.back() == '\n';
  if (tool_ != nullptr && tool_->is_free_text) {
    if (keys_.size() == 1) emit(std::string(text), events);  // of several texts the first counts
  } else if (type_.is_text()) {
    emit(escaped(text), events);
  } else {
    value_ += text;
  }
}

void CallParser::end_parameter(std::vector<ReplyEvent>& events) {
  if (tool_ != nullptr && tool_->is_free_text) return;
  if (type_.is_text()) {
    emit("\"", events);
    return;
  }
  ArgumentValue value = type_.convert(value_);
  fits_ = fits_ && value.fits;
  emit(std::move(value.json), events);
}

void CallParser::end_call(std::vector<ReplyEvent>& events) {
  if (!keys_.empty() && !(tool_ != nullptr && tool_->is_free_text)) emit("}", events);
  ReplyEvent event;
  event.kind = ReplyEvent::Kind::kCallEnd;
  event.call_idx = call_idx_;
  event.is_free_text = tool_ != nullptr && tool_->is_free_text;
  events.push_back(std::move(event));
  state_ = State::kEnded;
}

bool CallParser::satisfies_schema() const {
  return state_ == State::kEnded && tool_ != nullptr && fits_ &&
         ToolTable::has_required(*tool_, keys_);
}

void CallParser::take_value(char c, std::vector<ReplyEvent>& events) {
  const bool is_begin = std::exchange(is_value_begin_, false);
  if (c == '\n' && is_begin) {
    is_line_start_ = true;
  } else if (c == '\n') {
    held_ = "\n";
    stage_ = Stage::kValueNewline;
  } else if (c == '<') {
    held_ = "<";
    stage_ = Stage::kCloser;
    literal_begin_ = 0;
  } else {
    add_value({&c, 1}, events);
  }
}

// A byte behind held text that may end the value. False: it does not.
bool CallParser::take_held(char c, std::vector<ReplyEvent>& events) {
  switch (stage_) {
    case Stage::kValueNewline:
      held_ += c;
      if (c != '<') return false;
      stage_ = Stage::kCloser;
      literal_begin_ = held_.size() - 1;
      return true;
    case Stage::kCloser: {
      const bool may_repair = literal_begin_ > 0 || is_line_start_;
      if (!take_literal(c, kParameterClose, may_repair ? kParameterOpen : std::string_view()))
        return false;
      if (literal_ == kParameterClose.data()) begin_literal(Stage::kBehindCloser);
      if (literal_ == kParameterOpen.data()) begin_literal(Stage::kRepairKey);
      return true;
    }
    case Stage::kRepairKey: {
      if (!take_name(c)) return false;
      if (c != '>') return true;
      const std::string key = taken_name();
      if (!ToolTable::is_declared(tool_, key) || is_given(key)) return false;
      stage_ = Stage::kRepairNewline;
      return true;
    }
    case Stage::kRepairNewline:
      held_ += c;
      if (c != '\n') return false;
      held_.pop_back();
      end_parameter(events);
      keys_.push_back(taken_name());
      start_parameter(events);
      is_value_begin_ = false;  // its newline has come
      is_line_start_ = true;
      return true;
    case Stage::kBehindCloser:
    case Stage::kBehindFunction:
      if (is_blank(c) && held_.size() == literal_begin_) {
        held_ += c;
        ++literal_begin_;
        return true;
      }
      if (stage_ == Stage::kBehindFunction) {
        if (!take_literal(c, kCallClose)) return false;
        if (literal_ == nullptr) return true;
        held_.clear();
        end_parameter(events);
        end_call(events);
        return true;
      }
      if (!take_literal(c, kParameterOpen, kFunctionClose)) return false;
      if (literal_ == kParameterOpen.data()) begin_literal(Stage::kNextKey);
      if (literal_ == kFunctionClose.data()) begin_literal(Stage::kBehindFunction);
      return true;
    default: {
      if (!take_name(c)) return false;
      if (c != '>') return true;
      std::string key = taken_name();
      if (!may_follow(key)) return false;
      end_parameter(events);
      keys_.push_back(std::move(key));
      start_parameter(events);
      return true;
    }
  }
}

CallParser::State CallParser::push(char c, std::vector<ReplyEvent>& events) {
  if (state_ == State::kOpen) {
    if (!take_header(c, events)) state_ = State::kNoCall;
    return state_;
  }
  if (stage_ == Stage::kBehindEmpty) {
    if (is_blank(c) && held_.size() == literal_begin_) {
      held_ += c;
      ++literal_begin_;
      return state_;
    }
    const bool goes_on = take_literal(c, kCallClose);
    if (goes_on && literal_ == nullptr) return state_;
    if (goes_on) held_.clear();  // else the closer is missing, and this is other text
    end_call(events);
    return state_;
  }
  if (stage_ == Stage::kValue) {
    take_value(c, events);
    return state_;
  }
  if (take_held(c, events)) return state_;
  // What was held is value after all. A closer may begin inside of it, behind its first byte; held
  // text has at most three places where one can begin, so this is done at most three times a byte.
  const std::string held = std::exchange(held_, std::string());
  stage_ = Stage::kValue;
  add_value(std::string_view(held).substr(0, 1), events);
  for (const char next : std::string_view(held).substr(1)) push(next, events);
  return state_;
}

CallParser::State CallParser::finish(bool is_cut, std::vector<ReplyEvent>& events) {
  if (state_ == State::kOpen) {
    state_ = State::kNoCall;
    return state_;
  }
  if (state_ != State::kInside) return state_;
  if (stage_ != Stage::kBehindEmpty) {
    const bool is_repair = stage_ == Stage::kRepairKey || stage_ == Stage::kRepairNewline;
    if (is_cut || is_repair) add_value(held_, events);
    end_parameter(events);
  }
  held_.clear();
  end_call(events);
  return state_;
}

}  // namespace roost
