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
// Const access is safe from several threads. Any depth is safe: nothing here recurses.
class Value {
 public:
  Value() = default;  // null
  static Value boolean(bool b);
  static Value integer(int64_t i);
  static Value unsigned_integer(uint64_t u);
  static Value real(double d);  // spelled as Python's repr: 1.0, 1e-05; d must be finite
  static Value spelled(std::string number);  // number must be a JSON number
  static Value string(std::string s);
  // Overloads and no default arguments, which would need a whole Value inside its own class.
  static Value array();  // empty
  static Value array(std::vector<Value> items);
  static Value object();  // empty
  static Value object(std::vector<Member> members);

  Type type() const { return type_; }
  bool is_null() const { return type_ == Type::kNull; }
  bool is_bool() const { return type_ == Type::kBool; }
  bool is_number() const { return type_ == Type::kNumber; }
  bool is_string() const { return type_ == Type::kString; }
  bool is_array() const { return type_ == Type::kArray; }
  bool is_object() const { return type_ == Type::kObject; }

  bool as_bool() const;
  const std::string& as_string() const;
  const std::string& number_text() const;  // the spelling
  double as_double() const;                // nearest double; huge spellings give ±inf
  bool is_spelled_as_integer() const;      // no '.', 'e', 'E': Python's int as opposed to float
  // An integral value, however it is spelled ("1e3", "5.0"); nothing if there is none or too large.
  std::optional<int64_t> as_int64() const;
  std::optional<uint64_t> as_uint64() const;

  const std::vector<Value>& items() const;  // of an array
  std::vector<Value>& items();
  const std::vector<Member>& members() const;  // of an object, in order, repeated keys kept
  std::vector<Member>& members();
  // The last member of that key; null pointer if there is none or this is not an object.
  const Value* find(std::string_view key) const;
  void set(std::string_view key, Value value);  // replaces the member of that key or appends one
  void push(Value value);                       // appends to an array

 private:
  // What arrays and objects hold, apart so that scalars are small. Null stands for empty.
  struct Compound;
  class Box {
   public:
    Box() = default;
    Box(const Box& other);
    Box(Box&& other) noexcept;
    Box& operator=(const Box& other);
    Box& operator=(Box&& other) noexcept;
    ~Box();
    const Compound* get() const { return compound_.get(); }
    Compound& get_or_make();

   private:
    friend class Value;
    struct Delete {
      void operator()(Compound* compound) const;
    };
    std::unique_ptr<Compound, Delete> compound_;
  };

  explicit Value(Type type) : type_(type) {}
  friend bool operator==(const Value& a, const Value& b);

  Type type_ = Type::kNull;
  bool bool_ = false;
  std::string text_;  // spelling of a number, bytes of a string
  Box compound_;
};

bool operator==(const Value& a, const Value& b);  // same types, spellings and order

// Reads exactly one RFC 8259 document of UTF-8 without BOM. Repeated keys are kept
// (find_duplicate_key tells of them).
// Refuses, at the first byte that cannot be read on:
//   json.invalid            "byte 17: a value is missing"
//   json.invalid_unicode    "byte 17: …": there the ill-formed bytes or a lone surrogate's \u begin
//   json.too_deep           more than depth_max arrays and objects inside each other
//   request.too_many_items  more than limits::kJsonValuesMax values
Result<Value> parse(std::string_view text, size_t depth_max = limits::kJsonDepthMax);

// JSON pointer of the first object, in document order, that has a key twice; nothing if there is
// none. The key goes to *key where that is asked for.
std::optional<std::string> find_duplicate_key(const Value& value, std::string* key = nullptr);

enum class Style {
  kCompact,  // {"a":1,"b":[2]}
  kPython,   // {"a": 1, "b": [2]}: json.dumps(..., ensure_ascii=False)
};
std::string write(const Value& value, Style style = Style::kCompact);
void write_string(std::string_view s, std::string& out);  // appends it quoted and escaped, as UTF-8
std::string python_repr(double d);  // shortest digits that read back: 1.0, 1e-05, 1e+16

}  // namespace roost::json
