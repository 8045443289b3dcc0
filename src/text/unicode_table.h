// What the splitter must know of a code point: one of six classes (unicode_table.cc is generated).
#pragma once

#include <cstdint>
#include <string_view>

namespace roost {

enum class CharClass : uint8_t {
  kOther,    // none of the below, and bytes that are not UTF-8
  kLetter,   // \p{L}
  kMark,     // \p{M}
  kNumber,   // \p{N}
  kSpace,    // \s without the two below
  kNewline,  // carriage return, line feed
};

extern const std::string_view kUnicodeVersion;  // of the tables: "15.0.0"

CharClass char_class_beyond_ascii(char32_t code_point);

inline CharClass char_class(char32_t code_point) {
  if (code_point >= 0x80) return char_class_beyond_ascii(code_point);
  const char32_t lower = code_point | 0x20;
  if (lower >= 'a' && lower <= 'z') return CharClass::kLetter;
  if (code_point >= '0' && code_point <= '9') return CharClass::kNumber;
  if (code_point == '\n' || code_point == '\r') return CharClass::kNewline;
  if (code_point == ' ' || (code_point >= '\t' && code_point <= '\f')) return CharClass::kSpace;
  return CharClass::kOther;
}

}  // namespace roost
