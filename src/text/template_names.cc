#include "text/template_names.h"

#include <algorithm>
#include <map>
#include <set>

#include "text/template_lexer.h"

namespace roost::jinja {
namespace {

// Where a name that a scope uses has its value when the scope begins.
enum class Begins : uint8_t {
  kBound,    // a parameter, or the target of a loop
  kOutside,  // a variable of the request or a global function
  kAround,   // the scope around has it
  kUnset,    // nothing has it yet: the scope sets it first
};

// What is known of the names of a scope after reading it from top to bottom, as the reference does:
// the bodies of loops and macros inside are scopes of their own, branches of an "if" are not.
struct Names {
  const Names* around = nullptr;  // the scope around
  const Names* before = nullptr;  // of a branch: what the same scope knew before it
  std::map<Symbol, Begins> begins;
  std::set<Symbol> stored;

  bool is_own(Symbol name) const {
    return begins.contains(name) || (before != nullptr && before->is_own(name));
  }
  bool is_stored(Symbol name) const {
    return stored.contains(name) || (before != nullptr && before->is_stored(name));
  }
  bool is_known_around(Symbol name) const {
    return around != nullptr && (around->is_own(name) || around->is_known_around(name));
  }
  Names branch() const { return Names{around, this, {}, {}}; }
  Names inside() const { return Names{this, nullptr, {}, {}}; }

  void load(Symbol name) {
    if (!is_own(name) && !is_known_around(name)) begins[name] = Begins::kOutside;
  }
  void store(Symbol name) {
    stored.insert(name);
    if (!is_own(name)) begins[name] = is_known_around(name) ? Begins::kAround : Begins::kUnset;
  }
  void bind(Symbol name) {
    stored.insert(name);
    begins[name] = Begins::kBound;
  }
};

class Resolver {
 public:
  explicit Resolver(Program& program) : program_(program) {
    for (Symbol i = 0; i < program.symbols.size(); ++i)
      if (program.symbols[i] == "loop") loop_ = i;
  }

  Result<void> run() {
    Names names;
    ROOST_TRY_DO(read_scope(program_.root, names));
    for (const Symbol name : outside_) program_.variables.push_back(program_.symbols[name]);
    std::sort(program_.variables.begin(), program_.variables.end());
    return {};
  }

 private:
  // names: with the bound ones. Reads the scope, then the scopes inside it.
  Result<void> read_scope(Scoped& scope, Names& names) {
    read_body(scope.body, names);
    for (const auto& [name, begin] : names.begins)
      if (begin == Begins::kUnset) scope.unset.push_back(name);
    ROOST_TRY_DO(note_outside(names));
    return enter_body(scope.body, names);
  }

  Result<void> note_outside(const Names& names);

  void read_body(const Body& body, Names& names) {
    for (const Statement& statement : body)
      std::visit([&](const auto& is) { read(is, names); }, statement.is);
  }
  void read(const TextStatement&, Names&) {}
  void read(const BreakStatement&, Names&) {}
  void read(const ContinueStatement&, Names&) {}
  void read(const OutputStatement& output, Names& names) { read_expr(output.value, names); }
  void read(const ForStatement& loop, Names& names) { read_expr(loop.iterable, names); }
  void read(const MacroStatement& macro, Names& names) { names.store(macro.name); }
  void read(const SetBlockStatement& block, Names& names) { read_target(block.target, names); }
  void read(const SetStatement& set, Names& names) {
    read_expr(set.value, names);
    read_target(set.target, names);
  }
  void read(const IfStatement& statement, Names& names);
  void merge_branches(const std::vector<Names>& branches, Names& names);
  void read_target(const Target& target, Names& names);
  void bind_target(const Target& target, Names& names);

  void read_expr(const ExprPtr& expr, Names& names) {
    if (expr) std::visit([&](const auto& is) { read(is, names); }, expr->is);
  }
  void read(const LiteralExpr&, Names&) {}
  void read(const NameExpr& name, Names& names) { names.load(name.name); }
  void read(const SequenceExpr& sequence, Names& names) {
    for (const ExprPtr& item : sequence.items) read_expr(item, names);
  }
  void read(const DictExpr& dict, Names& names) {
    for (const auto& [key, value] : dict.entries) {
      read_expr(key, names);
      read_expr(value, names);
    }
  }
  void read(const ChainExpr& chain, Names& names) {
    read_expr(chain.base, names);
    for (const Link& link : chain.links)
      std::visit([&](const auto& is) { read(is, names); }, link.is);
  }
  void read(const SignExpr& sign, Names& names) { read_expr(sign.operand, names); }
  void read(const NotExpr& negation, Names& names) { read_expr(negation.operand, names); }
  void read(const ArithmeticExpr& arithmetic, Names& names) {
    read_expr(arithmetic.first, names);
    for (const auto& [op, operand] : arithmetic.rest) read_expr(operand, names);
  }
  void read(const CompareExpr& compare, Names& names) {
    read_expr(compare.first, names);
    for (const auto& [op, operand] : compare.rest) read_expr(operand, names);
  }
  void read(const ConcatExpr& concat, Names& names) {
    for (const ExprPtr& part : concat.parts) read_expr(part, names);
  }
  void read(const LogicExpr& logic, Names& names) {
    for (const ExprPtr& operand : logic.operands) read_expr(operand, names);
  }
  void read(const ConditionalExpr& conditional, Names& names) {
    read_expr(conditional.condition, names);
    read_expr(conditional.then, names);
    read_expr(conditional.otherwise, names);
  }
  void read(const AttributeLink&, Names&) {}
  void read(const ItemLink& item, Names& names) { read_expr(item.index, names); }
  void read(const SliceLink& slice, Names& names) {
    read_expr(slice.start, names);
    read_expr(slice.stop, names);
    read_expr(slice.step, names);
  }
  void read(const CallLink& call, Names& names) { read_arguments(call.arguments, names); }
  void read(const FilterLink& filter, Names& names) { read_arguments(filter.arguments, names); }
  void read(const TestLink& test, Names& names) { read_arguments(test.arguments, names); }
  void read_arguments(const CallArguments& arguments, Names& names) {
    for (const ExprPtr& argument : arguments.positional) read_expr(argument, names);
    for (const auto& [name, argument] : arguments.named) read_expr(argument, names);
  }

  // The scopes inside a body.
  Result<void> enter_body(Body& body, const Names& names) {
    for (Statement& statement : body) {
      line_ = statement.line;
      ROOST_TRY_DO(std::visit([&](auto& is) { return enter(is, names); }, statement.is));
    }
    return {};
  }
  template <class S>
  Result<void> enter(S&, const Names&) {
    return {};
  }
  Result<void> enter(IfStatement& statement, const Names& names) {
    for (auto& [condition, body] : statement.branches) ROOST_TRY_DO(enter_body(body, names));
    return enter_body(statement.otherwise, names);
  }
  Result<void> enter(ForStatement& loop, const Names& names);
  Result<void> enter(MacroStatement& macro, const Names& names);
  Result<void> enter(SetBlockStatement& block, const Names& names) {
    Names inside = names.inside();
    for (const Link& link : block.filters)
      std::visit([&](const auto& is) { read(is, inside); }, link.is);
    return read_scope(block.body, inside);
  }

  Program& program_;
  Symbol loop_ = UINT32_MAX;
  int line_ = 0;
  std::set<Symbol> outside_;
};

Result<void> Resolver::note_outside(const Names& names) {
  static const std::set<std::string_view> kOurs = {"namespace", "range", "raise_exception",
                                                   "strftime_now"};
  static const std::set<std::string_view> kUnsupported = {
      "caller", "cycler", "dict", "joiner", "kwargs", "lipsum", "self", "super", "varargs"};
  for (const auto& [name, begin] : names.begins) {
    if (begin != Begins::kOutside) continue;
    const std::string& spelling = program_.symbols[name];
    if (kUnsupported.contains(spelling)) return unsupported(line_, "name", spelling);
    if (!kOurs.contains(spelling)) outside_.insert(name);
  }
  return {};
}

// What a branch sets is not set elsewhere: such a name begins where it would without the branch.
void Resolver::merge_branches(const std::vector<Names>& branches, Names& names) {
  std::set<Symbol> set_in_branch;
  for (const Names& branch : branches)
    for (const Symbol name : branch.stored)
      if (!names.is_stored(name)) set_in_branch.insert(name);
  for (const Names& branch : branches) {
    for (const auto& [name, begin] : branch.begins) names.begins[name] = begin;
    names.stored.insert(branch.stored.begin(), branch.stored.end());
  }
  for (const Symbol name : set_in_branch)
    names.begins[name] = names.is_known_around(name) ? Begins::kAround : Begins::kOutside;
}

// The reference keeps every "elif" as an "if" of its own inside one branch.
void Resolver::read(const IfStatement& statement, Names& names) {
  read_expr(statement.branches[0].first, names);
  std::vector<Names> branches(3, names.branch());
  read_body(statement.branches[0].second, branches[0]);
  for (size_t i = 1; i < statement.branches.size(); ++i) {
    read_expr(statement.branches[i].first, branches[1]);
    std::vector<Names> inner(3, branches[1].branch());
    read_body(statement.branches[i].second, inner[0]);
    merge_branches(inner, branches[1]);
  }
  read_body(statement.otherwise, branches[2]);
  merge_branches(branches, names);
}

void Resolver::read_target(const Target& target, Names& names) {
  for (const Target& part : target.parts) read_target(part, names);
  if (target.is_tuple) return;
  if (target.attribute.empty())
    names.store(target.name);
  else
    names.load(target.name);
}

void Resolver::bind_target(const Target& target, Names& names) {
  for (const Target& part : target.parts) bind_target(part, names);
  if (!target.is_tuple) names.bind(target.name);
}

Result<void> Resolver::enter(ForStatement& loop, const Names& names) {
  if (loop.filter) {
    Names inside = names.inside();
    bind_target(loop.target, inside);
    read_expr(loop.filter, inside);
    ROOST_TRY_DO(note_outside(inside));
  }
  Names inside = names.inside();
  if (loop_ != UINT32_MAX) inside.bind(loop_);
  bind_target(loop.target, inside);
  ROOST_TRY_DO(read_scope(loop.body, inside));
  Names otherwise = names.inside();
  return read_scope(loop.otherwise, otherwise);
}

Result<void> Resolver::enter(MacroStatement& macro, const Names& names) {
  Names inside = names.inside();
  for (const Symbol parameter : macro.parameters) inside.bind(parameter);
  for (const ExprPtr& value : macro.defaults) read_expr(value, inside);
  return read_scope(macro.body, inside);
}

}  // namespace

Result<void> resolve_names(Program& program) {
  return Resolver(program).run();
}

}  // namespace roost::jinja
