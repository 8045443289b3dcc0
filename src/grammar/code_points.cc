// Ranges of code points as sequences of byte ranges.
#include "grammar/code_points.h"

#include <algorithm>
#include <map>
#include <string>
#include <tuple>

#include "base/utf8.h"

namespace roost {

namespace {

constexpr char32_t kLast = 0x10FFFF;

// Adds sequences of byte ranges that end in `to`; equal endings are one path.
class RangeWriter {
 public:
  RangeWriter(ByteNfa& nfa, int32_t from, int32_t to) : nfa_(nfa), from_(from), to_(to) {}

  // UTF-8 of [low, high], cut until first and last differ in whole trailing bytes only.
  void add(char32_t low, char32_t high) {
    for (const char32_t limit : {char32_t{0x7F}, char32_t{0x7FF}, char32_t{0xFFFF}}) {
      if (low <= limit && limit < high) {
        add(low, limit);
        return add(limit + 1, high);
      }
    }
    if (high > 0x7F) {
      for (int n_trailing = 1; n_trailing <= 3; ++n_trailing) {
        const char32_t mask = (char32_t{1} << (6 * n_trailing)) - 1;
        if ((low & ~mask) == (high & ~mask)) break;
        if ((low & mask) != 0) {
          add(low, low | mask);
          return add((low | mask) + 1, high);
        }
        if ((high & mask) != mask) {
          add(low, (high & ~mask) - 1);
          return add(high & ~mask, high);
        }
      }
    }
    std::string first, last;
    append_utf8(low, first);
    append_utf8(high, last);
    add_sequence(first, last);
  }

  void add_text(std::string_view text) { add_sequence(text, text); }

 private:
  void add_sequence(std::string_view first, std::string_view last) {
    int32_t behind = to_;
    for (size_t i = first.size(); i-- > 0;) {
      const auto low = static_cast<uint8_t>(first[i]);
      const auto high = static_cast<uint8_t>(last[i]);
      if (i == 0) return nfa_.add_edge(from_, low, high, behind);
      const auto [it, is_new] = endings_.try_emplace({low, high, behind}, 0);
      if (is_new) {
        it->second = nfa_.add_state();
        nfa_.add_edge(it->second, low, high, behind);
      }
      behind = it->second;
    }
  }

  ByteNfa& nfa_;
  int32_t from_, to_;
  std::map<std::tuple<uint8_t, uint8_t, int32_t>, int32_t> endings_;
};

std::string json_escape_of(char32_t c) {
  switch (c) {
    case '"':
      return "\\\"";
    case '\\':
      return "\\\\";
    case '\b':
      return "\\b";
    case '\f':
      return "\\f";
    case '\n':
      return "\\n";
    case '\r':
      return "\\r";
    case '\t':
      return "\\t";
    default: {
      constexpr char kDigits[] = "0123456789abcdef";
      return std::string("\\u00") + kDigits[c >> 4] + kDigits[c & 15];
    }
  }
}

}  // namespace

CodePoints normalized(CodePoints ranges) {
  std::sort(ranges.begin(), ranges.end());
  CodePoints out;
  for (const auto& [low, high] : ranges) {
    if (!out.empty() && low <= out.back().second + 1)
      out.back().second = std::max(out.back().second, high);
    else
      out.emplace_back(low, high);
  }
  return out;
}

CodePoints complement(const CodePoints& ranges) {
  CodePoints out;
  char32_t from = 0;
  for (const auto& [low, high] : ranges) {
    if (low > from) out.emplace_back(from, low - 1);
    from = high + 1;
  }
  if (from <= kLast) out.emplace_back(from, kLast);
  return out;
}

void add_code_points(ByteNfa& nfa, const CodePoints& set, TextForm form, int32_t from, int32_t to) {
  RangeWriter writer(nfa, from, to);
  // What UTF-8 writes as it is; JSON has three gaps in it.
  CodePoints plain = {{0, 0xD7FF}, {0xE000, kLast}};
  if (form == TextForm::kJsonString)
    plain = {{0x20, 0x21}, {0x23, 0x5B}, {0x5D, 0xD7FF}, {0xE000, kLast}};
  for (const auto& [low, high] : set) {
    for (const auto& [first, last] : plain)
      if (low <= last && first <= high) writer.add(std::max(low, first), std::min(high, last));
    if (form == TextForm::kRaw) continue;
    for (char32_t c = low; c <= std::min<char32_t>(high, '\\'); ++c)
      if (c < 0x20 || c == '"' || c == '\\') writer.add_text(json_escape_of(c));
  }
}

}  // namespace roost
