#include "text/unicode_case.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <optional>

#include "base/utf8.h"

namespace roost {
namespace {

enum class Case : uint8_t { kUpper, kLower, kTitle };

// Code points first, first + stride, …, last, whose simple mappings lie this far from them.
struct CaseRun {
  uint32_t first, last, stride;
  int32_t upper, lower, title;
};

// A mapping to several code points; unused places are 0.
struct SpecialCase {
  uint32_t code_point;
  Case to;
  uint32_t points[3];
};

struct CodeRange {
  uint32_t first, last;
};

#include "text/unicode_case_table.inc"

constexpr char32_t kSigma = 0x3A3;
constexpr char32_t kFinalSigma = 0x3C2;
constexpr char32_t kSmallSigma = 0x3C3;

template <size_t n>
bool contains(const CodeRange (&ranges)[n], char32_t code_point) {
  const auto after =
      std::upper_bound(std::begin(ranges), std::end(ranges), code_point,
                       [](char32_t c, const CodeRange& range) { return c < range.first; });
  return after != std::begin(ranges) && code_point <= std::prev(after)->last;
}

int32_t delta_of(const CaseRun& run, Case to) {
  if (to == Case::kUpper) return run.upper;
  return to == Case::kLower ? run.lower : run.title;
}

void append_mapped(char32_t code_point, Case to, std::string& out) {
  if (code_point < 0x80) {
    const bool is_lower = code_point >= 'a' && code_point <= 'z';
    const bool is_upper = code_point >= 'A' && code_point <= 'Z';
    if (is_lower && to != Case::kLower) code_point -= 32;
    if (is_upper && to == Case::kLower) code_point += 32;
    out += static_cast<char>(code_point);
    return;
  }
  for (const SpecialCase& special : kSpecialCases) {
    if (special.code_point != code_point || special.to != to) continue;
    for (const uint32_t point : special.points)
      if (point != 0) append_utf8(point, out);
    return;
  }
  for (const CaseRun& run : kCaseRuns) {
    if (code_point < run.first || code_point > run.last) continue;
    if ((code_point - run.first) % run.stride != 0) continue;
    return append_utf8(code_point + static_cast<uint32_t>(delta_of(run, to)), out);
  }
  append_utf8(code_point, out);
}

// Whether the nearest code point before `at` that is not case-ignorable is cased.
bool follows_cased(std::string_view text, size_t at) {
  while (at > 0) {
    size_t begin = at - 1;
    while (begin > 0 && at - begin < 4 && (static_cast<unsigned char>(text[begin]) & 0xC0) == 0x80)
      --begin;
    const Utf8Unit unit = read_utf8(text, begin);
    if (!contains(kCaseIgnorable, unit.code_point)) return contains(kCased, unit.code_point);
    at = begin;
  }
  return false;
}

bool precedes_cased(std::string_view text, size_t at) {
  while (at < text.size()) {
    const Utf8Unit unit = read_utf8(text, at);
    if (!contains(kCaseIgnorable, unit.code_point)) return contains(kCased, unit.code_point);
    at += unit.n_bytes;
  }
  return false;
}

// Maps each code point to the case that `choose(its index, code point)` names. Bytes that are not
// UTF-8 pass unchanged. The looks around a sigma stop at the next one, so the cost is linear.
template <class Choose>
std::string map_case(std::string_view text, Choose choose) {
  std::string out;
  out.reserve(text.size());
  for (size_t at = 0, i = 0; at < text.size(); ++i) {
    const Utf8Unit unit = read_utf8(text, at);
    const size_t next = at + unit.n_bytes;
    if (unit.kind != Utf8::kWhole) {
      out += text.substr(at, unit.n_bytes);
    } else {
      const Case to = choose(i, unit.code_point);
      if (unit.code_point == kSigma && to == Case::kLower) {
        const bool is_final = follows_cased(text, at) && !precedes_cased(text, next);
        append_utf8(is_final ? kFinalSigma : kSmallSigma, out);
      } else {
        append_mapped(unit.code_point, to, out);
      }
    }
    at = next;
  }
  return out;
}

}  // namespace

std::string to_upper(std::string_view text) {
  return map_case(text, [](size_t, char32_t) { return Case::kUpper; });
}

std::string to_lower(std::string_view text) {
  return map_case(text, [](size_t, char32_t) { return Case::kLower; });
}

std::string to_title(std::string_view text) {
  bool after_cased = false;
  return map_case(text, [&](size_t, char32_t code_point) {
    const Case to = after_cased ? Case::kLower : Case::kTitle;
    after_cased = contains(kCased, code_point);
    return to;
  });
}

std::string capitalize(std::string_view text) {
  return map_case(text, [](size_t i, char32_t) { return i == 0 ? Case::kTitle : Case::kLower; });
}

bool is_printable(char32_t code_point) {
  if (code_point < 0x7F) return code_point >= 0x20;
  return !contains(kNotPrintable, code_point);
}

}  // namespace roost
