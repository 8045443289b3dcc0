// What a parameter of a tool may be, and the JSON that the text of a call becomes by it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"

namespace roost {

struct ArgumentValue {
  std::string json;   // one JSON value
  bool fits = false;  // it is of a declared type
};

// The types that a schema declares, after local references, in their order.
class ArgumentType {
 public:
  // schema: of the parameter, or null for one that nobody declared. root: the schema that local
  // references point into.
  static ArgumentType of(const json::Value* schema, const json::Value& root);

  // Exactly a string: its text needs no look at the end of it.
  bool is_text() const { return kinds_.size() == 1 && kinds_[0] == Kind::kString; }
  // What does not parse stays a string (docs/SERVER.md, types of arguments).
  ArgumentValue convert(std::string_view text) const;

 private:
  enum class Kind { kString, kNull, kInteger, kNumber, kBoolean, kObject, kArray };

  void add_schema(const json::Value& schema, const json::Value& root, int depth, int& budget);
  void add_named(std::string_view type);
  bool has(Kind kind) const;
  std::string converted(std::string_view text) const;
  static std::string converted_to(Kind kind, std::string_view text);
  bool is_canonical(std::string_view text, std::string& out) const;

  std::vector<Kind> kinds_;           // each once; with a member of no type among them: is_any_
  std::vector<json::Value> members_;  // of enum and const
  bool is_any_ = false;
};

// The JSON of an array or an object written as JSON (raw control characters in strings allowed) or
// as a Python literal; empty when it is neither.
std::string container_json(std::string_view text);

// The digits of a JSON number without a fraction, however spelled ("5.0" -> "5"); else empty.
std::string integral_digits(std::string_view number);

}  // namespace roost
