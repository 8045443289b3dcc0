#include "text/template_tests.h"

#include <fmt/core.h>

#include "text/template_operators.h"

namespace roost::jinja {
namespace {

using Args = std::vector<Value>;

template <Comparison op>
Result<bool> holds_for(Heap& heap, const Value& value, const Args& args) {
  return holds(heap, op, value, args[0]);
}

template <Kind kind>
Result<bool> is_kind(Heap&, const Value& value, const Args&) {
  return value.is(kind);
}

Result<bool> is_defined(Heap&, const Value& value, const Args&) {
  return !value.is(Kind::kUndefined);
}

Result<bool> is_number(Heap&, const Value& value, const Args&) {
  return value.is_integral() || value.is(Kind::kBigInt) || value.is(Kind::kFloat);
}

Result<bool> is_integer(Heap&, const Value& value, const Args&) {
  return value.is(Kind::kInt) || value.is(Kind::kBigInt);
}

template <bool b>
Result<bool> is_boolean_of(Heap&, const Value& value, const Args&) {
  return value.is(Kind::kBool) && truth(value) == b;
}

// What has a length and items.
Result<bool> is_sequence(Heap&, const Value& value, const Args&) {
  return length(value).has_value() && !value.is(Kind::kDictView);
}

Result<bool> is_iterable(Heap&, const Value& value, const Args&) {
  return length(value).has_value() || value.is(Kind::kIterator) || value.is(Kind::kLoop);
}

Result<bool> is_rest(Heap& heap, const Value& value, const Value& divisor, int64_t rest) {
  ROOST_TRY(const Value remainder, compute(heap, Arithmetic::kModulo, value, divisor));
  return equals(heap, remainder, Value::integer(rest));
}

Result<bool> is_divisible(Heap& heap, const Value& value, const Args& args) {
  return is_rest(heap, value, args[0], 0);
}

Result<bool> is_odd(Heap& heap, const Value& value, const Args&) {
  return is_rest(heap, value, Value::integer(2), 1);
}

Result<bool> is_even(Heap& heap, const Value& value, const Args&) {
  return is_rest(heap, value, Value::integer(2), 0);
}

constexpr Test kTests[] = {
    {"defined", 0, is_defined},
    {"undefined", 0, is_kind<Kind::kUndefined>},
    {"none", 0, is_kind<Kind::kNone>},
    {"string", 0, is_kind<Kind::kString>},
    {"mapping", 0, is_kind<Kind::kDict>},
    {"sequence", 0, is_sequence},
    {"iterable", 0, is_iterable},
    {"boolean", 0, is_kind<Kind::kBool>},
    {"number", 0, is_number},
    {"integer", 0, is_integer},
    {"float", 0, is_kind<Kind::kFloat>},
    {"true", 0, is_boolean_of<true>},
    {"false", 0, is_boolean_of<false>},
    {"divisibleby", 1, is_divisible},
    {"odd", 0, is_odd},
    {"even", 0, is_even},
    {"in", 1, holds_for<Comparison::kIn>},
    {"eq", 1, holds_for<Comparison::kEqual>},
    {"equalto", 1, holds_for<Comparison::kEqual>},
    {"==", 1, holds_for<Comparison::kEqual>},
    {"ne", 1, holds_for<Comparison::kNotEqual>},
    {"!=", 1, holds_for<Comparison::kNotEqual>},
    {"lt", 1, holds_for<Comparison::kLess>},
    {"lessthan", 1, holds_for<Comparison::kLess>},
    {"<", 1, holds_for<Comparison::kLess>},
    {"le", 1, holds_for<Comparison::kLessEqual>},
    {"<=", 1, holds_for<Comparison::kLessEqual>},
    {"gt", 1, holds_for<Comparison::kGreater>},
    {"greaterthan", 1, holds_for<Comparison::kGreater>},
    {">", 1, holds_for<Comparison::kGreater>},
    {"ge", 1, holds_for<Comparison::kGreaterEqual>},
    {">=", 1, holds_for<Comparison::kGreaterEqual>},
};

}  // namespace

const Test* find_test(std::string_view name) {
  for (const Test& test : kTests)
    if (test.name == name) return &test;
  return nullptr;
}

Result<bool> apply_test(Heap& heap, const Test& test, const Value& value,
                        const Arguments& arguments) {
  ROOST_TRY_DO(heap.spend(1));
  if (!arguments.named.empty() || arguments.positional.size() != test.n_arguments)
    return refuse(fmt::format("the test '{}' takes {} arguments", test.name, test.n_arguments));
  return test.run(heap, value, arguments.positional);
}

}  // namespace roost::jinja
