// One call of a tool in the family's XML-like form, byte by byte (docs/SERVER.md, the call
// grammar).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "text/reply_event.h"
#include "text/tool_table.h"

namespace roost {

//   call  := "<tool_call>" ws "<function=" NAME ">" ws param* "</function>" ws "</tool_call>"
//   param := "<parameter=" KEY ">" "\n" VALUE "\n" "</parameter>" ws
//
// Values are raw text. What may still become the end of a value is held, nothing more; the work per
// byte is constant.
class CallParser {
 public:
  enum class State {
    kOpen,    // may be a call: held() is all of it
    kNoCall,  // is none: held() is all of it, and the caller's text again
    kInside,  // a call, proven; events leave
    kEnded,   // complete; held() is what came behind it and is not part of it
  };

  // The tools must outlive it. at_line_start: a bare <function=NAME> of an offered tool counts too.
  CallParser(const ToolTable& tools, int call_idx, bool at_line_start);

  State push(char c, std::vector<ReplyEvent>& events);
  // No byte follows. is_cut: the reply was cut off, so what is held belongs to the value; else it
  // begins the closing sequence that is then supplied. An open header becomes kNoCall.
  State finish(bool is_cut, std::vector<ReplyEvent>& events);

  State state() const { return state_; }
  const std::string& held() const { return held_; }
  // kEnded: the tool was offered and the arguments are what its schema says.
  bool satisfies_schema() const;

 private:
  enum class Stage {
    kOpening,         // "<tool_call>" or a bare "<function="
    kBeforeName,      // blanks, "<function="
    kName,            // NAME ">"
    kBeforeFirst,     // blanks, "<parameter=" or "</function>"
    kFirstKey,        // KEY ">"
    kValue,           // nothing is held
    kValueNewline,    // "\n", which may belong to the closer
    kCloser,          // "</parameter>", or at a line's start "<parameter="
    kBehindCloser,    // blanks, "<parameter=" or "</function>"
    kNextKey,         // KEY ">"
    kBehindFunction,  // blanks, "</tool_call>"
    kRepairKey,       // of a line that is exactly <parameter=KEY>
    kRepairNewline,
    kBehindEmpty,  // blanks, "</tool_call>" of a call without parameters
  };

  bool take_header(char c, std::vector<ReplyEvent>& events);
  bool take_held(char c, std::vector<ReplyEvent>& events);
  void take_value(char c, std::vector<ReplyEvent>& events);
  bool take_literal(char c, std::string_view a, std::string_view b = {});
  bool take_name(char c);
  void begin_literal(Stage stage);

  void start_call(std::vector<ReplyEvent>& events);
  void start_parameter(std::vector<ReplyEvent>& events);
  void add_value(std::string_view text, std::vector<ReplyEvent>& events);
  void end_parameter(std::vector<ReplyEvent>& events);
  void end_call(std::vector<ReplyEvent>& events);
  void emit(std::string text, std::vector<ReplyEvent>& events) const;
  bool may_follow(const std::string& key) const;
  bool is_given(const std::string& key) const;
  std::string taken_name();

  const ToolTable& tools_;
  const int call_idx_;
  const bool at_line_start_;
  State state_ = State::kOpen;
  Stage stage_ = Stage::kOpening;
  std::string held_;
  size_t literal_begin_ = 0;       // of the tag or name in held_ that is being read
  const char* literal_ = nullptr;  // which of two tags it is, once that is known
  const OfferedTool* tool_ = nullptr;
  std::string name_;
  std::vector<std::string> keys_;  // given so far; the last one is open
  ArgumentType type_;
  std::string value_;            // of a parameter that is converted at its end
  bool is_value_begin_ = false;  // a newline here belongs to the format
  bool is_line_start_ = false;   // in the value
  bool fits_ = true;
};

}  // namespace roost
