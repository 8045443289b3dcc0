// How values become text: str(), repr() and json.dumps() as Python has them.
#pragma once

#include <optional>
#include <string>

#include "text/template_value.h"

namespace roost::jinja {

// str(value): a string is itself, an undefined value is empty.
Result<std::string> to_text(Heap& heap, const Value& value);
// Appends str(value).
Result<void> append_text(Heap& heap, const Value& value, std::string& out);

struct JsonStyle {
  bool is_ascii_only = false;
  bool sort_keys = false;
  std::optional<std::string> indent;  // of one level; without it everything stands on one line
  std::string item_separator = ", ";
  std::string key_separator = ": ";
};
Result<std::string> to_json(Heap& heap, const Value& value, const JsonStyle& style);

}  // namespace roost::jinja
