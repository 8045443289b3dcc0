// Reads expressions from the tokens of a template. The statement parser builds on it.
#pragma once

#include <algorithm>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "text/template_ast.h"
#include "text/template_lexer.h"

namespace roost::jinja {

class ExpressionParser {
 protected:
  ExpressionParser(std::vector<Token> tokens, Program& program)
      : tokens_(std::move(tokens)), program_(program) {}

  // Counts a level of nesting while it lives: nothing recursive is entered without one.
  class Level {
   public:
    explicit Level(int& depth) : depth_(depth) { ++depth_; }
    ~Level() { --depth_; }
    Level(const Level&) = delete;
    Level& operator=(const Level&) = delete;

   private:
    int& depth_;
  };
  Result<void> check_depth() const;
  Error nested_too_deep() const;

  const Token& current() const { return tokens_[at_]; }
  const Token& following() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }
  int line() const { return current().line; }
  void skip() {
    if (at_ + 1 < tokens_.size()) ++at_;
  }
  bool is_operator(std::string_view op) const;
  bool is_name(std::string_view name) const;
  bool skip_operator(std::string_view op);
  bool skip_name(std::string_view name);
  Result<void> expect_operator(std::string_view op);
  Result<std::string> expect_name();
  Error unexpected() const;

  bool is_tuple_end() const;

  Symbol symbol(const std::string& name);

  Result<ExprPtr> parse_expression(bool with_conditional = true);
  // One expression, or several with commas: a tuple. An empty one needs parentheses around it.
  Result<ExprPtr> parse_tuple(bool with_conditional = true, bool has_parentheses = false);
  Result<Link> parse_filter();  // behind the '|'

  std::vector<Token> tokens_;
  size_t at_ = 0;
  int depth_ = 0;
  Program& program_;

 private:
  Result<ExprPtr> parse_conditional();
  Result<ExprPtr> parse_logic(bool is_and);
  Result<ExprPtr> parse_not();
  Result<ExprPtr> parse_compare();
  Result<bool> parse_comparison(CompareExpr& compare);
  Result<ExprPtr> parse_sum();
  Result<ExprPtr> parse_concat();
  Result<ExprPtr> parse_product();
  Result<ExprPtr> parse_power();
  Result<ExprPtr> parse_ranked(const std::map<std::string_view, Arithmetic>& operators,
                               Result<ExprPtr> (ExpressionParser::*parse_operand)());
  Result<ExprPtr> parse_unary(bool with_filters = true);
  Result<ExprPtr> parse_primary();
  Result<ExprPtr> parse_name();
  Result<ExprPtr> parse_list();
  Result<ExprPtr> parse_dict();
  Result<void> parse_links(ChainExpr& chain, bool with_filters);
  Result<Link> parse_attribute();
  Result<Link> parse_subscript();
  Result<Link> parse_slice(ExprPtr start);
  Result<Link> parse_call(const ChainExpr& chain);
  Result<Link> parse_test();
  Result<CallArguments> parse_arguments();
  Result<std::string> parse_dotted_name();
  Result<void> check_filter(const Filter& filter, const CallArguments& arguments,
                            int at_line) const;
  Result<void> check_named_argument(const Filter& filter, const CallArguments& arguments,
                                    int at_line) const;
  const std::string* literal_text(const CallArguments& arguments, size_t i) const;
  ExprPtr make_literal(Literal literal);

  std::map<std::string, Symbol> symbols_;
};

}  // namespace roost::jinja
