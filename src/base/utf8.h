// UTF-8, read one code point at a time from bytes that may be anything.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace roost {

enum class Utf8 : uint8_t {
  kWhole,   // a well-formed code point
  kBroken,  // cannot become one: n_bytes is the maximal subpart, which U+FFFD stands for
  kCut,     // the text ends inside a sequence that is well-formed so far
};

struct Utf8Unit {
  char32_t code_point = 0;  // of a whole one, else 0
  uint8_t n_bytes = 1;      // 1 to 4
  Utf8 kind = Utf8::kWhole;
};

inline constexpr std::string_view kReplacementCharacter = "\xEF\xBF\xBD";  // U+FFFD

Utf8Unit read_utf8_beyond_ascii(std::string_view text, size_t at);

// The unit that begins at `at`, which lies inside the text.
inline Utf8Unit read_utf8(std::string_view text, size_t at) {
  const auto byte = static_cast<unsigned char>(text[at]);
  if (byte < 0x80) return {byte, 1, Utf8::kWhole};
  return read_utf8_beyond_ascii(text, at);
}

// code_point is a Unicode scalar value: at most U+10FFFF and no surrogate.
void append_utf8(char32_t code_point, std::string& out);

// Every maximal subpart that is not well-formed becomes U+FFFD, a cut tail too.
std::string replace_invalid_utf8(std::string_view bytes);

}  // namespace roost
