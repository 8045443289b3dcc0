// Types of arguments (docs/SERVER.md, types of arguments).
#include "text/argument_type.h"

#include <algorithm>
#include <cstdint>
#include <optional>

#include "base/utf8.h"
#include "text/blanks.h"

namespace roost {

namespace {

constexpr int kDepthMax = 16;       // of references and unions inside each other
constexpr int kSchemasMax = 1000;   // looked at for one parameter
constexpr int kExponentMax = 1000;  // longer numbers stay text

std::string quoted(std::string_view text) {
  std::string out;
  json::write_string(text, out);
  return out;
}

bool equals_ignoring_case(std::string_view a, std::string_view lower) {
  return a.size() == lower.size() &&
         std::equal(a.begin(), a.end(), lower.begin(), [](char x, char y) {
           return (x >= 'A' && x <= 'Z' ? static_cast<char>(x + 32) : x) == y;
         });
}

// "#/$defs/a~1b" in the root; null pointer when it leads nowhere.
const json::Value* resolve(const json::Value& root, std::string_view pointer) {
  if (!pointer.starts_with('#')) return nullptr;
  pointer.remove_prefix(1);
  const json::Value* at = &root;
  while (!pointer.empty() && at != nullptr) {
    if (!pointer.starts_with('/')) return nullptr;
    const size_t end = std::min(pointer.find('/', 1), pointer.size());
    std::string step;
    for (size_t i = 1; i < end; ++i) {
      const bool is_escape = pointer[i] == '~' && i + 1 < end;
      step += is_escape ? (pointer[++i] == '1' ? '/' : '~') : pointer[i];
    }
    pointer.remove_prefix(end);
    at = at->find(step);
  }
  return at;
}

// Rewrites Python's spelling of a literal as JSON, token by token; json::parse then judges it.
class PythonLiteral {
 public:
  explicit PythonLiteral(std::string_view text) : text_(text) {}

  std::optional<std::string> as_json() {
    while (at_ < text_.size()) {
      const char c = text_[at_];
      if (is_blank(c)) {
        ++at_;
      } else if (c == '\'' || c == '"') {
        if (!take_string(c)) return std::nullopt;
      } else if (std::string_view("{}[]():,").find(c) != std::string_view::npos) {
        take_mark(c);
      } else if (!take_word()) {
        return std::nullopt;
      }
    }
    return std::move(out_);
  }

 private:
  void take_mark(char c) {
    ++at_;
    const bool is_closing = c == '}' || c == ']' || c == ')';
    // Python allows a comma before the end; JSON does not.
    if (is_closing && out_.ends_with(',')) out_.pop_back();
    out_ += c == '(' ? '[' : c == ')' ? ']' : c;
  }

  bool take_word() {
    const size_t end = std::min(text_.find_first_of(" \n\t\r{}[]():,'\"", at_), text_.size());
    const std::string_view word = text_.substr(at_, end - at_);
    at_ = end;
    if (word == "True")
      out_ += "true";
    else if (word == "False")
      out_ += "false";
    else if (word == "None")
      out_ += "null";
    else
      out_ += word;
    return !word.empty();
  }

  bool take_string(char quote) {
    std::string bytes;
    for (++at_; at_ < text_.size() && text_[at_] != quote; ++at_) {
      if (text_[at_] != '\\')
        bytes += text_[at_];
      else if (!take_escape(bytes))
        return false;
    }
    if (at_ >= text_.size()) return false;
    ++at_;
    json::write_string(bytes, out_);
    return true;
  }

  // At the backslash; leaves at_ on the last byte of the escape.
  bool take_escape(std::string& bytes) {
    if (++at_ >= text_.size()) return false;
    const char c = text_[at_];
    constexpr std::string_view kNames = "ntrbfav0\\'\"";
    constexpr std::string_view kBytes("\n\t\r\b\f\a\v\0\\'\"", 11);
    if (const size_t i = kNames.find(c); i != std::string_view::npos) {
      bytes += kBytes[i];
      return true;
    }
    const size_t n_digits = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
    if (n_digits == 0) {
      bytes += '\\';
      bytes += c;
      return true;
    }
    char32_t code_point = 0;
    for (size_t i = 0; i < n_digits; ++i) {
      const char d = ++at_ < text_.size() ? text_[at_] : ' ';
      const bool is_letter = (d >= 'a' && d <= 'f') || (d >= 'A' && d <= 'F');
      if (!is_letter && (d < '0' || d > '9')) return false;
      code_point =
          code_point * 16 + static_cast<char32_t>(is_letter ? (d | 32) - 'a' + 10 : d - '0');
    }
    if (code_point > 0x10FFFF || (code_point >= 0xD800 && code_point < 0xE000)) return false;
    append_utf8(code_point, bytes);
    return true;
  }

  std::string_view text_;
  size_t at_ = 0;
  std::string out_;
};

// Control characters inside strings become their escapes: models write newlines as they are.
std::string with_escaped_controls(std::string_view text) {
  std::string out;
  bool is_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (is_string && static_cast<unsigned char>(c) < 0x20) {
      const std::string one = quoted({&c, 1});
      out.append(one, 1, one.size() - 2);
      continue;
    }
    out += c;
    if (c == '"') is_string = !is_string;
    if (is_string && c == '\\' && i + 1 < text.size() &&
        static_cast<unsigned char>(text[i + 1]) >= 0x20)
      out += text[++i];
  }
  return out;
}

std::optional<json::Value> parsed(std::string_view text) {
  Result<json::Value> value = json::parse(text);
  if (!value) return std::nullopt;
  return std::move(value).value();
}

std::optional<json::Value> parsed_container(std::string_view text) {
  text = trimmed(text);
  if (text.empty() || (text[0] != '{' && text[0] != '[' && text[0] != '(')) return std::nullopt;
  std::optional<json::Value> value = parsed(with_escaped_controls(text));
  if (!value) {
    const std::optional<std::string> literal = PythonLiteral(text).as_json();
    if (literal) value = parsed(*literal);
  }
  return value;
}

// The member of an enum that the text names.
const json::Value* named_member(const std::vector<json::Value>& members, std::string_view text) {
  for (const json::Value& member : members) {
    const bool is_it =
        member.is_string() ? member.as_string() == text : json::write(member) == text;
    if (is_it || quoted(text) == json::write(member) || json::write(member) == trimmed(text))
      return &member;
  }
  return nullptr;
}

}  // namespace

std::string container_json(std::string_view text) {
  const std::optional<json::Value> value = parsed_container(text);
  return value ? json::write(*value) : "";
}

std::string integral_digits(std::string_view number) {
  const bool is_negative = number.starts_with('-');
  if (is_negative) number.remove_prefix(1);
  const size_t e = std::min(number.find_first_of("eE"), number.size());
  const std::string_view mantissa = number.substr(0, e);
  const size_t point = std::min(mantissa.find('.'), mantissa.size());
  std::string digits(mantissa.substr(0, point));
  auto n_whole = static_cast<int64_t>(point);
  if (point < mantissa.size()) digits += mantissa.substr(point + 1);
  if (e < number.size()) {
    std::string_view power = number.substr(e + 1);
    const bool is_small = power.starts_with('-');
    if (is_small || power.starts_with('+')) power.remove_prefix(1);
    int64_t exponent = 0;
    for (const char c : power) exponent = std::min<int64_t>(exponent * 10 + (c - '0'), 1 << 20);
    if (exponent > kExponentMax) return "";
    n_whole += is_small ? -exponent : exponent;
  }
  const auto n_digits = static_cast<int64_t>(digits.size());
  for (int64_t i = std::max<int64_t>(n_whole, 0); i < n_digits; ++i)
    if (digits[static_cast<size_t>(i)] != '0') return "";
  digits.resize(static_cast<size_t>(std::max<int64_t>(n_whole, 0)), '0');
  digits.erase(0, std::min(digits.find_first_not_of('0'), digits.size()));
  if (digits.empty()) return "0";
  return (is_negative ? "-" : "") + digits;
}

// ---- What a schema declares ---------------------------------------------------------------------

void ArgumentType::add_named(std::string_view type) {
  constexpr std::pair<std::string_view, Kind> kNames[] = {
      {"string", Kind::kString}, {"null", Kind::kNull},       {"integer", Kind::kInteger},
      {"number", Kind::kNumber}, {"boolean", Kind::kBoolean}, {"object", Kind::kObject},
      {"array", Kind::kArray},
  };
  for (const auto& [name, kind] : kNames) {
    if (name != type) continue;
    if (!has(kind)) kinds_.push_back(kind);
    return;
  }
  is_any_ = true;
}

void ArgumentType::add_schema(const json::Value& schema, const json::Value& root, int depth,
                              int& budget) {
  if (depth > kDepthMax || --budget < 0 || !schema.is_object()) {
    is_any_ = true;
    return;
  }
  const json::Value* ref = schema.find("$ref");
  if (ref != nullptr && ref->is_string()) {
    const json::Value* target = resolve(root, ref->as_string());
    if (target != nullptr) return add_schema(*target, root, depth + 1, budget);
  }
  const json::Value* members = schema.find("enum");
  if (members != nullptr && members->is_array())
    members_.insert(members_.end(), members->items().begin(), members->items().end());
  const json::Value* constant = schema.find("const");
  if (constant != nullptr) members_.push_back(*constant);

  const json::Value* type = schema.find("type");
  if (type != nullptr && type->is_string()) return add_named(type->as_string());
  if (type != nullptr && type->is_array()) {
    for (const json::Value& one : type->items())
      if (one.is_string()) add_named(one.as_string());
    return;
  }
  if (members != nullptr || constant != nullptr) return;
  bool has_branches = false;
  for (const char* key : {"anyOf", "oneOf", "allOf"}) {
    const json::Value* branches = schema.find(key);
    if (branches == nullptr || !branches->is_array()) continue;
    for (const json::Value& branch : branches->items()) {
      has_branches = true;
      add_schema(branch, root, depth + 1, budget);
    }
  }
  if (!has_branches) is_any_ = true;
}

ArgumentType ArgumentType::of(const json::Value* schema, const json::Value& root) {
  ArgumentType out;
  int budget = kSchemasMax;
  if (schema == nullptr)
    out.is_any_ = true;
  else
    out.add_schema(*schema, root, 0, budget);
  if (out.is_any_) out.kinds_.clear();
  return out;
}

bool ArgumentType::has(Kind kind) const {
  return std::find(kinds_.begin(), kinds_.end(), kind) != kinds_.end();
}

// ---- What a text becomes ------------------------------------------------------------------------

// Empty when the text is none of that kind.
std::string ArgumentType::converted_to(Kind kind, std::string_view text) {
  const std::string_view bare = trimmed(text);
  switch (kind) {
    case Kind::kString:
      return quoted(text);
    case Kind::kNull:
      return bare == "null" || bare == "None" ? "null" : "";
    case Kind::kBoolean:
      if (equals_ignoring_case(bare, "true")) return "true";
      return equals_ignoring_case(bare, "false") ? "false" : "";
    case Kind::kInteger:
    case Kind::kNumber: {
      const std::optional<json::Value> value = parsed(bare);
      if (!value || !value->is_number()) return "";
      return kind == Kind::kNumber ? value->number_text() : integral_digits(value->number_text());
    }
    case Kind::kObject:
    case Kind::kArray: {
      const std::optional<json::Value> value = parsed_container(text);
      const bool is_it = value && (kind == Kind::kObject ? value->is_object() : value->is_array());
      return is_it ? json::write(*value) : "";
    }
  }
  return "";
}

// In a union with string: whether the text is how JSON itself spells a value of another branch.
bool ArgumentType::is_canonical(std::string_view text, std::string& out) const {
  const std::optional<json::Value> value = parsed(text);
  if (!value) return false;
  Kind kind = Kind::kString;
  bool is_it = json::write(*value) == text;
  switch (value->type()) {
    case json::Type::kNull:
      kind = Kind::kNull;
      break;
    case json::Type::kBool:
      kind = Kind::kBoolean;
      break;
    case json::Type::kNumber: {
      const bool is_integer = value->is_spelled_as_integer();
      kind = is_integer && has(Kind::kInteger) ? Kind::kInteger : Kind::kNumber;
      is_it = is_it && (is_integer || json::python_repr(value->as_double()) == text);
      break;
    }
    case json::Type::kObject:
    case json::Type::kArray:
      kind = value->is_object() ? Kind::kObject : Kind::kArray;
      is_it = is_it || json::write(*value, json::Style::kPython) == text;
      break;
    case json::Type::kString:
      return false;
  }
  if (!is_it || !has(kind)) return false;
  out = json::write(*value);
  return true;
}

std::string ArgumentType::converted(std::string_view text) const {
  if (is_any_) return container_json(text);
  if (is_text()) return quoted(text);
  if (has(Kind::kString)) {
    const bool is_nullable = kinds_.size() == 2 && has(Kind::kNull);
    if (is_nullable) return text == "null" || text == "None" ? "null" : quoted(text);
    std::string out;
    return is_canonical(text, out) ? out : quoted(text);
  }
  for (const Kind kind : kinds_)
    if (std::string out = converted_to(kind, text); !out.empty()) return out;
  if (const json::Value* member = named_member(members_, text)) return json::write(*member);
  return "";
}

ArgumentValue ArgumentType::convert(std::string_view text) const {
  ArgumentValue out;
  out.json = converted(text);
  out.fits = !out.json.empty() || is_any_;
  if (out.json.empty()) out.json = quoted(text);
  if (out.fits && !members_.empty() && !is_any_) {
    out.fits = std::any_of(members_.begin(), members_.end(), [&](const json::Value& member) {
      return json::write(member) == out.json;
    });
  }
  return out;
}

}  // namespace roost
