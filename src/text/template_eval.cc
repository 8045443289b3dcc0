#include "text/template_eval.h"

#include <algorithm>
#include <ctime>

#include <fmt/core.h>

#include "base/limits.h"
#include "text/template_loop.h"
#include "text/template_methods.h"
#include "text/template_operators.h"
#include "text/template_print.h"
#include "text/template_scope.h"

namespace roost::jinja {

// A macro and the scope that it was made in.
struct MacroObject {
  const MacroStatement* statement;
  Scope* scope;
};

namespace {

// Statements and expressions inside each other, through macro calls too: half a MiB of stack.
constexpr int kNestingMax = 8 * limits::kTemplateDepthMax;
constexpr size_t kTimeFormatBytesMax = 256;
constexpr size_t kNamesPerStep = 8;  // compared in about the time of a step

enum class Flow { kNext, kBreak, kContinue };

class Renderer {
 public:
  Renderer(const Program& program, int64_t unix_seconds)
      : program_(program), unix_seconds_(unix_seconds), scopes_(heap_) {}

  Result<std::string> run(const json::Value& variables);

 private:
  friend class FilteredWalk;

  Result<void> load_outside(const json::Value& variables);
  Result<void> load_literals();

  Result<Flow> run_body(const Body& body, Scope* scope);
  Result<Flow> run_statement(const Statement& statement, Scope* scope);
  Result<Flow> run(const TextStatement& text, Scope* scope);
  Result<Flow> run(const OutputStatement& output, Scope* scope);
  Result<Flow> run(const IfStatement& statement, Scope* scope);
  Result<Flow> run(const ForStatement& loop, Scope* scope);
  Result<Flow> run(const SetStatement& set, Scope* scope);
  Result<Flow> run(const SetBlockStatement& block, Scope* scope);
  Result<Flow> run(const MacroStatement& macro, Scope* scope);
  Result<Flow> run(const BreakStatement&, Scope*) { return Flow::kBreak; }
  Result<Flow> run(const ContinueStatement&, Scope*) { return Flow::kContinue; }
  Result<Flow> run_scoped(const Scoped& scoped, Scope* around);
  Result<Value> make_loop(const ForStatement& loop, Scope* scope);
  Result<Flow> run_item(const ForStatement& loop, const Value& loop_value, const Value& item,
                        Scope* scope);
  Result<std::string> capture(const Scoped& scoped, Scope* scope);
  Result<void> assign(const Target& target, const Value& value, Scope* scope);
  Result<void> assign_parts(const Target& target, const Value& value, Scope* scope);
  Result<Value> value_of(const Target& target, Scope* scope);
  Result<void> append(const Value& value);
  void leave_unset(const Scoped& scoped, Scope* scope);

  Result<Value> eval(const Expr& expr, Scope* scope);
  Result<Value> eval(const LiteralExpr& literal, Scope*) { return literals_[literal.index]; }
  Result<Value> eval(const NameExpr& name, Scope* scope) { return find(name.name, scope); }
  Result<Value> eval(const SequenceExpr& sequence, Scope* scope);
  Result<Value> eval(const DictExpr& dict, Scope* scope);
  Result<Value> eval(const ChainExpr& chain, Scope* scope);
  Result<Value> eval(const SignExpr& sign, Scope* scope);
  Result<Value> eval(const NotExpr& negation, Scope* scope);
  Result<Value> eval(const ArithmeticExpr& arithmetic, Scope* scope);
  Result<Value> eval(const CompareExpr& compare, Scope* scope);
  Result<Value> eval(const ConcatExpr& concat, Scope* scope);
  Result<Value> eval(const LogicExpr& logic, Scope* scope);
  Result<Value> eval(const ConditionalExpr& conditional, Scope* scope);

  Result<Value> follow(const AttributeLink& link, const Value& value, Scope* scope);
  Result<Value> follow(const ItemLink& link, const Value& value, Scope* scope);
  Result<Value> follow(const SliceLink& link, const Value& value, Scope* scope);
  Result<Value> follow(const CallLink& link, const Value& value, Scope* scope);
  Result<Value> follow(const FilterLink& link, const Value& value, Scope* scope);
  Result<Value> follow(const TestLink& link, const Value& value, Scope* scope);

  Result<Value> find(Symbol name, Scope* scope);
  Result<Arguments> eval_arguments(const CallArguments& arguments, Scope* scope);
  Result<Value> call(const Value& callee, const Arguments& arguments);
  Result<Value> call_macro(const MacroObject& macro, const Arguments& arguments);
  Result<void> bind_parameters(const MacroStatement& macro, const Arguments& arguments,
                               Scope* scope);
  Result<Value> call_function(Function function, const Arguments& arguments);
  Result<Value> make_namespace(const Arguments& arguments);
  Result<Value> make_range(const Arguments& arguments);
  Result<Value> raise(const Arguments& arguments);
  Result<Value> format_time(const Arguments& arguments);

  // Counts a level while it lives.
  class Level {
   public:
    explicit Level(int& depth) : depth_(depth) { ++depth_; }
    ~Level() { --depth_; }
    Level(const Level&) = delete;
    Level& operator=(const Level&) = delete;

   private:
    int& depth_;
  };
  Result<void> check_depth() const {
    if (depth_ < kNestingMax) return {};
    return refuse(fmt::format("the template nests calls more than {} deep", kNestingMax));
  }

  const Program& program_;
  int64_t unix_seconds_;
  Heap heap_;  // before everything that holds values
  ScopePool scopes_;
  std::vector<std::unique_ptr<MacroObject>> macros_;
  std::vector<Value> outside_;   // by symbol: variables of the request, global functions
  std::vector<Value> literals_;  // by index
  Symbol loop_ = UINT32_MAX;
  std::string* out_ = nullptr;
  size_t n_written_ = 0;  // bytes in all outputs that are being made
  int depth_ = 0;
  bool is_explained_ = false;  // the refusal names its line, or is the template's own message
};

// What a for statement with an "if" walks: the items for which the filter holds.
class FilteredWalk : public IteratorObject {
 public:
  FilteredWalk(Renderer& renderer, const ForStatement& loop, Scope* scope, Ref<IteratorObject> walk)
      : renderer_(renderer), loop_(loop), scope_(scope), walk_(std::move(walk)) {}

  Result<bool> next(Value& out) override {
    while (true) {
      ROOST_TRY_DO(renderer_.heap_.spend(1));
      Value item;
      ROOST_TRY(const bool has_more, walk_->next(item));
      if (!has_more) return false;
      ROOST_TRY(Scope * scope, renderer_.scopes_.open(scope_));
      const ScopePool::Lease lease(renderer_.scopes_, scope);
      ROOST_TRY_DO(renderer_.assign(loop_.target, item, scope));
      ROOST_TRY(const Value holds, renderer_.eval(*loop_.filter, scope));
      if (!truth(holds)) continue;
      ROOST_TRY(out, renderer_.value_of(loop_.target, scope));
      return true;
    }
  }

 private:
  Renderer& renderer_;
  const ForStatement& loop_;
  Scope* scope_;
  Ref<IteratorObject> walk_;
};

Result<std::string> Renderer::run(const json::Value& variables) {
  ROOST_TRY_DO(load_outside(variables));
  ROOST_TRY_DO(load_literals());
  std::string out;
  out_ = &out;
  ROOST_TRY_DO(run_scoped(program_.root, nullptr));
  return out;
}

Result<void> Renderer::load_outside(const json::Value& variables) {
  static constexpr std::pair<std::string_view, Function> kFunctions[] = {
      {"namespace", Function::kNamespace},
      {"range", Function::kRange},
      {"raise_exception", Function::kRaiseException},
      {"strftime_now", Function::kStrftimeNow}};
  for (Symbol i = 0; i < program_.symbols.size(); ++i) {
    const std::string& name = program_.symbols[i];
    Value value;
    for (const auto& [function_name, function] : kFunctions)
      if (name == function_name) value = Value::function(function);
    if (const json::Value* variable = variables.find(name)) {
      ROOST_TRY(value, heap_.from_json(*variable));
    }
    if (name == "loop") loop_ = i;
    outside_.push_back(std::move(value));
  }
  return {};
}

Result<void> Renderer::load_literals() {
  for (const Literal& literal : program_.literals) {
    Value value = Value::none();
    if (const auto* b = std::get_if<bool>(&literal)) value = Value::boolean(*b);
    if (const auto* i = std::get_if<int64_t>(&literal)) value = Value::integer(*i);
    if (const auto* d = std::get_if<double>(&literal)) value = Value::real(*d);
    if (const auto* text = std::get_if<std::string>(&literal)) {
      ROOST_TRY(value, heap_.string(*text));
    }
    literals_.push_back(std::move(value));
  }
  return {};
}

Result<Flow> Renderer::run_body(const Body& body, Scope* scope) {
  ROOST_TRY_DO(check_depth());
  const Level level(depth_);
  for (const Statement& statement : body) {
    ROOST_TRY(const Flow flow, run_statement(statement, scope));
    if (flow != Flow::kNext) return flow;
  }
  return Flow::kNext;
}

// The innermost statement adds its line to a refusal.
Result<Flow> Renderer::run_statement(const Statement& statement, Scope* scope) {
  ROOST_TRY_DO(heap_.spend(1));
  Result<Flow> flow = std::visit([&](const auto& is) { return run(is, scope); }, statement.is);
  if (flow || is_explained_) return flow;
  is_explained_ = true;
  Error error = std::move(flow).error();
  error.detail = fmt::format("line {}: {}", statement.line, error.detail);
  return error;
}

Result<void> Renderer::append(const Value& value) {
  const size_t n_before = out_->size();
  ROOST_TRY_DO(append_text(heap_, value, *out_));
  n_written_ += out_->size() - n_before;
  return heap_.check_text_size(n_written_);
}

Result<Flow> Renderer::run(const TextStatement& text, Scope*) {
  ROOST_TRY_DO(heap_.spend_bytes(text.text.size()));
  *out_ += text.text;
  n_written_ += text.text.size();
  ROOST_TRY_DO(heap_.check_text_size(n_written_));
  return Flow::kNext;
}

Result<Flow> Renderer::run(const OutputStatement& output, Scope* scope) {
  ROOST_TRY(const Value value, eval(*output.value, scope));
  ROOST_TRY_DO(append(value));
  return Flow::kNext;
}

Result<Flow> Renderer::run(const IfStatement& statement, Scope* scope) {
  for (const auto& [condition, body] : statement.branches) {
    ROOST_TRY(const Value holds, eval(*condition, scope));
    if (truth(holds)) return run_body(body, scope);
  }
  return run_body(statement.otherwise, scope);
}

void Renderer::leave_unset(const Scoped& scoped, Scope* scope) {
  for (const Symbol name : scoped.unset) scope->set(name, Value());
}

Result<Flow> Renderer::run_scoped(const Scoped& scoped, Scope* around) {
  ROOST_TRY(Scope * scope, scopes_.open(around));
  const ScopePool::Lease lease(scopes_, scope);
  leave_unset(scoped, scope);
  return run_body(scoped.body, scope);
}

Result<Value> Renderer::make_loop(const ForStatement& loop, Scope* scope) {
  ROOST_TRY(const Value iterable, eval(*loop.iterable, scope));
  ROOST_TRY(Ref<IteratorObject> walk, iterate(heap_, iterable));
  if (loop.filter) {
    auto filtered = std::make_unique<FilteredWalk>(*this, loop, scope, std::move(walk));
    filtered->depth = iterable.depth() + 2;
    ROOST_TRY(const Ref<FilteredWalk> ref, heap_.adopt(std::move(filtered)));
    walk = Ref<IteratorObject>(ref.get());
  }
  auto object = std::make_unique<LoopObject>(iterable, std::move(walk));
  object->depth = iterable.depth() + 3;
  object->is_filtered = loop.filter != nullptr;
  ROOST_TRY(const Ref<LoopObject> ref, heap_.adopt(std::move(object)));
  return Value(Kind::kLoop, Ref<Object>(ref.get()));
}

// An "else" runs unless an item got to the end of the body: a loop that only ever broke off or
// continued counts as one without items.
Result<Flow> Renderer::run(const ForStatement& loop, Scope* scope) {
  ROOST_TRY(const Value value, make_loop(loop, scope));
  auto& object = *static_cast<LoopObject*>(value.object().get());
  // The value may outlive the loop in a namespace; the filter's scope does not.
  struct Ending {
    LoopObject& object;
    ~Ending() { object.is_over = true; }
  } ending{object};
  bool has_completed = false;
  while (true) {
    ROOST_TRY_DO(heap_.spend(1));
    ROOST_TRY(const bool has_more, object.advance());
    if (!has_more) break;
    ROOST_TRY(const Flow flow, run_item(loop, value, object.current, scope));
    if (flow == Flow::kBreak) break;
    has_completed |= flow == Flow::kNext;
  }
  if (has_completed || loop.otherwise.body.empty()) return Flow::kNext;
  return run_scoped(loop.otherwise, scope);
}

Result<Flow> Renderer::run_item(const ForStatement& loop, const Value& loop_value,
                                const Value& item, Scope* around) {
  ROOST_TRY(Scope * scope, scopes_.open(around));
  const ScopePool::Lease lease(scopes_, scope);
  if (loop_ != UINT32_MAX) scope->set(loop_, loop_value);
  ROOST_TRY_DO(assign(loop.target, item, scope));
  leave_unset(loop.body, scope);
  return run_body(loop.body.body, scope);
}

Result<Flow> Renderer::run(const SetStatement& set, Scope* scope) {
  ROOST_TRY(const Value value, eval(*set.value, scope));
  ROOST_TRY_DO(assign(set.target, value, scope));
  return Flow::kNext;
}

Result<std::string> Renderer::capture(const Scoped& scoped, Scope* scope) {
  std::string text;
  std::string* const outer = std::exchange(out_, &text);
  leave_unset(scoped, scope);
  const Result<Flow> flow = run_body(scoped.body, scope);
  out_ = outer;
  if (!flow) return flow.error();
  n_written_ -= text.size();
  return text;
}

Result<Flow> Renderer::run(const SetBlockStatement& block, Scope* around) {
  ROOST_TRY(Scope * scope, scopes_.open(around));
  const ScopePool::Lease lease(scopes_, scope);
  ROOST_TRY(std::string text, capture(block.body, scope));
  ROOST_TRY(Value value, heap_.string(std::move(text)));
  for (const Link& link : block.filters) {
    ROOST_TRY(value, follow(std::get<FilterLink>(link.is), value, scope));
  }
  ROOST_TRY_DO(assign(block.target, value, around));
  return Flow::kNext;
}

Result<Flow> Renderer::run(const MacroStatement& macro, Scope* scope) {
  ROOST_TRY_DO(heap_.take(sizeof(MacroObject)));
  macros_.push_back(std::make_unique<MacroObject>(MacroObject{&macro, scope}));
  keep(scope);
  scope->set(macro.name, Value::of(macros_.back().get()));
  return Flow::kNext;
}

Result<void> Renderer::assign(const Target& target, const Value& value, Scope* scope) {
  if (target.is_tuple) return assign_parts(target, value, scope);
  if (target.attribute.empty()) {
    ROOST_TRY_DO(heap_.spend(scope->bindings.size() / kNamesPerStep));
    scope->set(target.name, value);
    return {};
  }
  ROOST_TRY(const Value holder, find(target.name, scope));
  if (!holder.is(Kind::kNamespace))
    return refuse(fmt::format("'{}' is no namespace", program_.symbols[target.name]));
  auto& attributes = holder.as_namespace()->attributes;
  if (!attributes.contains(target.attribute))
    ROOST_TRY_DO(heap_.take(sizeof(Value) + target.attribute.size()));
  attributes[target.attribute] = value;
  return {};
}

Result<void> Renderer::assign_parts(const Target& target, const Value& value, Scope* scope) {
  ROOST_TRY(const Ref<IteratorObject> walk, iterate(heap_, value));
  std::vector<Value> parts;
  while (parts.size() <= target.parts.size()) {
    Value part;
    ROOST_TRY(const bool has_more, walk->next(part));
    if (!has_more) break;
    parts.push_back(std::move(part));
  }
  if (parts.size() != target.parts.size())
    return refuse(fmt::format("a value does not have {} parts", target.parts.size()));
  for (size_t i = 0; i < parts.size(); ++i) ROOST_TRY_DO(assign(target.parts[i], parts[i], scope));
  return {};
}

// What stands in a target after an assignment, several parts as a tuple.
Result<Value> Renderer::value_of(const Target& target, Scope* scope) {
  if (!target.is_tuple) return find(target.name, scope);
  std::vector<Value> parts;
  for (const Target& part : target.parts) {
    ROOST_TRY(Value value, value_of(part, scope));
    parts.push_back(std::move(value));
  }
  return heap_.tuple(std::move(parts));
}

Result<Value> Renderer::find(Symbol name, Scope* scope) {
  for (; scope != nullptr; scope = scope->around) {
    ROOST_TRY_DO(heap_.spend(scope->bindings.size() / kNamesPerStep));
    if (const Value* value = scope->find(name)) return *value;
  }
  return outside_[name];
}

Result<Value> Renderer::eval(const Expr& expr, Scope* scope) {
  ROOST_TRY_DO(check_depth());
  ROOST_TRY_DO(heap_.spend(1));
  const Level level(depth_);
  return std::visit([&](const auto& is) { return eval(is, scope); }, expr.is);
}

Result<Value> Renderer::eval(const SequenceExpr& sequence, Scope* scope) {
  std::vector<Value> items;
  for (const ExprPtr& expr : sequence.items) {
    ROOST_TRY(Value item, eval(*expr, scope));
    items.push_back(std::move(item));
  }
  return heap_.sequence(sequence.is_tuple ? Kind::kTuple : Kind::kList, std::move(items));
}

Result<Value> Renderer::eval(const DictExpr& dict, Scope* scope) {
  std::vector<Entry> entries;
  for (const auto& [key_expr, value_expr] : dict.entries) {
    ROOST_TRY(Value key, eval(*key_expr, scope));
    ROOST_TRY(Value value, eval(*value_expr, scope));
    if (!is_hashable(key)) return refuse(fmt::format("a '{}' as a key", type_name(key)));
    entries.emplace_back(std::move(key), std::move(value));
  }
  return heap_.dict(std::move(entries));
}

Result<Value> Renderer::eval(const ChainExpr& chain, Scope* scope) {
  ROOST_TRY(Value value, eval(*chain.base, scope));
  const auto* name = std::get_if<NameExpr>(&chain.base->is);
  for (size_t i = 0; i < chain.links.size(); ++i) {
    const auto& link = chain.links[i].is;
    const bool needs_value =
        !std::holds_alternative<FilterLink>(link) && !std::holds_alternative<TestLink>(link);
    if (i == 0 && name != nullptr && needs_value && value.is(Kind::kUndefined))
      return refuse(fmt::format("'{}' is undefined", program_.symbols[name->name]));
    ROOST_TRY(value, std::visit([&](const auto& is) { return follow(is, value, scope); }, link));
  }
  return value;
}

Result<Value> Renderer::eval(const SignExpr& sign, Scope* scope) {
  ROOST_TRY(const Value value, eval(*sign.operand, scope));
  return apply_sign(sign.is_minus, value);
}

Result<Value> Renderer::eval(const NotExpr& negation, Scope* scope) {
  ROOST_TRY(const Value value, eval(*negation.operand, scope));
  return Value::boolean(!truth(value));
}

Result<Value> Renderer::eval(const ArithmeticExpr& arithmetic, Scope* scope) {
  ROOST_TRY(Value value, eval(*arithmetic.first, scope));
  for (const auto& [op, expr] : arithmetic.rest) {
    ROOST_TRY(const Value operand, eval(*expr, scope));
    ROOST_TRY(value, compute(heap_, op, value, operand));
  }
  return value;
}

Result<Value> Renderer::eval(const CompareExpr& compare, Scope* scope) {
  ROOST_TRY(Value left, eval(*compare.first, scope));
  for (const auto& [op, expr] : compare.rest) {
    ROOST_TRY(Value right, eval(*expr, scope));
    ROOST_TRY(const bool is_so, holds(heap_, op, left, right));
    if (!is_so) return Value::boolean(false);
    left = std::move(right);
  }
  return Value::boolean(true);
}

Result<Value> Renderer::eval(const ConcatExpr& concat, Scope* scope) {
  std::vector<Value> parts;
  for (const ExprPtr& expr : concat.parts) {
    ROOST_TRY(Value part, eval(*expr, scope));
    parts.push_back(std::move(part));
  }
  std::string text;
  for (const Value& part : parts) ROOST_TRY_DO(append_text(heap_, part, text));
  return heap_.string(std::move(text));
}

Result<Value> Renderer::eval(const LogicExpr& logic, Scope* scope) {
  Value value;
  for (const ExprPtr& expr : logic.operands) {
    ROOST_TRY(value, eval(*expr, scope));
    if (truth(value) != logic.is_and) return value;
  }
  return value;
}

Result<Value> Renderer::eval(const ConditionalExpr& conditional, Scope* scope) {
  ROOST_TRY(const Value holds, eval(*conditional.condition, scope));
  if (truth(holds)) return eval(*conditional.then, scope);
  if (conditional.otherwise) return eval(*conditional.otherwise, scope);
  return Value();
}

Result<Value> Renderer::follow(const AttributeLink& link, const Value& value, Scope*) {
  if (value.is(Kind::kLoop)) return loop_attribute(value, link.name);
  return get_attribute(heap_, value, link.name);
}

Result<Value> Renderer::follow(const ItemLink& link, const Value& value, Scope* scope) {
  ROOST_TRY(const Value index, eval(*link.index, scope));
  if (value.is(Kind::kLoop) && index.is_string()) return loop_attribute(value, index.text());
  return get_item(heap_, value, index);
}

Result<Value> Renderer::follow(const SliceLink& link, const Value& value, Scope* scope) {
  Value parts[3];
  const ExprPtr* exprs[] = {&link.start, &link.stop, &link.step};
  for (int i = 0; i < 3; ++i) {
    parts[i] = Value::none();
    if (!*exprs[i]) continue;
    ROOST_TRY(parts[i], eval(**exprs[i], scope));
  }
  return get_slice(heap_, value, &parts[0], &parts[1], &parts[2]);
}

Result<Value> Renderer::follow(const CallLink& link, const Value& value, Scope* scope) {
  ROOST_TRY(const Arguments arguments, eval_arguments(link.arguments, scope));
  return call(value, arguments);
}

Result<Value> Renderer::follow(const FilterLink& link, const Value& value, Scope* scope) {
  ROOST_TRY(const Arguments arguments, eval_arguments(link.arguments, scope));
  return apply_filter(heap_, *link.filter, value, arguments);
}

Result<Value> Renderer::follow(const TestLink& link, const Value& value, Scope* scope) {
  ROOST_TRY(const Arguments arguments, eval_arguments(link.arguments, scope));
  ROOST_TRY(const bool holds, apply_test(heap_, *link.test, value, arguments));
  return Value::boolean(holds != link.is_negated);
}

Result<Arguments> Renderer::eval_arguments(const CallArguments& arguments, Scope* scope) {
  Arguments values;
  for (const ExprPtr& expr : arguments.positional) {
    ROOST_TRY(Value value, eval(*expr, scope));
    values.positional.push_back(std::move(value));
  }
  for (const auto& [name, expr] : arguments.named) {
    ROOST_TRY(Value value, eval(*expr, scope));
    values.named.emplace_back(name, std::move(value));
  }
  return values;
}

Result<Value> Renderer::call(const Value& callee, const Arguments& arguments) {
  if (callee.is(Kind::kMacro)) return call_macro(*callee.as_macro(), arguments);
  if (callee.is(Kind::kFunction)) return call_function(callee.as_function(), arguments);
  if (callee.is(Kind::kMethod)) {
    const MethodObject& method = callee.method();
    if (method.self.is(Kind::kLoop)) return loop_cycle(method.self, arguments);
    return call_method(heap_, callee, arguments);
  }
  return refuse(fmt::format("a '{}' is called", type_name(callee)));
}

Result<Value> Renderer::call_macro(const MacroObject& macro, const Arguments& arguments) {
  ROOST_TRY_DO(check_depth());
  const Level level(depth_);
  ROOST_TRY(Scope * scope, scopes_.open(macro.scope));
  const ScopePool::Lease lease(scopes_, scope);
  ROOST_TRY_DO(bind_parameters(*macro.statement, arguments, scope));
  ROOST_TRY(std::string text, capture(macro.statement->body, scope));
  return heap_.string(std::move(text));
}

// Given arguments first: a default may use them.
Result<void> Renderer::bind_parameters(const MacroStatement& macro, const Arguments& arguments,
                                       Scope* scope) {
  std::vector<std::string_view> names;
  for (const Symbol parameter : macro.parameters) names.push_back(program_.symbols[parameter]);
  ROOST_TRY(const std::vector<const Value*> bound, bind_arguments(arguments, names));
  const size_t n_required = names.size() - macro.defaults.size();
  for (size_t i = 0; i < names.size(); ++i)
    scope->set(macro.parameters[i], bound[i] != nullptr ? *bound[i] : Value());
  for (size_t i = n_required; i < names.size(); ++i) {
    if (bound[i] != nullptr) continue;
    ROOST_TRY(const Value value, eval(*macro.defaults[i - n_required], scope));
    scope->set(macro.parameters[i], value);
  }
  return {};
}

Result<Value> Renderer::call_function(Function function, const Arguments& arguments) {
  switch (function) {
    case Function::kNamespace:
      return make_namespace(arguments);
    case Function::kRange:
      return make_range(arguments);
    case Function::kRaiseException:
      return raise(arguments);
    case Function::kStrftimeNow:
      return format_time(arguments);
  }
  return refuse("an unknown function");
}

Result<Value> Renderer::make_namespace(const Arguments& arguments) {
  ROOST_TRY(NamespaceObject * object, heap_.new_namespace());
  if (arguments.positional.size() > 1) return refuse("namespace takes one dict");
  if (!arguments.positional.empty()) {
    const Value& dict = arguments.positional[0];
    if (!dict.is(Kind::kDict)) return refuse("namespace takes a dict");
    for (const auto& [key, value] : dict.dict().entries) {
      if (!key.is_string()) return refuse("namespace takes a dict with strings as keys");
      ROOST_TRY_DO(heap_.take(sizeof(Value) + key.text().size()));
      object->attributes[key.text()] = value;
    }
  }
  for (const auto& [name, value] : arguments.named) {
    ROOST_TRY_DO(heap_.take(sizeof(Value) + name.size()));
    object->attributes[name] = value;
  }
  return Value::of(object);
}

Result<Value> Renderer::make_range(const Arguments& arguments) {
  const size_t n = arguments.positional.size();
  if (n < 1 || n > 3 || !arguments.named.empty()) return refuse("range takes 1 to 3 integers");
  int64_t numbers[3] = {0, 0, 1};
  for (size_t i = 0; i < n; ++i) {
    ROOST_TRY(numbers[i], int_argument(&arguments.positional[i], 0));
  }
  if (n == 1) return heap_.range(0, numbers[0], 1);
  if (numbers[2] == 0) return refuse("range with a step of zero");
  return heap_.range(numbers[0], numbers[1], numbers[2]);
}

// The message goes to the client as it is.
Result<Value> Renderer::raise(const Arguments& arguments) {
  ROOST_TRY(const auto bound, bind_arguments(arguments, {"message"}));
  if (bound[0] == nullptr) return refuse("raise_exception takes a message");
  ROOST_TRY(std::string message, to_text(heap_, *bound[0]));
  is_explained_ = true;
  return refuse(std::move(message));
}

Result<Value> Renderer::format_time(const Arguments& arguments) {
  ROOST_TRY(const auto bound, bind_arguments(arguments, {"format"}));
  if (bound[0] == nullptr || !bound[0]->is_string()) return refuse("strftime_now takes a format");
  const std::string& format = bound[0]->text();
  if (format.size() > kTimeFormatBytesMax) return refuse("a time format is too long");
  const auto seconds = static_cast<time_t>(unix_seconds_);
  tm when{};
  if (gmtime_r(&seconds, &when) == nullptr) return refuse("the time is out of range");
  std::string out;
  for (size_t i = 0; i < format.size(); ++i) {
    if (format[i] != '%') {
      out += format[i];
      continue;
    }
    ++i;
    // Those that C and Python agree on and that need no time zone.
    const std::string_view known = "aAbBcCdDeFgGhHIjmMnpRStTuUVwWxXyY%";
    if (i == format.size() || known.find(format[i]) == std::string_view::npos)
      return refuse(fmt::format("the time format '{}'", format));
    const char directive[] = {'%', format[i], '\0'};
    char text[64];
    out.append(text, strftime(text, sizeof text, directive, &when));
  }
  return heap_.string(std::move(out));
}

}  // namespace

Result<std::string> render(const Program& program, const json::Value& variables,
                           int64_t unix_seconds) {
  return Renderer(program, unix_seconds).run(variables);
}

}  // namespace roost::jinja
