// Cuts a template into text, tags and the tokens inside tags, with the whitespace rules of
// trim_blocks and lstrip_blocks: a newline after a block tag and blanks before one on its line go.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace roost::jinja {

enum class TokenKind : uint8_t {
  kText,
  kBlockBegin,   // {%
  kBlockEnd,     // %}
  kOutputBegin,  // {{
  kOutputEnd,    // }}
  kName,
  kString,  // text: unescaped
  kInteger,
  kFloat,
  kOperator,
  kEnd,  // of the template
};

struct Token {
  TokenKind kind;
  int line;
  std::string text;
  int64_t integer = 0;
  double real = 0;
};

// The last token is kEnd. Refuses template.syntax with the line.
Result<std::vector<Token>> tokenize(std::string_view source);

Error syntax_error(int line, std::string_view what);
Error unsupported(int line, std::string_view what, std::string_view name);  // template.feature

}  // namespace roost::jinja
