// JSON as the server, the templates and the checkpoint files need it: objects keep the order of
// their keys, numbers keep their spelling, depth and size are bounded.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/limits.h"
#include "base/result.h"

namespace roost::json {

enum class Type { kNull, kBool, kNumber, kString, kArray, kObject };

class Value;
using Member = std::pair<std::string, Value>;

// A value type: copies are deep. Reading a value as another type than it has is a bug; test first.
class Value {
 public:
  Value() = default;  // null
  static Value boolean(bool b);
  static Value integer(int64_t i);
  static Value unsigned_integer(uint64_t u);
  static Value real(double d);                 // spelled as Python's repr: 1.0, 1e-05; d must be finite
  static Value spelled(std::string number);    // number must be a JSON number
  static Value string(std::string s);
  static Value array(std::vector<Value> items = {});
  static Value object(std::vector<Member> members = {});

  Type type() const { return type_; }
  bool is_null() const { return type_ == Type::kNull; }
  bool is_bool() const { return type_ == Type::kBool; }
  bool is_number() const { return type_ == Type::kNumber; }
  bool is_string() const { return type_ == Type::kString; }
  bool is_array() const { return type_ == Type::kArray; }
  bool is_object() const { return type_ == Type::kObject; }

  bool as_bool() const;
  const std::string& as_string() const;
  const std::string& number_text() const;       // the spelling
  double as_double() const;                     // nearest double; huge spellings give ±inf
  bool is_spelled_as_integer() const;           // no '.', 'e', 'E': Python's int as opposed to float
  std::optional<int64_t> as_int64() const;      // integral value however spelled ("1e3", "5.0"), if it fits
  std::optional<uint64_t> as_uint64() const;

  const std::vector<Value>& items() const;      // of an array
  std::vector<Value>& items();
  const std::vector<Member>& members() const;   // of an object, in order, repeated keys kept
  std::vector<Member>& members();
  const Value* find(std::string_view key) const;  // last member of that key; null pointer if none or not an object
  void set(std::string_view key, Value value);  // replaces the member of that key or appends one
  void push(Value value);                       // appends to an array

 private:
  Type type_ = Type::kNull;
  bool bool_ = false;
  std::string text_;  // spelling of a number, bytes of a string
  std::vector<Value> items_;
  std::vector<Member> members_;
};

bool operator==(const Value& a, const Value& b);  // same types, spellings and order

// Reads exactly one RFC 8259 document of UTF-8 without BOM. Refuses json.invalid and
// json.invalid_unicode with the byte offset, json.too_deep. Repeated keys are kept (see below).
Result<Value> parse(std::string_view text, size_t depth_max = limits::kJsonDepthMax);

// JSON pointer of the first object, in document order, that has a key twice; nothing if there is none.
std::optional<std::string> find_duplicate_key(const Value& value);

enum class Style {
  kCompact,  // {"a":1,"b":[2]}
  kPython,   // {"a": 1, "b": [2]}: json.dumps(..., ensure_ascii=False)
};
std::string write(const Value& value, Style style = Style::kCompact);
void write_string(std::string_view s, std::string& out);  // appends s quoted and escaped, UTF-8 kept
std::string python_repr(double d);                        // shortest digits that read back: 1.0, 1e-05, 1e+16

}  // namespace roost::json
