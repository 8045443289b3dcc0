#include "text/template_expression_parser.h"

#include <algorithm>

#include <fmt/core.h>

#include "base/limits.h"
#include "text/template_methods.h"

namespace roost::jinja {
namespace {

template <class T>
ExprPtr make(T node) {
  return std::make_unique<Expr>(Expr{std::move(node)});
}

// The method of the loop object; what Python's types have stands in template_methods.
constexpr std::string_view kCycle = "cycle";

}  // namespace

Error ExpressionParser::nested_too_deep() const {
  return syntax_error(line(), fmt::format("nested more than {} deep", limits::kTemplateDepthMax));
}

Result<void> ExpressionParser::check_depth() const {
  if (depth_ < limits::kTemplateDepthMax) return {};
  return nested_too_deep();
}

bool ExpressionParser::is_operator(std::string_view op) const {
  return current().kind == TokenKind::kOperator && current().text == op;
}

bool ExpressionParser::is_name(std::string_view name) const {
  return current().kind == TokenKind::kName && current().text == name;
}

bool ExpressionParser::skip_operator(std::string_view op) {
  const bool is_there = is_operator(op);
  if (is_there) skip();
  return is_there;
}

bool ExpressionParser::skip_name(std::string_view name) {
  const bool is_there = is_name(name);
  if (is_there) skip();
  return is_there;
}

Error ExpressionParser::unexpected() const {
  switch (current().kind) {
    case TokenKind::kEnd:
      return syntax_error(line(), "unexpected end of the template");
    case TokenKind::kBlockEnd:
    case TokenKind::kOutputEnd:
      return syntax_error(line(), "unexpected end of a tag");
    case TokenKind::kString:
      return syntax_error(line(), "unexpected string");
    default:
      return syntax_error(line(), fmt::format("unexpected '{}'", current().text));
  }
}

Result<void> ExpressionParser::expect_operator(std::string_view op) {
  if (skip_operator(op)) return {};
  return unexpected();
}

Result<std::string> ExpressionParser::expect_name() {
  if (current().kind != TokenKind::kName) return unexpected();
  std::string name = current().text;
  skip();
  return name;
}

Symbol ExpressionParser::symbol(const std::string& name) {
  const auto [place, is_new] = symbols_.emplace(name, static_cast<Symbol>(program_.symbols.size()));
  if (is_new) program_.symbols.push_back(name);
  return place->second;
}

ExprPtr ExpressionParser::make_literal(Literal literal) {
  program_.literals.push_back(std::move(literal));
  return make(LiteralExpr{program_.literals.size() - 1});
}

Result<ExprPtr> ExpressionParser::parse_expression(bool with_conditional) {
  ROOST_TRY_DO(check_depth());
  const Level level(depth_);
  return with_conditional ? parse_conditional() : parse_logic(false);
}

// then if condition else otherwise; the last part may itself be conditional.
Result<ExprPtr> ExpressionParser::parse_conditional() {
  ROOST_TRY(ExprPtr then, parse_logic(false));
  for (int n = 0; skip_name("if"); ++n) {
    // Without "else" the whole is the first part of the next one: as deep as any nesting.
    if (depth_ + n >= limits::kTemplateDepthMax) return nested_too_deep();
    ROOST_TRY(ExprPtr condition, parse_logic(false));
    ExprPtr otherwise;
    if (skip_name("else")) {
      ROOST_TRY(otherwise, parse_expression());
    }
    then = make(ConditionalExpr{std::move(condition), std::move(then), std::move(otherwise)});
  }
  return then;
}

Result<ExprPtr> ExpressionParser::parse_logic(bool is_and) {
  const auto parse_operand = [&] { return is_and ? parse_not() : parse_logic(true); };
  ROOST_TRY(ExprPtr first, parse_operand());
  LogicExpr logic{is_and, {}};
  while (skip_name(is_and ? "and" : "or")) {
    ROOST_TRY(ExprPtr operand, parse_operand());
    logic.operands.push_back(std::move(operand));
  }
  if (logic.operands.empty()) return first;
  logic.operands.insert(logic.operands.begin(), std::move(first));
  return make(std::move(logic));
}

Result<ExprPtr> ExpressionParser::parse_not() {
  if (!is_name("not")) return parse_compare();
  skip();
  ROOST_TRY_DO(check_depth());
  const Level level(depth_);
  ROOST_TRY(ExprPtr operand, parse_not());
  return make(NotExpr{std::move(operand)});
}

Result<bool> ExpressionParser::parse_comparison(CompareExpr& compare) {
  static const std::map<std::string_view, Comparison> kOperators = {
      {"==", Comparison::kEqual},  {"!=", Comparison::kNotEqual},
      {"<", Comparison::kLess},    {"<=", Comparison::kLessEqual},
      {">", Comparison::kGreater}, {">=", Comparison::kGreaterEqual}};
  Comparison op = Comparison::kIn;
  const auto place = kOperators.find(current().text);
  if (current().kind == TokenKind::kOperator && place != kOperators.end()) {
    op = place->second;
    skip();
  } else if (is_name("not") && following().kind == TokenKind::kName && following().text == "in") {
    op = Comparison::kNotIn;
    skip();
    skip();
  } else if (!skip_name("in")) {
    return false;
  }
  ROOST_TRY(ExprPtr operand, parse_sum());
  compare.rest.emplace_back(op, std::move(operand));
  return true;
}

Result<ExprPtr> ExpressionParser::parse_compare() {
  CompareExpr compare;
  ROOST_TRY(compare.first, parse_sum());
  while (true) {
    ROOST_TRY(const bool has_more, parse_comparison(compare));
    if (!has_more) break;
  }
  if (compare.rest.empty()) return std::move(compare.first);
  return make(std::move(compare));
}

Result<ExprPtr> ExpressionParser::parse_ranked(
    const std::map<std::string_view, Arithmetic>& operators,
    Result<ExprPtr> (ExpressionParser::*parse_operand)()) {
  ArithmeticExpr arithmetic;
  ROOST_TRY(arithmetic.first, (this->*parse_operand)());
  while (current().kind == TokenKind::kOperator) {
    const auto place = operators.find(current().text);
    if (place == operators.end()) break;
    skip();
    ROOST_TRY(ExprPtr operand, (this->*parse_operand)());
    arithmetic.rest.emplace_back(place->second, std::move(operand));
  }
  if (arithmetic.rest.empty()) return std::move(arithmetic.first);
  return make(std::move(arithmetic));
}

Result<ExprPtr> ExpressionParser::parse_sum() {
  return parse_ranked({{"+", Arithmetic::kAdd}, {"-", Arithmetic::kSubtract}},
                      &ExpressionParser::parse_concat);
}

Result<ExprPtr> ExpressionParser::parse_concat() {
  ROOST_TRY(ExprPtr first, parse_product());
  ConcatExpr concat;
  while (skip_operator("~")) {
    ROOST_TRY(ExprPtr part, parse_product());
    concat.parts.push_back(std::move(part));
  }
  if (concat.parts.empty()) return first;
  concat.parts.insert(concat.parts.begin(), std::move(first));
  return make(std::move(concat));
}

Result<ExprPtr> ExpressionParser::parse_product() {
  return parse_ranked({{"*", Arithmetic::kMultiply},
                       {"/", Arithmetic::kDivide},
                       {"//", Arithmetic::kFloorDivide},
                       {"%", Arithmetic::kModulo}},
                      &ExpressionParser::parse_power);
}

// From left to right, and weaker than a sign: -2 ** 2 is 4.
Result<ExprPtr> ExpressionParser::parse_power() {
  ArithmeticExpr power;
  ROOST_TRY(power.first, parse_unary());
  while (skip_operator("**")) {
    ROOST_TRY(ExprPtr exponent, parse_unary());
    power.rest.emplace_back(Arithmetic::kPower, std::move(exponent));
  }
  if (power.rest.empty()) return std::move(power.first);
  return make(std::move(power));
}

Result<ExprPtr> ExpressionParser::parse_unary(bool with_filters) {
  ChainExpr chain;
  if (is_operator("-") || is_operator("+")) {
    const bool is_minus = is_operator("-");
    skip();
    ROOST_TRY_DO(check_depth());
    const Level level(depth_);
    ROOST_TRY(ExprPtr operand, parse_unary(false));
    chain.base = make(SignExpr{is_minus, std::move(operand)});
  } else {
    ROOST_TRY(chain.base, parse_primary());
  }
  ROOST_TRY_DO(parse_links(chain, with_filters));
  if (chain.links.empty()) return std::move(chain.base);
  return make(std::move(chain));
}

Result<ExprPtr> ExpressionParser::parse_primary() {
  const Token& token = current();
  switch (token.kind) {
    case TokenKind::kName:
      return parse_name();
    case TokenKind::kString: {
      std::string text;
      for (; current().kind == TokenKind::kString; skip()) text += current().text;
      return make_literal(std::move(text));
    }
    case TokenKind::kInteger:
      skip();
      return make_literal(token.integer);
    case TokenKind::kFloat:
      skip();
      return make_literal(token.real);
    default:
      break;
  }
  if (is_operator("[")) return parse_list();
  if (is_operator("{")) return parse_dict();
  if (!skip_operator("(")) return unexpected();
  ROOST_TRY_DO(check_depth());
  const Level level(depth_);
  ROOST_TRY(ExprPtr inside, parse_tuple(true, true));
  ROOST_TRY_DO(expect_operator(")"));
  return inside;
}

Result<ExprPtr> ExpressionParser::parse_name() {
  ROOST_TRY(const std::string name, expect_name());
  if (name == "true" || name == "True") return make_literal(true);
  if (name == "false" || name == "False") return make_literal(false);
  if (name == "none" || name == "None") return make_literal(std::monostate());
  return make(NameExpr{symbol(name)});
}

Result<ExprPtr> ExpressionParser::parse_list() {
  ROOST_TRY_DO(expect_operator("["));
  SequenceExpr list{false, {}};
  while (!is_operator("]")) {
    if (!list.items.empty()) ROOST_TRY_DO(expect_operator(","));
    if (is_operator("]")) break;
    ROOST_TRY(ExprPtr item, parse_expression());
    list.items.push_back(std::move(item));
  }
  skip();
  return make(std::move(list));
}

Result<ExprPtr> ExpressionParser::parse_dict() {
  ROOST_TRY_DO(expect_operator("{"));
  DictExpr dict;
  while (!is_operator("}")) {
    if (!dict.entries.empty()) ROOST_TRY_DO(expect_operator(","));
    if (is_operator("}")) break;
    ROOST_TRY(ExprPtr key, parse_expression());
    ROOST_TRY_DO(expect_operator(":"));
    ROOST_TRY(ExprPtr value, parse_expression());
    dict.entries.emplace_back(std::move(key), std::move(value));
  }
  skip();
  return make(std::move(dict));
}

bool ExpressionParser::is_tuple_end() const {
  return current().kind == TokenKind::kOutputEnd || current().kind == TokenKind::kBlockEnd ||
         is_operator(")");
}

Result<ExprPtr> ExpressionParser::parse_tuple(bool with_conditional, bool has_parentheses) {
  SequenceExpr tuple{true, {}};
  bool is_tuple = false;
  while (true) {
    if (!tuple.items.empty()) ROOST_TRY_DO(expect_operator(","));
    if (is_tuple_end()) break;
    ROOST_TRY(ExprPtr item, parse_expression(with_conditional));
    tuple.items.push_back(std::move(item));
    if (!is_operator(",")) break;
    is_tuple = true;
  }
  if (!is_tuple && !tuple.items.empty()) return std::move(tuple.items[0]);
  if (!is_tuple && !has_parentheses) return unexpected();
  return make(std::move(tuple));
}

// What stands behind a value. Filters and tests may be followed by calls, but by no subscripts.
Result<void> ExpressionParser::parse_links(ChainExpr& chain, bool with_filters) {
  bool after_filter = false;
  while (true) {
    if (!after_filter && is_operator(".")) {
      ROOST_TRY(Link link, parse_attribute());
      chain.links.push_back(std::move(link));
    } else if (!after_filter && is_operator("[")) {
      ROOST_TRY(Link link, parse_subscript());
      chain.links.push_back(std::move(link));
    } else if (is_operator("(")) {
      ROOST_TRY(Link link, parse_call(chain));
      chain.links.push_back(std::move(link));
    } else if (with_filters && skip_operator("|")) {
      after_filter = true;
      ROOST_TRY(Link link, parse_filter());
      chain.links.push_back(std::move(link));
    } else if (with_filters && skip_name("is")) {
      after_filter = true;
      ROOST_TRY(Link link, parse_test());
      chain.links.push_back(std::move(link));
    } else {
      return {};
    }
  }
}

Result<Link> ExpressionParser::parse_attribute() {
  ROOST_TRY_DO(expect_operator("."));
  if (current().kind == TokenKind::kInteger) {
    ExprPtr index = make_literal(current().integer);
    skip();
    return Link{ItemLink{std::move(index)}};
  }
  const int name_line = line();
  ROOST_TRY(std::string name, expect_name());
  if (name.starts_with("__")) return unsupported(name_line, "attribute", name);
  return Link{AttributeLink{std::move(name)}};
}

Result<Link> ExpressionParser::parse_subscript() {
  ROOST_TRY_DO(expect_operator("["));
  ROOST_TRY_DO(check_depth());
  const Level level(depth_);
  SequenceExpr indexes{true, {}};
  while (!is_operator("]")) {
    if (!indexes.items.empty()) ROOST_TRY_DO(expect_operator(","));
    if (is_operator(":")) return parse_slice(nullptr);
    ROOST_TRY(ExprPtr index, parse_expression());
    if (is_operator(":")) return parse_slice(std::move(index));
    indexes.items.push_back(std::move(index));
  }
  skip();
  if (indexes.items.size() == 1) return Link{ItemLink{std::move(indexes.items[0])}};
  return Link{ItemLink{make(std::move(indexes))}};
}

Result<Link> ExpressionParser::parse_slice(ExprPtr start) {
  SliceLink slice{std::move(start), nullptr, nullptr};
  for (ExprPtr* part : {&slice.stop, &slice.step}) {
    if (!skip_operator(":")) break;
    if (is_operator(":") || is_operator("]")) continue;
    ROOST_TRY(*part, parse_expression());
  }
  ROOST_TRY_DO(expect_operator("]"));
  return Link{std::move(slice)};
}

Result<CallArguments> ExpressionParser::parse_arguments() {
  ROOST_TRY_DO(expect_operator("("));
  ROOST_TRY_DO(check_depth());
  const Level level(depth_);
  CallArguments arguments;
  for (bool is_first = true; !is_operator(")"); is_first = false) {
    if (!is_first) ROOST_TRY_DO(expect_operator(","));
    if (is_operator(")")) break;
    if (is_operator("*") || is_operator("**"))
      return unsupported(line(), "arguments with", current().text);
    const bool is_named = current().kind == TokenKind::kName &&
                          following().kind == TokenKind::kOperator && following().text == "=";
    std::string name;
    if (is_named) {
      name = current().text;
      skip();
      skip();
      for (const auto& [other, value] : arguments.named)
        if (other == name) return syntax_error(line(), "an argument is named twice");
    } else if (!arguments.named.empty()) {
      return syntax_error(line(), "an argument without a name behind one with a name");
    }
    ROOST_TRY(ExprPtr value, parse_expression());
    if (is_named)
      arguments.named.emplace_back(std::move(name), std::move(value));
    else
      arguments.positional.push_back(std::move(value));
  }
  skip();
  return arguments;
}

Result<Link> ExpressionParser::parse_call(const ChainExpr& chain) {
  const AttributeLink* method =
      chain.links.empty() ? nullptr : std::get_if<AttributeLink>(&chain.links.back().is);
  if (method != nullptr && method->name != kCycle && !is_offered_method(method->name))
    return unsupported(line(), "method", method->name);
  ROOST_TRY(CallArguments arguments, parse_arguments());
  return Link{CallLink{std::move(arguments)}};
}

Result<std::string> ExpressionParser::parse_dotted_name() {
  ROOST_TRY(std::string name, expect_name());
  while (skip_operator(".")) {
    ROOST_TRY(const std::string part, expect_name());
    name += "." + part;
  }
  return name;
}

Result<Link> ExpressionParser::parse_filter() {
  const int name_line = line();
  ROOST_TRY(const std::string name, parse_dotted_name());
  const Filter* filter = find_filter(name);
  if (filter == nullptr) return unsupported(name_line, "filter", name);
  CallArguments arguments;
  if (is_operator("(")) {
    ROOST_TRY(arguments, parse_arguments());
  }
  ROOST_TRY_DO(check_filter(*filter, arguments, name_line));
  return Link{FilterLink{filter, std::move(arguments)}};
}

// The text of the i-th argument, if that is a string literal.
const std::string* ExpressionParser::literal_text(const CallArguments& arguments, size_t i) const {
  if (i >= arguments.positional.size()) return nullptr;
  const auto* literal = std::get_if<LiteralExpr>(&arguments.positional[i]->is);
  return literal == nullptr ? nullptr
                            : std::get_if<std::string>(&program_.literals[literal->index]);
}

Result<void> ExpressionParser::check_filter(const Filter& filter, const CallArguments& arguments,
                                            int at_line) const {
  if (filter.run_by_name != nullptr) return check_named_argument(filter, arguments, at_line);
  if (arguments.positional.size() > filter.parameters.size())
    return unsupported(at_line, "so many arguments of the filter", filter.name);
  for (const auto& [name, value] : arguments.named) {
    const auto& known = filter.parameters;
    if (std::find(known.begin(), known.end(), name) == known.end())
      return unsupported(at_line, fmt::format("argument of the filter '{}':", filter.name), name);
  }
  return {};
}

// map("upper"), select("defined"), selectattr("role", "equalto", "user"): the named filter or test
// must be one of ours, and it must be there to be read.
Result<void> ExpressionParser::check_named_argument(const Filter& filter,
                                                    const CallArguments& arguments,
                                                    int at_line) const {
  const bool is_map = filter.name == "map";
  const size_t place = filter.name.ends_with("attr") ? 1 : 0;
  if (arguments.positional.size() <= place) {
    for (const auto& [name, value] : arguments.named)
      if (!is_map || (name != "attribute" && name != "default"))
        return unsupported(at_line, fmt::format("argument of the filter '{}':", filter.name), name);
    return {};
  }
  const std::string* name = literal_text(arguments, place);
  if (name == nullptr) return unsupported(at_line, "a computed name in the filter", filter.name);
  if (is_map && find_filter(*name) == nullptr) return unsupported(at_line, "filter", *name);
  if (!is_map && find_test(*name) == nullptr) return unsupported(at_line, "test", *name);
  return {};
}

// Behind "is". Without parentheses one value may follow as the argument.
Result<Link> ExpressionParser::parse_test() {
  const bool is_negated = skip_name("not");
  const int name_line = line();
  ROOST_TRY(const std::string name, parse_dotted_name());
  const Test* test = find_test(name);
  if (test == nullptr) return unsupported(name_line, "test", name);
  CallArguments arguments;
  const TokenKind kind = current().kind;
  const bool is_value =
      kind == TokenKind::kString || kind == TokenKind::kInteger || kind == TokenKind::kFloat ||
      is_operator("[") || is_operator("{") ||
      (kind == TokenKind::kName && !is_name("else") && !is_name("or") && !is_name("and"));
  if (is_operator("(")) {
    ROOST_TRY(arguments, parse_arguments());
  } else if (is_value) {
    if (is_name("is")) return syntax_error(line(), "two tests in a row");
    ChainExpr argument;
    ROOST_TRY(argument.base, parse_primary());
    ROOST_TRY_DO(parse_links(argument, false));
    arguments.positional.push_back(make(std::move(argument)));
  }
  if (!arguments.named.empty() || arguments.positional.size() != test->n_arguments)
    return syntax_error(name_line,
                        fmt::format("the test '{}' takes {} arguments", name, test->n_arguments));
  return Link{TestLink{test, std::move(arguments), is_negated}};
}

}  // namespace roost::jinja
