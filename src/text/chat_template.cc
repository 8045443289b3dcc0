#include "text/chat_template.h"

#include <fmt/core.h>

#include "base/limits.h"
#include "base/utf8.h"
#include "text/template_eval.h"
#include "text/template_parser.h"

namespace roost {

struct ChatTemplate::Program {
  jinja::Program tree;
};

Result<ChatTemplate> ChatTemplate::parse(std::string_view source) {
  if (source.size() > limits::kTemplateBytesMax)
    return Error{Refusal::TemplateSyntax, fmt::format("{} bytes, at most {} are read",
                                                      source.size(), limits::kTemplateBytesMax)};
  for (size_t at = 0; at < source.size();) {
    const Utf8Unit unit = read_utf8(source, at);
    if (unit.kind != Utf8::kWhole)
      return Error{Refusal::TemplateSyntax, fmt::format("byte {} is not UTF-8", at)};
    at += unit.n_bytes;
  }
  ROOST_TRY(jinja::Program tree, jinja::parse(source));
  ChatTemplate chat_template;
  chat_template.program_ = std::make_shared<const Program>(Program{std::move(tree)});
  return chat_template;
}

Result<std::string> ChatTemplate::render(const json::Value& variables, int64_t unix_seconds) const {
  return jinja::render(program_->tree, variables, unix_seconds);
}

std::vector<std::string> ChatTemplate::variables() const {
  return program_->tree.variables;
}

}  // namespace roost
