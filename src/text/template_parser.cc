#include "text/template_parser.h"

#include <optional>
#include <utility>

#include <fmt/core.h>

#include "text/template_expression_parser.h"
#include "text/template_names.h"

namespace roost::jinja {
namespace {

class Parser : public ExpressionParser {
 public:
  Parser(std::vector<Token> tokens, Program& program)
      : ExpressionParser(std::move(tokens), program) {}

  Result<void> run() {
    ROOST_TRY(program_.root.body, parse_body({}));
    return {};
  }

 private:
  using Ends = std::vector<std::string_view>;

  // Statements up to a tag of one of these names, which is left as the current token. Without
  // names: up to the end of the template.
  Result<Body> parse_body(const Ends& ends);
  Result<Body> parse_block(const Ends& ends);
  Result<Body> parse_last_block(std::string_view end);
  Result<Statement> parse_output();
  Result<Statement> parse_tag();
  Result<Statement> parse_if();
  Result<Statement> parse_for();
  Result<Statement> parse_set();
  Result<Statement> parse_macro();
  Result<void> parse_parameters(MacroStatement& macro);
  Result<Target> parse_target(bool with_attributes);
  Result<Target> parse_single_target(bool with_attributes);
  Result<Symbol> parse_stored_name();
  Result<Body> parse_loop_body(const Ends& ends);

  int n_loops_ = 0;  // around the current statement, inside the current macro
};

bool is_one_of(std::string_view name, const std::vector<std::string_view>& names) {
  for (const std::string_view other : names)
    if (name == other) return true;
  return false;
}

Result<Body> Parser::parse_body(const Ends& ends) {
  Body body;
  while (true) {
    const Token& token = current();
    if (token.kind == TokenKind::kEnd) {
      if (ends.empty()) return body;
      return syntax_error(line(), fmt::format("the template ends before '{}'", ends.back()));
    }
    if (token.kind == TokenKind::kText) {
      body.push_back({token.line, TextStatement{token.text}});
      skip();
    } else if (token.kind == TokenKind::kOutputBegin) {
      ROOST_TRY(Statement output, parse_output());
      body.push_back(std::move(output));
    } else {
      ROOST_CHECK(token.kind == TokenKind::kBlockBegin);
      skip();
      if (current().kind == TokenKind::kName && is_one_of(current().text, ends)) return body;
      ROOST_TRY(Statement statement, parse_tag());
      body.push_back(std::move(statement));
      if (current().kind != TokenKind::kBlockEnd) return unexpected();
      skip();
    }
  }
}

// The body of a tag whose own expressions have been read.
Result<Body> Parser::parse_block(const Ends& ends) {
  skip_operator(":");
  if (current().kind != TokenKind::kBlockEnd) return unexpected();
  skip();
  ROOST_TRY_DO(check_depth());
  const Level level(depth_);
  return parse_body(ends);
}

Result<Body> Parser::parse_last_block(std::string_view end) {
  ROOST_TRY(Body body, parse_block({end}));
  skip();
  return body;
}

Result<Body> Parser::parse_loop_body(const Ends& ends) {
  ++n_loops_;
  Result<Body> body = parse_block(ends);
  --n_loops_;
  return body;
}

Result<Statement> Parser::parse_output() {
  const int begin = line();
  skip();
  ROOST_TRY(ExprPtr value, parse_tuple());
  if (current().kind != TokenKind::kOutputEnd) return unexpected();
  skip();
  return Statement{begin, OutputStatement{std::move(value)}};
}

Result<Statement> Parser::parse_tag() {
  const int begin = line();
  ROOST_TRY(const std::string name, expect_name());
  if (name == "if") return parse_if();
  if (name == "for") return parse_for();
  if (name == "set") return parse_set();
  if (name == "macro") return parse_macro();
  if (name == "break" || name == "continue") {
    if (n_loops_ == 0) return syntax_error(begin, fmt::format("'{}' outside of a loop", name));
    if (name == "break") return Statement{begin, BreakStatement{}};
    return Statement{begin, ContinueStatement{}};
  }
  if (name == "else" || name == "elif" || name.starts_with("end"))
    return syntax_error(begin, fmt::format("unexpected '{}'", name));
  return unsupported(begin, "tag", name);
}

Result<Statement> Parser::parse_if() {
  const int begin = line();
  IfStatement statement;
  while (true) {
    ROOST_TRY(ExprPtr condition, parse_tuple(false));
    ROOST_TRY(Body body, parse_block({"elif", "else", "endif"}));
    statement.branches.emplace_back(std::move(condition), std::move(body));
    if (skip_name("elif")) continue;
    if (!skip_name("else")) break;
    ROOST_TRY(statement.otherwise, parse_last_block("endif"));
    return Statement{begin, std::move(statement)};
  }
  skip();
  return Statement{begin, std::move(statement)};
}

Result<Statement> Parser::parse_for() {
  const int begin = line();
  ForStatement loop;
  ROOST_TRY(loop.target, parse_target(false));
  if (!skip_name("in")) return unexpected();
  ROOST_TRY(loop.iterable, parse_tuple(false));
  if (skip_name("if")) {
    ROOST_TRY(loop.filter, parse_expression());
  }
  if (is_name("recursive")) return unsupported(begin, "a loop that is", "recursive");
  ROOST_TRY(loop.body.body, parse_loop_body({"else", "endfor"}));
  if (skip_name("else")) {
    ROOST_TRY(loop.otherwise.body, parse_last_block("endfor"));
  } else {
    skip();
  }
  return Statement{begin, std::move(loop)};
}

Result<Statement> Parser::parse_set() {
  const int begin = line();
  ROOST_TRY(Target target, parse_target(true));
  if (skip_operator("=")) {
    ROOST_TRY(ExprPtr value, parse_tuple());
    return Statement{begin, SetStatement{std::move(target), std::move(value)}};
  }
  SetBlockStatement block{std::move(target), {}, {}};
  while (skip_operator("|")) {
    ROOST_TRY(Link filter, parse_filter());
    block.filters.push_back(std::move(filter));
  }
  ROOST_TRY(block.body.body, parse_last_block("endset"));
  return Statement{begin, std::move(block)};
}

Result<Statement> Parser::parse_macro() {
  const int begin = line();
  MacroStatement macro;
  ROOST_TRY(macro.name, parse_stored_name());
  ROOST_TRY_DO(parse_parameters(macro));
  const int n_outer_loops = std::exchange(n_loops_, 0);
  Result<Body> body = parse_last_block("endmacro");
  n_loops_ = n_outer_loops;
  ROOST_TRY(macro.body.body, std::move(body));
  return Statement{begin, std::move(macro)};
}

Result<void> Parser::parse_parameters(MacroStatement& macro) {
  ROOST_TRY_DO(expect_operator("("));
  while (!is_operator(")")) {
    if (!macro.parameters.empty()) ROOST_TRY_DO(expect_operator(","));
    const int name_line = line();
    ROOST_TRY(const Symbol parameter, parse_stored_name());
    for (const Symbol other : macro.parameters)
      if (other == parameter) return syntax_error(name_line, "two parameters have one name");
    macro.parameters.push_back(parameter);
    if (skip_operator("=")) {
      ROOST_TRY(ExprPtr value, parse_expression());
      macro.defaults.push_back(std::move(value));
    } else if (!macro.defaults.empty()) {
      return syntax_error(name_line, "a parameter without default behind one with a default");
    }
  }
  skip();
  return {};
}

Result<Symbol> Parser::parse_stored_name() {
  const int name_line = line();
  ROOST_TRY(const std::string name, expect_name());
  for (const std::string_view fixed :
       {"true", "True", "false", "False", "none", "None", "loop", "caller", "varargs", "kwargs"})
    if (name == fixed) return syntax_error(name_line, fmt::format("'{}' cannot be set", name));
  return symbol(name);
}

Result<Target> Parser::parse_single_target(bool with_attributes) {
  Target target;
  if (skip_operator("(")) {
    ROOST_TRY_DO(check_depth());
    const Level level(depth_);
    ROOST_TRY(target, parse_target(false));
    ROOST_TRY_DO(expect_operator(")"));
    return target;
  }
  if (with_attributes && current().kind == TokenKind::kName &&
      following().kind == TokenKind::kOperator && following().text == ".") {
    target.name = symbol(current().text);
    skip();
    skip();
    ROOST_TRY(target.attribute, expect_name());
    return target;
  }
  ROOST_TRY(target.name, parse_stored_name());
  return target;
}

// One target or, with commas, several.
Result<Target> Parser::parse_target(bool with_attributes) {
  ROOST_TRY(Target first, parse_single_target(with_attributes));
  if (!is_operator(",")) return first;
  Target tuple;
  tuple.is_tuple = true;
  tuple.parts.push_back(std::move(first));
  while (skip_operator(",")) {
    if (is_tuple_end()) break;
    ROOST_TRY(Target part, parse_single_target(with_attributes));
    tuple.parts.push_back(std::move(part));
  }
  return tuple;
}

}  // namespace

Result<Program> parse(std::string_view source) {
  ROOST_TRY(std::vector<Token> tokens, tokenize(source));
  Program program;
  Parser parser(std::move(tokens), program);
  ROOST_TRY_DO(parser.run());
  ROOST_TRY_DO(resolve_names(program));
  return program;
}

}  // namespace roost::jinja
