#include "text/template_operators.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include <fmt/core.h>

#include "text/python_text.h"

namespace roost::jinja {
namespace {

constexpr int64_t kStepMax = int64_t{1} << 60;  // of a slice: farther than any text is long
constexpr uint64_t kExactInDouble = uint64_t{1} << 53;

bool is_number(const Value& value) {
  return value.is_integral() || value.is(Kind::kFloat);
}
bool is_sequence(const Value& value) {
  return value.is(Kind::kList) || value.is(Kind::kTuple);
}

double to_double(const Value& value) {
  return value.is(Kind::kFloat) ? value.as_float() : static_cast<double>(value.as_int());
}

uint64_t magnitude(int64_t i) {
  return i < 0 ? -static_cast<uint64_t>(i) : static_cast<uint64_t>(i);
}

Error too_large() {
  return refuse("an integer beyond 64 bits");
}
Error zero_division() {
  return refuse("division by zero");
}

std::string_view symbol_of(Arithmetic op) {
  static constexpr std::string_view kSymbols[] = {"+", "-", "*", "/", "//", "%", "**"};
  return kSymbols[static_cast<size_t>(op)];
}

Error no_operator(Arithmetic op, const Value& a, const Value& b) {
  return refuse(
      fmt::format("'{}' between '{}' and '{}'", symbol_of(op), type_name(a), type_name(b)));
}

Result<Value> power_of_ints(int64_t base, int64_t exponent) {
  if (exponent < 0) {
    if (base == 0) return zero_division();
    return Value::real(std::pow(static_cast<double>(base), static_cast<double>(exponent)));
  }
  int64_t result = 1;
  while (exponent > 0) {
    if (exponent % 2 == 1 && __builtin_mul_overflow(result, base, &result)) return too_large();
    exponent /= 2;
    if (exponent > 0 && __builtin_mul_overflow(base, base, &base)) return too_large();
  }
  return Value::integer(result);
}

// Rounds down and gives the rest the sign of the divisor, as Python does.
Result<Value> divide_ints(Arithmetic op, int64_t a, int64_t b) {
  if (b == 0) return zero_division();
  if (op == Arithmetic::kDivide) {
    // Beyond, the division of doubles would round twice.
    if (std::max(magnitude(a), magnitude(b)) > kExactInDouble)
      return refuse("'/' of integers beyond 53 bits");
    return Value::real(static_cast<double>(a) / static_cast<double>(b));
  }
  if (b == -1) {
    if (op == Arithmetic::kModulo) return Value::integer(0);
    if (a == std::numeric_limits<int64_t>::min()) return too_large();
    return Value::integer(-a);
  }
  int64_t quotient = a / b;
  int64_t rest = a % b;
  if (rest != 0 && (rest < 0) != (b < 0)) {
    quotient -= 1;
    rest += b;
  }
  return Value::integer(op == Arithmetic::kFloorDivide ? quotient : rest);
}

Result<Value> compute_ints(Arithmetic op, int64_t a, int64_t b) {
  int64_t result = 0;
  bool is_over = false;
  switch (op) {
    case Arithmetic::kAdd:
      is_over = __builtin_add_overflow(a, b, &result);
      break;
    case Arithmetic::kSubtract:
      is_over = __builtin_sub_overflow(a, b, &result);
      break;
    case Arithmetic::kMultiply:
      is_over = __builtin_mul_overflow(a, b, &result);
      break;
    case Arithmetic::kPower:
      return power_of_ints(a, b);
    default:
      return divide_ints(op, a, b);
  }
  if (is_over) return too_large();
  return Value::integer(result);
}

Result<Value> divide_floats(Arithmetic op, double a, double b) {
  if (b == 0) return zero_division();
  if (op == Arithmetic::kDivide) return Value::real(a / b);
  double rest = std::fmod(a, b);
  double quotient = (a - rest) / b;
  if (rest != 0) {
    if ((b < 0) != (rest < 0)) {
      rest += b;
      quotient -= 1;
    }
  } else {
    rest = std::copysign(0.0, b);
  }
  if (op == Arithmetic::kModulo) return Value::real(rest);
  if (quotient == 0) return Value::real(std::copysign(0.0, a / b));
  const double floor = std::floor(quotient);
  return Value::real(quotient - floor > 0.5 ? floor + 1 : floor);
}

Result<Value> power_of_floats(double a, double b) {
  if (a == 0 && b < 0) return zero_division();
  if (a < 0 && std::isfinite(a) && std::isfinite(b) && std::floor(b) != b)
    return refuse("'**' gives a complex number");
  const double result = std::pow(a, b);
  if (std::isinf(result) && std::isfinite(a) && std::isfinite(b))
    return refuse("'**' gives a number that is too large");
  return Value::real(result);
}

Result<Value> compute_floats(Arithmetic op, double a, double b) {
  switch (op) {
    case Arithmetic::kAdd:
      return Value::real(a + b);
    case Arithmetic::kSubtract:
      return Value::real(a - b);
    case Arithmetic::kMultiply:
      return Value::real(a * b);
    case Arithmetic::kPower:
      return power_of_floats(a, b);
    default:
      return divide_floats(op, a, b);
  }
}

// What the markup of the template language does to text that is joined with it.
std::string escape(const std::string& text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '\'':
        out += "&#39;";
        break;
      case '"':
        out += "&#34;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

Result<Value> add_strings(Heap& heap, const Value& a, const Value& b) {
  ROOST_TRY_DO(heap.check_text_size(a.text().size() + b.text().size()));
  const bool is_markup = a.is_markup() || b.is_markup();
  std::string text;
  text.reserve(a.text().size() + b.text().size());
  text += is_markup && !a.is_markup() ? escape(a.text()) : a.text();
  text += is_markup && !b.is_markup() ? escape(b.text()) : b.text();
  ROOST_TRY(const Value sum, heap.string(std::move(text)));
  return sum.as_markup(is_markup);
}

Result<Value> repeat(Heap& heap, const Value& value, int64_t n) {
  const auto times = static_cast<uint64_t>(std::max<int64_t>(n, 0));
  uint64_t size = 0;
  if (value.is_string()) {
    const std::string& text = value.text();
    if (__builtin_mul_overflow(text.size(), times, &size)) size = SIZE_MAX;
    ROOST_TRY_DO(heap.check_text_size(size));
    std::string out;
    out.reserve(size);
    if (size > 0) out = text;
    // Doubling: the work is that of copying, however short the text is.
    while (out.size() < size) out.append(out, 0, std::min(out.size(), size - out.size()));
    ROOST_TRY(const Value repeated, heap.string(std::move(out)));
    return repeated.as_markup(value.is_markup());
  }
  if (__builtin_mul_overflow(value.items().size(), times, &size)) size = SIZE_MAX;
  ROOST_TRY_DO(heap.spend(size));
  std::vector<Value> items;
  for (uint64_t i = 0; i < times && !value.items().empty(); ++i)
    items.insert(items.end(), value.items().begin(), value.items().end());
  return heap.sequence(value.kind(), std::move(items));
}

bool can_repeat(const Value& value) {
  return value.is_string() || is_sequence(value);
}

Result<bool> contains_item(Heap& heap, const Value& container, const Value& item) {
  ROOST_TRY(const Ref<IteratorObject> iterator, iterate(heap, container));
  while (true) {
    Value candidate;
    ROOST_TRY(const bool has_more, iterator->next(candidate));
    if (!has_more) return false;
    ROOST_TRY(const bool is_equal, equals(heap, candidate, item));
    if (is_equal) return true;
  }
}

template <size_t n>
bool is_one_of(std::string_view name, const std::array<std::string_view, n>& names) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// The public attributes of Python's types: reading one gives the method, whatever items there are.
constexpr std::array<std::string_view, 47> kStringAttributes = {
    "capitalize",   "casefold",    "center",    "count",      "encode",       "endswith",
    "expandtabs",   "find",        "format",    "format_map", "index",        "isalnum",
    "isalpha",      "isascii",     "isdecimal", "isdigit",    "isidentifier", "islower",
    "isnumeric",    "isprintable", "isspace",   "istitle",    "isupper",      "join",
    "ljust",        "lower",       "lstrip",    "maketrans",  "partition",    "removeprefix",
    "removesuffix", "replace",     "rfind",     "rindex",     "rjust",        "rpartition",
    "rsplit",       "rstrip",      "split",     "splitlines", "startswith",   "strip",
    "swapcase",     "title",       "translate", "upper",      "zfill"};
constexpr std::array<std::string_view, 6> kDictAttributes = {"copy",  "fromkeys", "get",
                                                             "items", "keys",     "values"};
constexpr std::array<std::string_view, 3> kListAttributes = {"copy", "count", "index"};
constexpr std::array<std::string_view, 2> kTupleAttributes = {"count", "index"};
constexpr std::array<std::string_view, 12> kNumberAttributes = {
    "as_integer_ratio", "bit_count", "bit_length", "conjugate",  "denominator", "from_bytes",
    "fromhex",          "hex",       "imag",       "is_integer", "numerator",   "real"};
// Methods that change their object: the sandbox gives undefined for them.
constexpr std::array<std::string_view, 5> kDictChanges = {"clear", "pop", "popitem", "setdefault",
                                                          "update"};
constexpr std::array<std::string_view, 8> kListChanges = {"append", "clear",   "extend", "insert",
                                                          "pop",    "reverse", "remove", "sort"};

enum class Has { kNothing, kMethod, kUndefined, kOther };

Has python_attribute(const Value& value, std::string_view name) {
  switch (value.kind()) {
    case Kind::kString:
      return is_one_of(name, kStringAttributes) ? Has::kMethod : Has::kNothing;
    case Kind::kDict:
      if (is_one_of(name, kDictChanges)) return Has::kUndefined;
      return is_one_of(name, kDictAttributes) ? Has::kMethod : Has::kNothing;
    case Kind::kList:
      if (is_one_of(name, kListChanges)) return Has::kUndefined;
      return is_one_of(name, kListAttributes) ? Has::kMethod : Has::kNothing;
    case Kind::kTuple:
      return is_one_of(name, kTupleAttributes) ? Has::kMethod : Has::kNothing;
    case Kind::kBool:
    case Kind::kInt:
    case Kind::kBigInt:
    case Kind::kFloat:
      return is_one_of(name, kNumberAttributes) ? Has::kOther : Has::kNothing;
    case Kind::kRange:
    case Kind::kDictView:
    case Kind::kIterator:
    case Kind::kMacro:
    case Kind::kFunction:
      return Has::kOther;
    default:
      return Has::kNothing;
  }
}

// getattr(): nothing where Python has no such attribute.
Result<std::optional<Value>> find_attribute(Heap& heap, const Value& value, std::string_view name) {
  if (value.is(Kind::kNamespace)) {
    const auto& attributes = value.as_namespace()->attributes;
    const auto place = attributes.find(name);
    if (place == attributes.end()) return std::optional<Value>();
    return std::optional<Value>(place->second);
  }
  switch (python_attribute(value, name)) {
    case Has::kNothing:
      return std::optional<Value>();
    case Has::kUndefined:
      return std::optional<Value>(Value());
    case Has::kOther:
      return refuse(fmt::format("attribute '{}' of a '{}'", name, type_name(value)));
    case Has::kMethod:
      break;
  }
  ROOST_TRY(Value method, heap.method(value, name));
  return std::optional<Value>(std::move(method));
}

// An index counted from the end if negative; nothing if outside.
std::optional<size_t> place_of(int64_t index, size_t size) {
  const auto n = static_cast<int64_t>(size);
  if (index < -n || index >= n) return std::nullopt;
  return static_cast<size_t>(index < 0 ? index + n : index);
}

// value[index] where the type has it and the item exists.
Result<std::optional<Value>> find_item(Heap& heap, const Value& value, const Value& index) {
  const std::optional<Value> nothing;
  if (value.is(Kind::kDict)) {
    if (!is_hashable(index)) return nothing;
    ROOST_TRY(const Value* found, value.dict().find(heap, index));
    return found == nullptr ? nothing : std::optional<Value>(*found);
  }
  if (!index.is_integral()) return nothing;
  if (is_sequence(value)) {
    const auto place = place_of(index.as_int(), value.items().size());
    return place ? std::optional<Value>(value.items()[*place]) : nothing;
  }
  if (value.is(Kind::kRange)) {
    const RangeObject& range = value.range();
    const auto place = place_of(index.as_int(), static_cast<size_t>(range.n));
    if (!place) return nothing;
    return std::optional<Value>(
        Value::integer(range.start + static_cast<int64_t>(*place) * range.step));
  }
  if (!value.is_string()) return nothing;
  ROOST_TRY_DO(heap.spend_bytes(value.text().size()));
  const auto place = place_of(index.as_int(), count_points(value.text()));
  if (!place) return nothing;
  ROOST_TRY(Value point, heap.string(pick_points(value.text(), *place, 1, 1)));
  return std::optional<Value>(point.as_markup(value.is_markup()));
}

// The elements that a slice takes.
struct Picked {
  int64_t first = 0, last = 0, step = 1, n = 0;  // last is not taken
};

Result<int64_t> slice_bound(const Value* bound, int64_t otherwise, int64_t size, int64_t lowest,
                            int64_t highest) {
  if (is_absent_or_none(bound)) return otherwise;
  if (!bound->is_integral())
    return refuse(fmt::format("a slice bound is a '{}'", type_name(*bound)));
  int64_t place = bound->as_int();
  if (place < 0) place += size;
  return std::clamp(place, lowest, highest);
}

Result<Picked> pick(int64_t size, const Value* start, const Value* stop, const Value* step) {
  Picked picked;
  if (!is_absent_or_none(step)) {
    if (!step->is_integral())
      return refuse(fmt::format("a slice step is a '{}'", type_name(*step)));
    // No element is farther away, and the step can be negated.
    picked.step = std::clamp<int64_t>(step->as_int(), -kStepMax, kStepMax);
    if (picked.step == 0) return refuse("a slice step is zero");
  }
  const bool is_forward = picked.step > 0;
  const int64_t lowest = is_forward ? 0 : -1;
  const int64_t highest = is_forward ? size : size - 1;
  ROOST_TRY(picked.first, slice_bound(start, is_forward ? 0 : size - 1, size, lowest, highest));
  ROOST_TRY(picked.last, slice_bound(stop, is_forward ? size : -1, size, lowest, highest));
  const int64_t distance = is_forward ? picked.last - picked.first : picked.first - picked.last;
  const int64_t stride = std::abs(picked.step);
  picked.n = distance <= 0 ? 0 : (distance - 1) / stride + 1;
  return picked;
}

Result<Value> slice_of_range(Heap& heap, const RangeObject& range, const Picked& picked) {
  const auto at = [&range](int64_t i) {
    return range.start + static_cast<__int128>(i) * range.step;
  };
  const __int128 numbers[] = {at(picked.first), at(picked.last),
                              static_cast<__int128>(picked.step) * range.step};
  for (const __int128 number : numbers)
    if (number != static_cast<int64_t>(number)) return too_large();
  return heap.range(static_cast<int64_t>(numbers[0]), static_cast<int64_t>(numbers[1]),
                    static_cast<int64_t>(numbers[2]));
}

}  // namespace

Result<Value> compute(Heap& heap, Arithmetic op, const Value& a, const Value& b) {
  if (a.is_integral() && b.is_integral()) return compute_ints(op, a.as_int(), b.as_int());
  if (is_number(a) && is_number(b)) return compute_floats(op, to_double(a), to_double(b));
  if (op == Arithmetic::kAdd) {
    if (a.is_string() && b.is_string()) return add_strings(heap, a, b);
    if (is_sequence(a) && a.kind() == b.kind()) {
      ROOST_TRY_DO(heap.spend(a.items().size() + b.items().size()));
      std::vector<Value> items = a.items();
      items.insert(items.end(), b.items().begin(), b.items().end());
      return heap.sequence(a.kind(), std::move(items));
    }
  }
  if (op == Arithmetic::kMultiply) {
    if (can_repeat(a) && b.is_integral()) return repeat(heap, a, b.as_int());
    if (can_repeat(b) && a.is_integral()) return repeat(heap, b, a.as_int());
  }
  return no_operator(op, a, b);
}

Result<Value> apply_sign(bool is_minus, const Value& value) {
  if (value.is(Kind::kFloat)) return Value::real(is_minus ? -value.as_float() : value.as_float());
  if (!value.is_integral()) return refuse(fmt::format("a sign before a '{}'", type_name(value)));
  if (!is_minus) return Value::integer(value.as_int());
  return compute_ints(Arithmetic::kSubtract, 0, value.as_int());
}

Result<bool> holds(Heap& heap, Comparison op, const Value& a, const Value& b) {
  switch (op) {
    case Comparison::kEqual:
      return equals(heap, a, b);
    case Comparison::kNotEqual: {
      ROOST_TRY(const bool is_equal, equals(heap, a, b));
      return !is_equal;
    }
    case Comparison::kIn:
      return contains(heap, b, a);
    case Comparison::kNotIn: {
      ROOST_TRY(const bool is_in, contains(heap, b, a));
      return !is_in;
    }
    default:
      break;
  }
  ROOST_TRY(const std::partial_ordering order, compare(heap, a, b));
  switch (op) {
    case Comparison::kLess:
      return order < 0;
    case Comparison::kLessEqual:
      return order <= 0;
    case Comparison::kGreater:
      return order > 0;
    default:
      return order >= 0;
  }
}

Result<bool> contains(Heap& heap, const Value& container, const Value& item) {
  if (container.is_string()) {
    if (!item.is_string())
      return refuse(fmt::format("'in' between '{}' and a string", type_name(item)));
    ROOST_TRY_DO(heap.spend_bytes(container.text().size()));
    return container.text().find(item.text()) != std::string::npos;
  }
  const bool is_keys =
      container.is(Kind::kDictView) && container.view().what == DictViewObject::What::kKeys;
  if (container.is(Kind::kDict) || is_keys) {
    if (!is_hashable(item)) return refuse(fmt::format("a '{}' as a key", type_name(item)));
    const DictObject& dict = is_keys ? *container.view().dict : container.dict();
    ROOST_TRY(const Value* found, dict.find(heap, item));
    return found != nullptr;
  }
  return contains_item(heap, container, item);
}

Result<Value> get_attribute(Heap& heap, const Value& value, std::string_view name) {
  if (value.is(Kind::kUndefined))
    return refuse(fmt::format("attribute '{}' of an undefined value", name));
  ROOST_TRY(std::optional<Value> attribute, find_attribute(heap, value, name));
  if (attribute) return *std::move(attribute);
  if (value.is(Kind::kDict)) {
    const Value* found = value.dict().find(name);
    if (found != nullptr) return *found;
  }
  return Value();
}

Result<Value> get_item(Heap& heap, const Value& value, const Value& index) {
  if (value.is(Kind::kUndefined)) return refuse("an item of an undefined value");
  ROOST_TRY(std::optional<Value> item, find_item(heap, value, index));
  if (item) return *std::move(item);
  if (!index.is_string()) return Value();
  ROOST_TRY(std::optional<Value> attribute, find_attribute(heap, value, index.text()));
  return attribute ? *std::move(attribute) : Value();
}

Result<Value> get_slice(Heap& heap, const Value& value, const Value* start, const Value* stop,
                        const Value* step) {
  if (!value.is_string() && !is_sequence(value) && !value.is(Kind::kRange))
    return refuse(fmt::format("a slice of a '{}'", type_name(value)));
  if (value.is_string()) ROOST_TRY_DO(heap.spend_bytes(value.text().size()));
  const auto size = static_cast<int64_t>(length(value).value_or(0));
  ROOST_TRY(const Picked picked, pick(size, start, stop, step));
  if (value.is(Kind::kRange)) return slice_of_range(heap, value.range(), picked);
  if (value.is_string()) {
    const auto first = static_cast<size_t>(picked.n == 0 ? 0 : picked.first);
    ROOST_TRY(const Value slice, heap.string(pick_points(value.text(), first, picked.step,
                                                         static_cast<size_t>(picked.n))));
    return slice.as_markup(value.is_markup());
  }
  std::vector<Value> items;
  for (int64_t i = 0; i < picked.n; ++i)
    items.push_back(value.items()[static_cast<size_t>(picked.first + i * picked.step)]);
  return heap.sequence(value.kind(), std::move(items));
}

}  // namespace roost::jinja
