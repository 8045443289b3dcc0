#include "text/splitter.h"

#include <algorithm>
#include <iterator>

#include "base/utf8.h"
#include "text/unicode_table.h"

namespace roost {
namespace {

// What the scanner below does, in the words of the tokenizer file.
constexpr std::string_view kKnownPatterns[] = {
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N})"
    R"(| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
};

// The character at a place of the text, or the end.
struct Char {
  CharClass kind = CharClass::kOther;
  size_t n_bytes = 0;  // 0 at the end of the text
  char32_t code_point = 0;

  bool is_letter_or_mark() const {
    return n_bytes > 0 && (kind == CharClass::kLetter || kind == CharClass::kMark);
  }
  bool is_other() const { return n_bytes > 0 && kind == CharClass::kOther; }
  bool is_newline() const { return kind == CharClass::kNewline; }
  bool is_space() const { return kind == CharClass::kSpace || is_newline(); }
};

Char char_at(std::string_view text, size_t at) {
  if (at == text.size()) return {};
  const Utf8Unit unit = read_utf8(text, at);
  if (unit.kind != Utf8::kWhole) return {CharClass::kOther, unit.n_bytes, 0};
  return {char_class(unit.code_point), unit.n_bytes, unit.code_point};
}

// 's 't 're 've 'm 'll 'd in either case, also before further letters; 0 if there is none. The long
// s is a case of s.
size_t contraction(std::string_view text) {
  if (text[0] != '\'' || text.size() < 2) return 0;
  const auto lower_at = [text](size_t at) { return at < text.size() ? text[at] | 0x20 : 0; };
  const int first = lower_at(1);
  const int second = lower_at(2);
  if (first == 's' || first == 't' || first == 'm' || first == 'd') return 2;
  if ((first == 'r' || first == 'v') && second == 'e') return 3;
  if (first == 'l' && second == 'l') return 3;
  if (text.substr(1).starts_with("\u017F")) return 3;
  return 0;
}

size_t end_of_letters(std::string_view text, size_t at) {
  for (Char c = char_at(text, at); c.is_letter_or_mark(); c = char_at(text, at)) at += c.n_bytes;
  return at;
}

// Characters of no class, then the line ends that follow them.
size_t end_of_others(std::string_view text, size_t at) {
  for (Char c = char_at(text, at); c.is_other(); c = char_at(text, at)) at += c.n_bytes;
  while (at < text.size() && (text[at] == '\n' || text[at] == '\r')) ++at;
  return at;
}

// A run of spaces that no letter and no other character has taken a space from.
size_t end_of_spaces(std::string_view text) {
  size_t end = 0;
  size_t n_last = 0;  // bytes of the run's last character
  size_t after_newline = 0;
  for (Char c = char_at(text, 0); c.is_space(); c = char_at(text, end)) {
    end += c.n_bytes;
    n_last = c.n_bytes;
    if (c.is_newline()) after_newline = end;
  }
  if (after_newline > 0) return after_newline;
  // The last space of a longer run belongs to what follows it.
  if (end < text.size() && end > n_last) return end - n_last;
  return end;
}

}  // namespace

bool is_known_split_pattern(std::string_view regex) {
  return std::find(std::begin(kKnownPatterns), std::end(kKnownPatterns), regex) !=
         std::end(kKnownPatterns);
}

// The alternatives of the pattern, in its order; the first that matches wins.
size_t first_piece(std::string_view text) {
  const size_t n_contraction = contraction(text);
  if (n_contraction > 0) return n_contraction;

  const Char first = char_at(text, 0);
  if (first.is_letter_or_mark()) return end_of_letters(text, first.n_bytes);
  if (first.kind == CharClass::kNumber) return first.n_bytes;

  const Char second = char_at(text, first.n_bytes);
  if (!first.is_newline() && second.is_letter_or_mark()) return end_of_letters(text, first.n_bytes);
  if (first.is_other() || (first.code_point == ' ' && second.is_other()))
    return end_of_others(text, first.n_bytes);
  return end_of_spaces(text);
}

}  // namespace roost
