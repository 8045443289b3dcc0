// Reads JSON text into a Value: one loop over the bytes with a stack of open arrays and objects, so
// that depth costs heap and never stack, and every refusal knows its byte.
#include <string>

#include <fmt/core.h>

#include "base/json.h"
#include "base/utf8.h"

namespace roost::json {
namespace {

// An array or object that has begun and not ended.
struct Open {
  bool is_array;
  std::vector<Value> items;
  std::vector<Member> members;
  std::string key;  // of the member whose value comes next
};

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

class Reader {
 public:
  Reader(std::string_view text, size_t depth_max) : text_(text), depth_max_(depth_max) {}
  Result<Value> read();

 private:
  bool at_end() const { return at_ == text_.size(); }
  // A zero byte for the end: no place where this is asked takes a zero byte.
  char peek() const { return at_end() ? '\0' : text_[at_]; }
  void skip_blanks() {
    while (at_ < text_.size() &&
           (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\r' || text_[at_] == '\t'))
      ++at_;
  }

  Error invalid(std::string_view what) const;
  Error not_unicode(size_t at, std::string_view what) const {
    return Error{Refusal::JsonUnicode, fmt::format("byte {}: {}", at, what)};
  }

  Result<void> read_key();
  Result<Value> read_scalar();
  Result<Value> read_number();
  Result<std::string> read_string();
  Result<void> read_escape(std::string& out);
  Result<char32_t> read_four_hex();
  Result<void> open(bool is_array);
  Value close();
  Result<bool> attach(Value value);

  std::string_view text_;
  size_t depth_max_;
  size_t at_ = 0;
  size_t n_values_ = 0;
  std::vector<Open> open_;
  Value document_;
};

// Bytes that are not UTF-8 are named as that wherever they stand.
Error Reader::invalid(std::string_view what) const {
  if (at_end())
    return Error{Refusal::JsonInvalid, fmt::format("byte {}: the text ends; {}", at_, what)};
  if (read_utf8(text_, at_).kind != Utf8::kWhole) return not_unicode(at_, "not UTF-8");
  return Error{Refusal::JsonInvalid, fmt::format("byte {}: {}", at_, what)};
}

Result<Value> Reader::read() {
  skip_blanks();
  while (true) {
    // Here a value begins.
    if (++n_values_ > limits::kJsonValuesMax)
      return Error{Refusal::TooManyItems,
                   fmt::format("more than {} values in one JSON text", limits::kJsonValuesMax)};
    Value value;
    const char c = peek();
    if (c == '[' || c == '{') {
      ROOST_TRY_DO(open(c == '['));
      skip_blanks();
      if (peek() != (c == '[' ? ']' : '}')) {
        if (c == '{') ROOST_TRY_DO(read_key());
        continue;
      }
      ++at_;
      value = close();
    } else {
      ROOST_TRY(value, read_scalar());
    }
    ROOST_TRY(const bool is_whole, attach(std::move(value)));
    if (is_whole) break;
  }
  if (!at_end()) return invalid("text after the end of the document");
  return std::move(document_);
}

// Puts a finished value where it belongs and reads on to the place of the next value; true if there
// is none because the document has ended.
Result<bool> Reader::attach(Value value) {
  while (true) {
    skip_blanks();
    if (open_.empty()) {
      document_ = std::move(value);
      return true;
    }
    Open& parent = open_.back();
    if (parent.is_array)
      parent.items.push_back(std::move(value));
    else
      parent.members.emplace_back(std::move(parent.key), std::move(value));
    const char c = peek();
    if (c == ',') {
      ++at_;
      skip_blanks();
      if (!parent.is_array) ROOST_TRY_DO(read_key());
      return false;
    }
    if (c != (parent.is_array ? ']' : '}'))
      return invalid(parent.is_array ? "want ',' or ']'" : "want ',' or '}'");
    ++at_;
    value = close();
  }
}

Result<void> Reader::open(bool is_array) {
  if (open_.size() == depth_max_)
    return Error{Refusal::JsonTooDeep,
                 fmt::format("byte {}: nested more than {} deep", at_, depth_max_)};
  ++at_;
  open_.push_back({.is_array = is_array, .items = {}, .members = {}, .key = {}});
  return {};
}

Value Reader::close() {
  Open& last = open_.back();
  Value value =
      last.is_array ? Value::array(std::move(last.items)) : Value::object(std::move(last.members));
  open_.pop_back();
  return value;
}

Result<void> Reader::read_key() {
  if (peek() != '"') return invalid("want a key in quotes");
  ROOST_TRY(open_.back().key, read_string());
  skip_blanks();
  if (peek() != ':') return invalid("want ':' after a key");
  ++at_;
  skip_blanks();
  return {};
}

Result<Value> Reader::read_scalar() {
  const char c = peek();
  if (c == '"') {
    ROOST_TRY(std::string s, read_string());
    return Value::string(std::move(s));
  }
  if (c == '-' || is_digit(c)) return read_number();
  struct Word {
    std::string_view spelling;
    Value value;
  };
  const Word word = c == 't'   ? Word{"true", Value::boolean(true)}
                    : c == 'f' ? Word{"false", Value::boolean(false)}
                    : c == 'n' ? Word{"null", Value()}
                               : Word{};
  if (word.spelling.empty()) return invalid("want a value");
  for (const char expected : word.spelling) {
    if (peek() != expected) return invalid(fmt::format("want the word {}", word.spelling));
    ++at_;
  }
  return word.value;
}

Result<Value> Reader::read_number() {
  const size_t start = at_;
  const auto skip_digits = [this] {
    while (is_digit(peek())) ++at_;
  };
  if (peek() == '-') ++at_;
  if (!is_digit(peek())) return invalid("want a digit");
  if (peek() == '0')
    ++at_;
  else
    skip_digits();
  if (is_digit(peek())) return invalid("a number begins with 0");
  if (peek() == '.') {
    ++at_;
    if (!is_digit(peek())) return invalid("want a digit after the point");
    skip_digits();
  }
  if (peek() == 'e' || peek() == 'E') {
    ++at_;
    if (peek() == '+' || peek() == '-') ++at_;
    if (!is_digit(peek())) return invalid("want a digit in the exponent");
    skip_digits();
  }
  return Value::spelled(std::string(text_.substr(start, at_ - start)));
}

Result<std::string> Reader::read_string() {
  std::string out;
  ++at_;
  size_t n_done = at_;  // everything before this place is in `out`
  while (true) {
    if (at_end()) return invalid("a string has no end");
    const auto c = static_cast<unsigned char>(text_[at_]);
    if (c == '"') break;
    if (c == '\\') {
      out.append(text_, n_done, at_ - n_done);
      ROOST_TRY_DO(read_escape(out));
      n_done = at_;
    } else if (c < 0x20) {
      return invalid("a control character in a string");
    } else if (c < 0x80) {
      ++at_;
    } else {
      const Utf8Unit unit = read_utf8_beyond_ascii(text_, at_);
      if (unit.kind != Utf8::kWhole) return not_unicode(at_, "not UTF-8");
      at_ += unit.n_bytes;
    }
  }
  out.append(text_, n_done, at_ - n_done);
  ++at_;
  return out;
}

Result<void> Reader::read_escape(std::string& out) {
  const size_t start = at_++;  // of the backslash
  const char c = peek();
  static constexpr std::string_view kLetters = "\"\\/bfnrt";
  static constexpr std::string_view kMeanings = "\"\\/\b\f\n\r\t";
  if (!at_end() && kLetters.find(c) != std::string_view::npos) {
    out += kMeanings[kLetters.find(c)];
    ++at_;
    return {};
  }
  if (c != 'u') return invalid("no such escape in a string");
  ++at_;
  ROOST_TRY(char32_t code_point, read_four_hex());
  if (code_point >= 0xDC00 && code_point <= 0xDFFF)
    return not_unicode(start, "the second half of a surrogate pair without the first");
  if (code_point >= 0xD800 && code_point <= 0xDBFF) {
    if (text_.substr(at_, 2) != "\\u")
      return not_unicode(start, "the first half of a surrogate pair without the second");
    at_ += 2;
    ROOST_TRY(const char32_t low, read_four_hex());
    if (low < 0xDC00 || low > 0xDFFF)
      return not_unicode(start, "the first half of a surrogate pair without the second");
    code_point = 0x10000 + ((code_point - 0xD800) << 10) + (low - 0xDC00);
  }
  append_utf8(code_point, out);
  return {};
}

Result<char32_t> Reader::read_four_hex() {
  char32_t value = 0;
  for (int i = 0; i < 4; ++i) {
    const int digit = hex_digit(peek());
    if (digit < 0) return invalid("want four hexadecimal digits after \\u");
    value = value << 4 | static_cast<char32_t>(digit);
    ++at_;
  }
  return value;
}

}  // namespace

Result<Value> parse(std::string_view text, size_t depth_max) {
  return Reader(text, depth_max).read();
}

}  // namespace roost::json
