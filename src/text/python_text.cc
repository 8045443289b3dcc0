#include "text/python_text.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include <fmt/core.h>

#include "base/json.h"
#include "base/utf8.h"
#include "text/unicode_case.h"

namespace roost {
namespace {

// The code point that ends at byte `end`; a byte that belongs to none stands for itself.
size_t previous_point(std::string_view text, size_t end) {
  for (size_t n = 1; n <= std::min<size_t>(end, 4); ++n) {
    const Utf8Unit unit = read_utf8(text, end - n);
    if (unit.kind == Utf8::kWhole && unit.n_bytes == n) return end - n;
  }
  return end - 1;
}

// Code point at a byte, or for a stray byte a value that no code point has.
struct Point {
  char32_t code_point;
  size_t n_bytes;
};
Point point_at(std::string_view text, size_t at) {
  const Utf8Unit unit = read_utf8(text, at);
  if (unit.kind == Utf8::kWhole) return {unit.code_point, unit.n_bytes};
  return {0x110000u + static_cast<unsigned char>(text[at]), 1};
}

// A set of code points to strip.
class PointSet {
 public:
  explicit PointSet(std::optional<std::string_view> characters) : is_blanks_(!characters) {
    if (is_blanks_) return;
    for (size_t at = 0; at < characters->size();) {
      const Point point = point_at(*characters, at);
      points_.push_back(point.code_point);
      at += point.n_bytes;
    }
    std::sort(points_.begin(), points_.end());
  }
  bool has(char32_t code_point) const {
    if (is_blanks_) return is_python_space(code_point);
    return std::binary_search(points_.begin(), points_.end(), code_point);
  }

 private:
  bool is_blanks_;
  std::vector<char32_t> points_;
};

int digit_value(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'z') return c - 'a' + 10;
  if (c >= 'A' && c <= 'Z') return c - 'A' + 10;
  return 99;
}

// The digits without '_', or nothing: '_' stands only between digits (after a prefix too).
std::optional<std::string> without_underscores(std::string_view digits, bool is_after_prefix) {
  std::string out;
  bool after_digit = is_after_prefix;
  for (const char c : digits) {
    if (c == '_') {
      if (!after_digit) return std::nullopt;
      after_digit = false;
    } else {
      out += c;
      after_digit = true;
    }
  }
  if (!after_digit || out.empty()) return std::nullopt;
  return out;
}

// Decimal digits of a number written in another base; 64 bits must hold it.
std::optional<std::string> to_decimal(const std::string& digits, int64_t base) {
  uint64_t value = 0;
  for (const char c : digits) {
    const auto digit = static_cast<uint64_t>(digit_value(c));
    if (__builtin_mul_overflow(value, static_cast<uint64_t>(base), &value) ||
        __builtin_add_overflow(value, digit, &value))
      return std::nullopt;
  }
  return fmt::format("{}", value);
}

bool is_line_end(char32_t c) {
  return (c >= '\n' && c <= '\r') || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 ||
         c == 0x2029;
}

}  // namespace

bool is_python_space(char32_t c) {
  if (c < 0x80) return c == ' ' || (c >= '\t' && c <= '\r') || (c >= 0x1C && c <= 0x1F);
  return c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 ||
         c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

size_t first_point_bytes(std::string_view text) {
  return point_at(text, 0).n_bytes;
}

size_t count_points(std::string_view text) {
  size_t n = 0;
  for (size_t at = 0; at < text.size(); ++n) at += point_at(text, at).n_bytes;
  return n;
}

size_t offset_of_point(std::string_view text, size_t i) {
  size_t at = 0;
  for (; i > 0 && at < text.size(); --i) at += point_at(text, at).n_bytes;
  return at;
}

std::string pick_points(std::string_view text, size_t first, int64_t step, size_t n) {
  std::string out;
  size_t at = offset_of_point(text, first);
  for (size_t i = 0; i < n; ++i) {
    out += text.substr(at, point_at(text, at).n_bytes);
    if (i + 1 == n) break;
    for (int64_t k = 0; k < step; ++k) at += point_at(text, at).n_bytes;
    for (int64_t k = 0; k > step; --k) at = previous_point(text, at);
  }
  return out;
}

std::string_view strip(std::string_view text, std::optional<std::string_view> characters, bool left,
                       bool right) {
  const PointSet set(characters);
  while (left && !text.empty()) {
    const Point point = point_at(text, 0);
    if (!set.has(point.code_point)) break;
    text.remove_prefix(point.n_bytes);
  }
  while (right && !text.empty()) {
    const size_t begin = previous_point(text, text.size());
    if (!set.has(point_at(text, begin).code_point)) break;
    text.remove_suffix(text.size() - begin);
  }
  return text;
}

std::vector<std::string_view> split(std::string_view text, std::string_view separator,
                                    int64_t maxsplit) {
  std::vector<std::string_view> parts;
  size_t begin = 0;
  while (maxsplit < 0 || static_cast<int64_t>(parts.size()) < maxsplit) {
    const size_t at = text.find(separator, begin);
    if (at == std::string_view::npos) break;
    parts.push_back(text.substr(begin, at - begin));
    begin = at + separator.size();
  }
  parts.push_back(text.substr(begin));
  return parts;
}

std::vector<std::string_view> split_at_blanks(std::string_view text, int64_t maxsplit) {
  std::vector<std::string_view> parts;
  text = strip(text, std::nullopt, true, false);
  while (!text.empty()) {
    if (maxsplit >= 0 && static_cast<int64_t>(parts.size()) == maxsplit) {
      parts.push_back(text);
      break;
    }
    size_t end = 0;
    while (end < text.size() && !is_python_space(point_at(text, end).code_point))
      end += point_at(text, end).n_bytes;
    parts.push_back(text.substr(0, end));
    text = strip(text.substr(end), std::nullopt, true, false);
  }
  return parts;
}

std::vector<std::string_view> split_lines(std::string_view text) {
  std::vector<std::string_view> lines;
  size_t begin = 0;
  for (size_t at = 0; at < text.size();) {
    const Point point = point_at(text, at);
    const size_t next = at + point.n_bytes;
    if (!is_line_end(point.code_point)) {
      at = next;
      continue;
    }
    lines.push_back(text.substr(begin, at - begin));
    const bool is_pair = text[at] == '\r' && next < text.size() && text[next] == '\n';
    begin = at = next + (is_pair ? 1 : 0);
  }
  if (begin < text.size()) lines.push_back(text.substr(begin));
  return lines;
}

size_t count_occurrences(std::string_view text, std::string_view old) {
  if (old.empty()) return count_points(text) + 1;
  size_t n = 0;
  for (size_t at = text.find(old); at != std::string_view::npos; at = text.find(old, at)) {
    ++n;
    at += old.size();
  }
  return n;
}

std::string replace(std::string_view text, std::string_view old, std::string_view by,
                    size_t n_max) {
  std::string out;
  size_t begin = 0;
  for (size_t n = 0; n < n_max; ++n) {
    if (old.empty()) {
      out += by;
      if (begin == text.size()) return out;
      const size_t n_bytes = point_at(text, begin).n_bytes;
      out += text.substr(begin, n_bytes);
      begin += n_bytes;
      continue;
    }
    const size_t at = text.find(old, begin);
    if (at == std::string_view::npos) break;
    out += text.substr(begin, at - begin);
    out += by;
    begin = at + old.size();
  }
  return out += text.substr(begin);
}

std::string title_words(std::string_view text) {
  const auto is_border = [](char32_t c) {
    return is_python_space(c) || c == '-' || c == '(' || c == '{' || c == '[' || c == '<';
  };
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const size_t begin = at;
    const bool is_run_of_borders = is_border(point_at(text, at).code_point);
    const size_t second = at + point_at(text, at).n_bytes;
    while (at < text.size() && is_border(point_at(text, at).code_point) == is_run_of_borders)
      at += point_at(text, at).n_bytes;
    out += to_upper(text.substr(begin, second - begin));
    out += to_lower(text.substr(second, at - second));
  }
  return out;
}

void append_repr(std::string_view text, std::string& out) {
  const bool is_double =
      text.find('\'') != std::string_view::npos && text.find('"') == std::string_view::npos;
  const char quote = is_double ? '"' : '\'';
  out += quote;
  for (size_t at = 0; at < text.size();) {
    const Point point = point_at(text, at);
    const char32_t c = point.code_point;
    if (c == static_cast<char32_t>(quote) || c == '\\') {
      out += '\\';
      out += static_cast<char>(c);
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '\r') {
      out += "\\r";
    } else if (c == '\t') {
      out += "\\t";
    } else if (c > 0x10FFFF || is_printable(c)) {
      out += text.substr(at, point.n_bytes);
    } else if (c < 0x100) {
      out += fmt::format("\\x{:02x}", static_cast<uint32_t>(c));
    } else if (c < 0x10000) {
      out += fmt::format("\\u{:04x}", static_cast<uint32_t>(c));
    } else {
      out += fmt::format("\\U{:08x}", static_cast<uint32_t>(c));
    }
    at += point.n_bytes;
  }
  out += quote;
}

std::optional<std::string> parse_int(std::string_view text, int64_t base) {
  text = strip(text, std::nullopt);
  const bool is_negative = !text.empty() && text[0] == '-';
  if (!text.empty() && (text[0] == '-' || text[0] == '+')) text.remove_prefix(1);
  int64_t named_base = 0;
  if (text.size() >= 2 && text[0] == '0') {
    const char letter = static_cast<char>(text[1] | 0x20);
    named_base = letter == 'x' ? 16 : letter == 'o' ? 8 : letter == 'b' ? 2 : 0;
  }
  const bool has_prefix = named_base != 0 && (base == 0 || base == named_base);
  if (has_prefix) text.remove_prefix(2);
  std::optional<std::string> digits = without_underscores(text, has_prefix);
  if (!digits) return std::nullopt;
  const int64_t digit_base = has_prefix ? named_base : base == 0 ? 10 : base;
  for (const char c : *digits)
    if (digit_value(c) >= digit_base) return std::nullopt;
  const size_t n_zeros = std::min(digits->find_first_not_of('0'), digits->size() - 1);
  // Base 0 reads as a literal would: "012" is none, "000" is zero.
  if (base == 0 && !has_prefix && n_zeros > 0 && (*digits)[n_zeros] != '0') return std::nullopt;
  digits->erase(0, n_zeros);
  if (digit_base != 10) digits = to_decimal(*digits, digit_base);
  if (digits && is_negative && *digits != "0") digits->insert(digits->begin(), '-');
  return digits;
}

std::optional<double> parse_float(std::string_view text) {
  text = strip(text, std::nullopt);
  std::string plain;
  bool has_digit = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    const auto is_digit_at = [&](size_t at) {
      return at < text.size() && text[at] >= '0' && text[at] <= '9';
    };
    if (c == '_') {
      if (i == 0 || !is_digit_at(i - 1) || !is_digit_at(i + 1)) return std::nullopt;
      continue;
    }
    has_digit = has_digit || is_digit_at(i);
    plain += static_cast<char>(c >= 'A' && c <= 'Z' ? c | 0x20 : c);
  }
  const bool is_signed = !plain.empty() && (plain[0] == '-' || plain[0] == '+');
  const std::string_view word = std::string_view(plain).substr(is_signed ? 1 : 0);
  const double sign = is_signed && plain[0] == '-' ? -1 : 1;
  if (word == "inf" || word == "infinity") return sign * HUGE_VAL;
  if (word == "nan") return std::nan("");
  if (!has_digit || plain.find_first_not_of("0123456789+-.e") != std::string::npos)
    return std::nullopt;
  char* end = nullptr;
  const double value = std::strtod(plain.c_str(), &end);
  if (end != plain.c_str() + plain.size()) return std::nullopt;
  return value;
}

std::string float_repr(double d) {
  if (std::isnan(d)) return "nan";
  if (std::isinf(d)) return d < 0 ? "-inf" : "inf";
  return json::python_repr(d);
}

}  // namespace roost
