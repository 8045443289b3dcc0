#include "base/utf8.h"

#include "base/check.h"

namespace roost {
namespace {

// What a lead byte promises: length, its own bits, and the range of the second byte, which alone
// rules out overlong forms, surrogates and values beyond U+10FFFF.
struct Lead {
  uint8_t n_bytes;  // 0: no lead byte
  uint8_t bits;
  uint8_t second_min;
  uint8_t second_max;
};

Lead lead_of(unsigned char byte) {
  if (byte < 0xC2) return {0, 0, 0, 0};  // a continuation byte, or an overlong form of ASCII
  if (byte < 0xE0) return {2, static_cast<uint8_t>(byte & 0x1F), 0x80, 0xBF};
  if (byte < 0xF0) {
    const uint8_t low = byte == 0xE0 ? 0xA0 : 0x80;
    const uint8_t high = byte == 0xED ? 0x9F : 0xBF;
    return {3, static_cast<uint8_t>(byte & 0x0F), low, high};
  }
  if (byte < 0xF5) {
    const uint8_t low = byte == 0xF0 ? 0x90 : 0x80;
    const uint8_t high = byte == 0xF4 ? 0x8F : 0xBF;
    return {4, static_cast<uint8_t>(byte & 0x07), low, high};
  }
  return {0, 0, 0, 0};
}

}  // namespace

Utf8Unit read_utf8_beyond_ascii(std::string_view text, size_t at) {
  const Lead lead = lead_of(static_cast<unsigned char>(text[at]));
  if (lead.n_bytes == 0) return {0, 1, Utf8::kBroken};
  char32_t code_point = lead.bits;
  for (uint8_t i = 1; i < lead.n_bytes; ++i) {
    if (at + i == text.size()) return {0, i, Utf8::kCut};
    const auto byte = static_cast<unsigned char>(text[at + i]);
    const uint8_t low = i == 1 ? lead.second_min : 0x80;
    const uint8_t high = i == 1 ? lead.second_max : 0xBF;
    if (byte < low || byte > high) return {0, i, Utf8::kBroken};
    code_point = code_point << 6 | (byte & 0x3F);
  }
  return {code_point, lead.n_bytes, Utf8::kWhole};
}

void append_utf8(char32_t code_point, std::string& out) {
  ROOST_CHECK(code_point <= 0x10FFFF && (code_point < 0xD800 || code_point > 0xDFFF));
  const auto put = [&out](char32_t byte) { out += static_cast<char>(byte); };
  if (code_point < 0x80) {
    put(code_point);
  } else if (code_point < 0x800) {
    put(0xC0 | code_point >> 6);
    put(0x80 | (code_point & 0x3F));
  } else if (code_point < 0x10000) {
    put(0xE0 | code_point >> 12);
    put(0x80 | (code_point >> 6 & 0x3F));
    put(0x80 | (code_point & 0x3F));
  } else {
    put(0xF0 | code_point >> 18);
    put(0x80 | (code_point >> 12 & 0x3F));
    put(0x80 | (code_point >> 6 & 0x3F));
    put(0x80 | (code_point & 0x3F));
  }
}

std::string replace_invalid_utf8(std::string_view bytes) {
  std::string out;
  out.reserve(bytes.size());
  for (size_t at = 0; at < bytes.size();) {
    const Utf8Unit unit = read_utf8(bytes, at);
    if (unit.kind == Utf8::kWhole)
      out.append(bytes, at, unit.n_bytes);
    else
      out += kReplacementCharacter;
    at += unit.n_bytes;
  }
  return out;
}

}  // namespace roost
