#include "text/template_lexer.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>

#include <fmt/core.h>

#include "base/utf8.h"
#include "text/python_text.h"

namespace roost::jinja {
namespace {

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}
bool is_name_begin(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}
bool is_name_char(char c) {
  return is_name_begin(c) || is_digit(c);
}

int hex_value(char c) {
  if (is_digit(c)) return c - '0';
  const char lower = static_cast<char>(c | 0x20);
  return lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : -1;
}

// "\r\n" and "\r" become "\n"; one newline at the end goes.
std::string normalize_newlines(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] != '\r') {
      out += source[i];
      continue;
    }
    out += '\n';
    if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
  }
  if (!out.empty() && out.back() == '\n') out.pop_back();
  return out;
}

// Length of the digits at the front of text, '_' between them allowed.
template <class IsDigit>
size_t digits_length(std::string_view text, IsDigit is_one, bool may_begin_with_underscore) {
  size_t n = 0;
  while (n < text.size()) {
    const bool has_underscore = text[n] == '_' && (n > 0 || may_begin_with_underscore);
    const size_t at = n + (has_underscore ? 1 : 0);
    if (at >= text.size() || !is_one(text[at])) break;
    n = at + 1;
  }
  return n;
}

size_t decimal_length(std::string_view text) {
  return digits_length(text, is_digit, false);
}

// Length of the float at the front of text, 0 if there is none: a fraction, an exponent, or both.
size_t float_length(std::string_view text) {
  size_t n = decimal_length(text);
  if (n == 0) return 0;
  bool is_float = false;
  if (n < text.size() && text[n] == '.') {
    const size_t n_fraction = decimal_length(text.substr(n + 1));
    if (n_fraction > 0) {
      n += 1 + n_fraction;
      is_float = true;
    }
  }
  if (n < text.size() && (text[n] | 0x20) == 'e') {
    const bool is_signed = n + 1 < text.size() && (text[n + 1] == '+' || text[n + 1] == '-');
    const size_t begin = n + (is_signed ? 2 : 1);
    const size_t n_exponent = begin < text.size() ? decimal_length(text.substr(begin)) : 0;
    if (n_exponent > 0) {
      n = begin + n_exponent;
      is_float = true;
    }
  }
  return is_float ? n : 0;
}

// Length of the integer at the front of text, 0 if there is none. Zeros stand alone.
size_t integer_length(std::string_view text) {
  if (text.empty() || !is_digit(text[0])) return 0;
  if (text[0] != '0') return decimal_length(text);
  const char letter = text.size() > 1 ? static_cast<char>(text[1] | 0x20) : ' ';
  const int base = letter == 'x' ? 16 : letter == 'o' ? 8 : letter == 'b' ? 2 : 0;
  if (base != 0) {
    const auto is_one = [base](char c) { return hex_value(c) >= 0 && hex_value(c) < base; };
    const size_t n = digits_length(text.substr(2), is_one, true);
    if (n > 0) return 2 + n;
  }
  return digits_length(text, [](char c) { return c == '0'; }, false);
}

// Reads the escapes of Python's string literals.
class Unescaper {
 public:
  explicit Unescaper(std::string_view text) : text_(text) {}

  // Nothing if an escape is damaged or names a character that is not supported.
  std::optional<std::string> run() {
    while (at_ < text_.size()) {
      if (text_[at_] != '\\') {
        out_ += text_[at_++];
        continue;
      }
      ++at_;
      if (at_ == text_.size() || !read_escape()) return std::nullopt;
    }
    return std::move(out_);
  }

 private:
  bool read_escape() {
    const char c = text_[at_];
    if (c == '\n') return ++at_, true;
    if (c >= '0' && c <= '7') return read_octal();
    if (c == 'x') return read_hex(2);
    if (c == 'u') return read_hex(4);
    if (c == 'U') return read_hex(8);
    if (c == 'N') return false;
    const std::string_view letters = "a\ab\bf\fn\nr\rt\tv\v\\\\''\"\"";
    for (size_t i = 0; i < letters.size(); i += 2) {
      if (letters[i] != c) continue;
      out_ += letters[i + 1];
      return ++at_, true;
    }
    return read_unknown();
  }

  bool read_octal() {
    char32_t code_point = 0;
    for (int n = 0; n < 3 && at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '7'; ++n)
      code_point = code_point * 8 + static_cast<char32_t>(text_[at_++] - '0');
    append_utf8(code_point, out_);
    return true;
  }

  bool read_hex(size_t n_digits) {
    if (text_.size() - at_ - 1 < n_digits) return false;
    uint32_t code_point = 0;
    for (size_t i = 1; i <= n_digits; ++i) {
      const int digit = hex_value(text_[at_ + i]);
      if (digit < 0) return false;
      code_point = code_point * 16 + static_cast<uint32_t>(digit);
    }
    if (code_point > 0x10FFFF || (code_point >= 0xD800 && code_point <= 0xDFFF)) return false;
    append_utf8(code_point, out_);
    at_ += n_digits + 1;
    return true;
  }

  // An unknown escape stays as it is. Behind the backslash, a character beyond ASCII turns into the
  // spelling of its own escape: the reference takes its literals through ASCII.
  bool read_unknown() {
    const Utf8Unit unit = read_utf8(text_, at_);
    const auto c = static_cast<uint32_t>(unit.code_point);
    out_ += '\\';
    if (c < 0x80)
      out_ += static_cast<char>(c);
    else
      out_ += c < 0x100     ? fmt::format("x{:02x}", c)
              : c < 0x10000 ? fmt::format("u{:04x}", c)
                            : fmt::format("U{:08x}", c);
    at_ += unit.n_bytes;
    return true;
  }

  std::string_view text_;
  size_t at_ = 0;
  std::string out_;
};

class Lexer {
 public:
  explicit Lexer(std::string_view source) : source_(normalize_newlines(source)) {}
  Result<std::vector<Token>> run();

 private:
  std::string_view rest() const { return std::string_view(source_).substr(at_); }
  bool at_end() const { return at_ == source_.size(); }
  void advance(size_t n_bytes) {
    line_ +=
        static_cast<int>(std::count(source_.begin() + static_cast<ptrdiff_t>(at_),
                                    source_.begin() + static_cast<ptrdiff_t>(at_ + n_bytes), '\n'));
    at_ += n_bytes;
  }
  void skip_blanks() { advance(rest().size() - strip(rest(), std::nullopt, true, false).size()); }
  void add(TokenKind kind, std::string text = "") {
    tokens_.push_back({kind, line_, std::move(text)});
  }

  void add_text(std::string_view text, char sign, bool may_strip_line);
  char take_sign();
  Result<void> read_tag();
  Result<void> read_comment();
  bool read_raw_begin();
  Result<void> read_raw();
  Result<void> read_inside(TokenKind end_kind);
  bool read_end(TokenKind end_kind);
  bool take_block_end();
  Result<void> read_token();
  Result<void> read_number(size_t n_bytes, bool is_float);
  Result<void> read_string();
  Result<void> read_operator();
  bool match_word_tag(std::string_view word, size_t& n_bytes, char& sign) const;

  std::string source_;
  size_t at_ = 0;
  int line_ = 1;
  bool line_starting_ = true;  // the text so far ends with a newline
  std::vector<char> open_;     // brackets inside the tag
  std::vector<Token> tokens_;
};

// Text before a tag, without what the tag strips from it.
void Lexer::add_text(std::string_view text, char sign, bool may_strip_line) {
  if (sign == '-') {
    text = strip(text, std::nullopt, false, true);
  } else if (sign != '+' && may_strip_line) {
    const size_t line_begin = text.rfind('\n') + 1;  // npos + 1 is 0
    const bool is_at_begin = line_begin > 0 || line_starting_;
    if (is_at_begin && strip(text.substr(line_begin), std::nullopt).empty())
      text = text.substr(0, line_begin);
  }
  if (!text.empty()) add(TokenKind::kText, std::string(text));
}

// The '-' or '+' behind "{%", "{{" or "{#"; a blank if there is none.
char Lexer::take_sign() {
  if (at_end() || (source_[at_] != '-' && source_[at_] != '+')) return ' ';
  return source_[at_++];
}

Result<std::vector<Token>> Lexer::run() {
  while (!at_end()) {
    size_t begin = at_;
    while (true) {
      begin = source_.find('{', begin);
      if (begin == std::string::npos || begin + 1 == source_.size()) begin = std::string::npos;
      if (begin == std::string::npos) break;
      const char c = source_[begin + 1];
      if (c == '%' || c == '{' || c == '#') break;
      ++begin;
    }
    if (begin == std::string::npos) {
      add(TokenKind::kText, std::string(rest()));
      break;
    }
    const std::string_view text = rest().substr(0, begin - at_);
    const bool is_output = source_[begin + 1] == '{';
    const char sign = begin + 2 < source_.size() ? source_[begin + 2] : ' ';
    add_text(text, sign, !is_output);
    advance(text.size());
    ROOST_TRY_DO(read_tag());
  }
  add(TokenKind::kEnd);
  return std::move(tokens_);
}

Result<void> Lexer::read_tag() {
  if (read_raw_begin()) return read_raw();
  const char kind = source_[at_ + 1];
  at_ += 2;
  take_sign();
  if (kind == '#') return read_comment();
  const bool is_output = kind == '{';
  add(is_output ? TokenKind::kOutputBegin : TokenKind::kBlockBegin);
  return read_inside(is_output ? TokenKind::kOutputEnd : TokenKind::kBlockEnd);
}

// At the very end of the template a comment or raw block may begin and need not end.
Result<void> Lexer::read_comment() {
  if (at_end()) return {};
  const size_t end = source_.find("#}", at_);
  if (end == std::string::npos) return syntax_error(line_, "a comment does not end");
  // A sign belongs to the end, unless the comment is "{#-#}".
  const char sign = end > at_ ? source_[end - 1] : ' ';
  advance(end + 2 - at_);
  line_starting_ = false;
  if (sign == '-') {
    const size_t begin = at_;
    skip_blanks();
    line_starting_ = at_ > begin && source_[at_ - 1] == '\n';
  } else if (sign != '+' && !at_end() && source_[at_] == '\n') {
    advance(1);
    line_starting_ = true;
  }
  return {};
}

// Whether a tag {% word %} of any signs begins here; the bytes up to the sign of its end.
bool Lexer::match_word_tag(std::string_view word, size_t& n_bytes, char& sign) const {
  std::string_view text = rest();
  const size_t n_whole = text.size();
  if (!text.starts_with("{%")) return false;
  text.remove_prefix(2);
  sign = !text.empty() && (text[0] == '-' || text[0] == '+') ? text[0] : ' ';
  if (sign != ' ') text.remove_prefix(1);
  text = strip(text, std::nullopt, true, false);
  if (!text.starts_with(word)) return false;
  text = strip(text.substr(word.size()), std::nullopt, true, false);
  n_bytes = n_whole - text.size();
  return text.starts_with("%}") || text.starts_with("-%}") || text.starts_with("+%}");
}

bool Lexer::read_raw_begin() {
  size_t n_bytes = 0;
  char sign = ' ';
  if (!match_word_tag("raw", n_bytes, sign) || source_[at_ + n_bytes] == '+') return false;
  advance(n_bytes);
  const bool is_stripped = source_[at_] == '-';
  at_ += is_stripped ? 3 : 2;
  line_starting_ = false;
  if (is_stripped) {
    const size_t begin = at_;
    skip_blanks();
    line_starting_ = at_ > begin && source_[at_ - 1] == '\n';
  }
  return true;
}

Result<void> Lexer::read_raw() {
  if (at_end()) return {};
  const size_t begin = at_;
  const int begin_line = line_;
  for (size_t end = source_.find("{%", begin); end != std::string::npos;
       end = source_.find("{%", end + 1)) {
    size_t n_bytes = 0;
    char sign = ' ';
    at_ = end;
    const bool is_end = match_word_tag("endraw", n_bytes, sign);
    at_ = begin;
    if (!is_end) continue;
    add_text(rest().substr(0, end - begin), sign, true);
    advance(end - begin + n_bytes);
    take_block_end();
    return {};
  }
  return syntax_error(begin_line, "a raw block does not end");
}

// "%}" with its sign, and what it strips from the text behind.
bool Lexer::take_block_end() {
  const std::string_view text = rest();
  const bool has_sign = text.starts_with("-%}") || text.starts_with("+%}");
  if (!has_sign && !text.starts_with("%}")) return false;
  const char sign = has_sign ? text[0] : ' ';
  at_ += has_sign ? 3 : 2;
  const size_t begin = at_;
  if (sign == '-') skip_blanks();
  if (sign == ' ' && !at_end() && source_[at_] == '\n') advance(1);
  line_starting_ = at_ > begin && source_[at_ - 1] == '\n';
  return true;
}

bool Lexer::read_end(TokenKind end_kind) {
  const int line = line_;
  if (end_kind == TokenKind::kBlockEnd) {
    if (!take_block_end()) return false;
  } else {
    const bool is_stripped = rest().starts_with("-}}");
    if (!is_stripped && !rest().starts_with("}}")) return false;
    at_ += is_stripped ? 3 : 2;
    const size_t begin = at_;
    if (is_stripped) skip_blanks();
    line_starting_ = at_ > begin && source_[at_ - 1] == '\n';
  }
  tokens_.push_back({end_kind, line, ""});
  return true;
}

Result<void> Lexer::read_inside(TokenKind end_kind) {
  const int begin_line = line_;
  open_.clear();
  while (true) {
    if (open_.empty() && read_end(end_kind)) return {};
    skip_blanks();
    if (open_.empty() && read_end(end_kind)) return {};
    if (at_end()) return syntax_error(begin_line, "a tag does not end");
    ROOST_TRY_DO(read_token());
  }
}

Result<void> Lexer::read_token() {
  const char c = source_[at_];
  const bool after_dot = at_ > 0 && source_[at_ - 1] == '.';
  if (const size_t n = after_dot ? 0 : float_length(rest())) return read_number(n, true);
  if (const size_t n = integer_length(rest())) return read_number(n, false);
  if (is_name_begin(c)) {
    size_t n = 1;
    while (n < rest().size() && is_name_char(rest()[n])) ++n;
    add(TokenKind::kName, std::string(rest().substr(0, n)));
    at_ += n;
    return {};
  }
  if (c == '\'' || c == '"') return read_string();
  return read_operator();
}

Result<void> Lexer::read_number(size_t n_bytes, bool is_float) {
  std::string digits(rest().substr(0, n_bytes));
  digits.erase(std::remove(digits.begin(), digits.end(), '_'), digits.end());
  at_ += n_bytes;
  Token token{is_float ? TokenKind::kFloat : TokenKind::kInteger, line_, digits};
  if (is_float) {
    token.real = parse_float(digits).value_or(0);
    tokens_.push_back(std::move(token));
    return {};
  }
  const std::string decimal = parse_int(digits, 0).value_or("");
  const auto read = std::from_chars(decimal.data(), decimal.data() + decimal.size(), token.integer);
  if (decimal.empty() || read.ec != std::errc())
    return syntax_error(line_, "an integer beyond 64 bits");
  tokens_.push_back(std::move(token));
  return {};
}

Result<void> Lexer::read_string() {
  const char quote = source_[at_];
  size_t end = at_ + 1;
  while (end < source_.size() && source_[end] != quote) end += source_[end] == '\\' ? 2 : 1;
  if (end >= source_.size()) return syntax_error(line_, "a string does not end");
  std::optional<std::string> text = Unescaper(rest().substr(1, end - at_ - 1)).run();
  if (!text) return syntax_error(line_, "a string has a damaged escape");
  add(TokenKind::kString, *std::move(text));
  advance(end + 1 - at_);
  return {};
}

Result<void> Lexer::read_operator() {
  static constexpr std::string_view kOperators[] = {
      "//", "**", "==", "!=", ">=", "<=", "+", "-", "/", "*", "%", "~", "[",
      "]",  "(",  ")",  "{",  "}",  ">",  "<", "=", ".", ":", "|", ",", ";"};
  for (const std::string_view op : kOperators) {
    if (!rest().starts_with(op)) continue;
    const char c = op[0];
    if (c == '(' || c == '[' || c == '{') open_.push_back(c == '(' ? ')' : c == '[' ? ']' : '}');
    if (c == ')' || c == ']' || c == '}') {
      if (open_.empty() || open_.back() != c)
        return syntax_error(line_, fmt::format("unexpected '{}'", c));
      open_.pop_back();
    }
    add(TokenKind::kOperator, std::string(op));
    at_ += op.size();
    return {};
  }
  return syntax_error(line_, "an unexpected character");
}

}  // namespace

Error syntax_error(int line, std::string_view what) {
  return Error{Refusal::TemplateSyntax, fmt::format("line {}: {}", line, what)};
}

Error unsupported(int line, std::string_view what, std::string_view name) {
  return Error{Refusal::TemplateFeature, fmt::format("line {}: {} '{}'", line, what, name)};
}

Result<std::vector<Token>> tokenize(std::string_view source) {
  return Lexer(source).run();
}

}  // namespace roost::jinja
