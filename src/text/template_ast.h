// The tree of a chat template: what the parser builds and the evaluator walks. Names are numbered
// (Symbol) and literals stand in one list, so that a rendering makes each of their values once.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "text/template_filters.h"
#include "text/template_tests.h"

namespace roost::jinja {

using Symbol = uint32_t;
using Literal = std::variant<std::monostate, bool, int64_t, double, std::string>;  // first: None

struct Expr;
using ExprPtr = std::unique_ptr<Expr>;

struct CallArguments {
  std::vector<ExprPtr> positional;
  std::vector<std::pair<std::string, ExprPtr>> named;
};

// What stands behind a value: .name  [item]  [a:b:c]  (arguments)  | filter  is test
struct AttributeLink {
  std::string name;
};
struct ItemLink {
  ExprPtr index;
};
struct SliceLink {
  ExprPtr start, stop, step;  // each may be left out
};
struct CallLink {
  CallArguments arguments;
};
struct FilterLink {
  const Filter* filter;
  CallArguments arguments;
};
struct TestLink {
  const Test* test;
  CallArguments arguments;
  bool is_negated;
};
struct Link {
  std::variant<AttributeLink, ItemLink, SliceLink, CallLink, FilterLink, TestLink> is;
};

struct LiteralExpr {
  size_t index;  // in Program::literals
};
struct NameExpr {
  Symbol name;
};
struct SequenceExpr {
  bool is_tuple;
  std::vector<ExprPtr> items;
};
struct DictExpr {
  std::vector<std::pair<ExprPtr, ExprPtr>> entries;
};
struct ChainExpr {
  ExprPtr base;
  std::vector<Link> links;
};
struct SignExpr {
  bool is_minus;
  ExprPtr operand;
};
struct NotExpr {
  ExprPtr operand;
};

enum class Arithmetic : uint8_t {
  kAdd,
  kSubtract,
  kMultiply,
  kDivide,
  kFloorDivide,
  kModulo,
  kPower,
};
// first op a op b op …, from left to right; every operator of one rank.
struct ArithmeticExpr {
  ExprPtr first;
  std::vector<std::pair<Arithmetic, ExprPtr>> rest;
};

enum class Comparison : uint8_t {
  kEqual,
  kNotEqual,
  kLess,
  kLessEqual,
  kGreater,
  kGreaterEqual,
  kIn,
  kNotIn,
};
// a < b < c: each operand against the one before it.
struct CompareExpr {
  ExprPtr first;
  std::vector<std::pair<Comparison, ExprPtr>> rest;
};

struct ConcatExpr {
  std::vector<ExprPtr> parts;
};
struct LogicExpr {
  bool is_and;
  std::vector<ExprPtr> operands;
};
struct ConditionalExpr {
  ExprPtr condition, then;
  ExprPtr otherwise;  // may be left out: undefined
};

struct Expr {
  std::variant<LiteralExpr, NameExpr, SequenceExpr, DictExpr, ChainExpr, SignExpr, NotExpr,
               ArithmeticExpr, CompareExpr, ConcatExpr, LogicExpr, ConditionalExpr>
      is;
};

// Where a value goes: a name, an attribute of a namespace, or several targets.
struct Target {
  Symbol name = 0;
  std::string attribute;  // if not empty
  bool is_tuple = false;
  std::vector<Target> parts;
};

struct Statement;
using Body = std::vector<Statement>;

// The statements of one scope. Names in `unset` are known to be set later in this scope and nowhere
// outside it: reading them before gives undefined, even where a variable of the request has that
// name.
struct Scoped {
  Body body;
  std::vector<Symbol> unset;
};

struct TextStatement {
  std::string text;
};
struct OutputStatement {
  ExprPtr value;
};
struct IfStatement {
  std::vector<std::pair<ExprPtr, Body>> branches;
  Body otherwise;
};
struct ForStatement {
  Target target;
  ExprPtr iterable;
  ExprPtr filter;  // may be left out
  Scoped body;
  Scoped otherwise;
};
struct SetStatement {
  Target target;
  ExprPtr value;
};
struct SetBlockStatement {
  Target target;
  std::vector<Link> filters;
  Scoped body;
};
struct MacroStatement {
  Symbol name;
  std::vector<Symbol> parameters;
  std::vector<ExprPtr> defaults;  // of the last parameters
  Scoped body;
};
struct BreakStatement {};
struct ContinueStatement {};

struct Statement {
  int line;
  std::variant<TextStatement, OutputStatement, IfStatement, ForStatement, SetStatement,
               SetBlockStatement, MacroStatement, BreakStatement, ContinueStatement>
      is;
};

struct Program {
  Scoped root;
  std::vector<std::string> symbols;  // their spellings
  std::vector<Literal> literals;
  std::vector<std::string> variables;  // names that may be read from outside, sorted
};

}  // namespace roost::jinja
