// What a reply says, piece by piece, in the order in which it is generated.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace roost {

struct ReplyEvent {
  enum class Kind { kReasoning, kContent, kCallStart, kCallArguments, kCallEnd };
  Kind kind = Kind::kContent;
  std::string text;           // kCallStart: the name; kCallArguments: bytes of JSON, or free text
  int call_idx = -1;          // of call events: 0, 1, …
  bool is_free_text = false;  // of call events: the argument is one text
};

// Appends, or joins the text to the last event when that is of the same kind.
inline void add_text(std::vector<ReplyEvent>& events, ReplyEvent event) {
  if (event.text.empty()) return;
  ReplyEvent* last = events.empty() ? nullptr : &events.back();
  if (last != nullptr && last->kind == event.kind && last->call_idx == event.call_idx)
    last->text += event.text;
  else
    events.push_back(std::move(event));
}

}  // namespace roost
