#include "text/template_methods.h"

#include <algorithm>
#include <array>

#include <fmt/core.h>

#include "text/python_text.h"
#include "text/template_filters.h"
#include "text/template_operators.h"
#include "text/unicode_case.h"

namespace roost::jinja {
namespace {

struct Method {
  Kind kind;
  std::string_view name;
  std::vector<std::string_view> parameters;
  Result<Value> (*run)(Heap& heap, const Value& self, const Bound& arguments);
  bool takes_names = false;  // Python takes most arguments by place only
};

Result<std::string_view> text_argument(const Value* argument) {
  if (argument == nullptr) return refuse("a method is called without its argument");
  if (argument->is_string()) return std::string_view(argument->text());
  return refuse(fmt::format("an argument is '{}', not a string", type_name(*argument)));
}

Result<Value> strip_sides(Heap& heap, const Value& self, const Bound& args, bool left, bool right) {
  if (is_absent_or_none(args[0]))
    return heap.string(std::string(strip(self.text(), std::nullopt, left, right)));
  ROOST_TRY(const std::string_view characters, text_argument(args[0]));
  return heap.string(std::string(strip(self.text(), characters, left, right)));
}

template <bool left, bool right>
Result<Value> method_strip(Heap& heap, const Value& self, const Bound& args) {
  return strip_sides(heap, self, args, left, right);
}

template <std::string (*map)(std::string_view)>
Result<Value> method_case(Heap& heap, const Value& self, const Bound&) {
  ROOST_TRY_DO(heap.spend_bytes(self.text().size()));
  return heap.string(map(self.text()));
}

Result<Value> method_split(Heap& heap, const Value& self, const Bound& args) {
  ROOST_TRY_DO(heap.spend_bytes(self.text().size()));
  ROOST_TRY(const int64_t maxsplit, int_argument(args[1], -1));
  std::vector<std::string_view> parts;
  if (is_absent_or_none(args[0])) {
    parts = split_at_blanks(self.text(), maxsplit);
  } else {
    ROOST_TRY(const std::string_view separator, text_argument(args[0]));
    if (separator.empty()) return refuse("split at an empty separator");
    parts = split(self.text(), separator, maxsplit);
  }
  std::vector<Value> items;
  for (const std::string_view part : parts) {
    ROOST_TRY(Value item, heap.string(std::string(part)));
    items.push_back(std::move(item));
  }
  return heap.list(std::move(items));
}

// The part of self between the code points that two optional arguments name, as slices do; nothing
// if it begins behind the end of self.
struct Window {
  std::string_view text;
  int64_t first = 0;  // in code points
  bool is_inside = true;
};

Result<Window> window_of(Heap& heap, const Value& self, const Value* start, const Value* stop) {
  Window window{self.text()};
  if (is_absent_or_none(start) && is_absent_or_none(stop)) return window;
  ROOST_TRY_DO(heap.spend_bytes(2 * self.text().size()));
  const auto size = static_cast<int64_t>(count_points(self.text()));
  ROOST_TRY(int64_t first, int_argument(is_absent_or_none(start) ? nullptr : start, 0));
  ROOST_TRY(int64_t last, int_argument(is_absent_or_none(stop) ? nullptr : stop, size));
  if (first < 0) first = std::max<int64_t>(first + size, 0);
  if (last < 0) last = std::max<int64_t>(last + size, 0);
  last = std::min(last, size);
  window.first = first;
  window.is_inside = first <= last;
  if (!window.is_inside) return window;
  const size_t begin = offset_of_point(self.text(), static_cast<size_t>(first));
  const size_t end = offset_of_point(self.text(), static_cast<size_t>(last));
  window.text = window.text.substr(begin, end - begin);
  return window;
}

bool has_affix(std::string_view text, std::string_view affix, bool at_end) {
  return at_end ? text.ends_with(affix) : text.starts_with(affix);
}

template <bool at_end>
Result<Value> method_affix(Heap& heap, const Value& self, const Bound& args) {
  ROOST_TRY(const Window window, window_of(heap, self, args[1], args[2]));
  if (args[0] != nullptr && args[0]->is(Kind::kTuple)) {
    for (const Value& affix : args[0]->items()) {
      ROOST_TRY_DO(heap.spend(1));
      ROOST_TRY(const std::string_view text, text_argument(&affix));
      if (window.is_inside && has_affix(window.text, text, at_end)) return Value::boolean(true);
    }
    return Value::boolean(false);
  }
  ROOST_TRY(const std::string_view affix, text_argument(args[0]));
  return Value::boolean(window.is_inside && has_affix(window.text, affix, at_end));
}

Result<Value> method_find(Heap& heap, const Value& self, const Bound& args) {
  ROOST_TRY(const std::string_view wanted, text_argument(args[0]));
  ROOST_TRY(const Window window, window_of(heap, self, args[1], args[2]));
  ROOST_TRY_DO(heap.spend_bytes(window.text.size()));
  if (!window.is_inside) return Value::integer(-1);
  const size_t at = window.text.find(wanted);
  if (at == std::string_view::npos) return Value::integer(-1);
  const size_t n_before = count_points(window.text.substr(0, at));
  return Value::integer(window.first + static_cast<int64_t>(n_before));
}

Result<Value> method_count(Heap& heap, const Value& self, const Bound& args) {
  ROOST_TRY(const std::string_view wanted, text_argument(args[0]));
  ROOST_TRY(const Window window, window_of(heap, self, args[1], args[2]));
  ROOST_TRY_DO(heap.spend_bytes(window.text.size()));
  if (!window.is_inside) return Value::integer(0);
  return Value::integer(static_cast<int64_t>(count_occurrences(window.text, wanted)));
}

Result<Value> method_count_items(Heap& heap, const Value& self, const Bound& args) {
  if (args[0] == nullptr) return refuse("count without a value");
  int64_t n = 0;
  for (const Value& item : self.items()) {
    ROOST_TRY(const bool is_equal, equals(heap, item, *args[0]));
    n += is_equal ? 1 : 0;
  }
  return Value::integer(n);
}

Result<Value> method_replace(Heap& heap, const Value& self, const Bound& args) {
  ROOST_TRY(const std::string_view old, text_argument(args[0]));
  ROOST_TRY(const std::string_view by, text_argument(args[1]));
  ROOST_TRY(const int64_t n_max, int_argument(args[2], -1));
  return replace_text(heap, self.text(), old, by, n_max);
}

Result<Value> method_join(Heap& heap, const Value& self, const Bound& args) {
  if (args[0] == nullptr) return refuse("join without a list");
  ROOST_TRY(const Ref<IteratorObject> iterator, iterate(heap, *args[0]));
  std::string out;
  for (bool is_first = true;; is_first = false) {
    Value item;
    ROOST_TRY_DO(heap.spend(1));
    ROOST_TRY(const bool has_more, iterator->next(item));
    if (!has_more) return heap.string(std::move(out));
    ROOST_TRY(const std::string_view text, text_argument(&item));
    if (item.is_markup()) return refuse("text marked safe in the method 'join'");
    ROOST_TRY_DO(heap.check_text_size(out.size() + self.text().size() + text.size()));
    ROOST_TRY_DO(heap.spend_bytes(self.text().size() + text.size()));
    if (!is_first) out += self.text();
    out += text;
  }
}

Result<Value> method_get(Heap& heap, const Value& self, const Bound& args) {
  if (args[0] == nullptr) return refuse("get without a key");
  if (!is_hashable(*args[0])) return refuse(fmt::format("a '{}' as a key", type_name(*args[0])));
  ROOST_TRY(const Value* found, self.dict().find(heap, *args[0]));
  if (found != nullptr) return *found;
  return args[1] != nullptr ? *args[1] : Value::none();
}

template <DictViewObject::What what>
Result<Value> method_view(Heap& heap, const Value& self, const Bound&) {
  return heap.dict_view(self, what);
}

const std::array<Method, 20>& methods() {
  using What = DictViewObject::What;
  constexpr Kind kText = Kind::kString;
  static const std::array<Method, 20> table = {{
      {kText, "capitalize", {}, method_case<capitalize>},
      {kText, "count", {"sub", "start", "end"}, method_count},
      {kText, "endswith", {"suffix", "start", "end"}, method_affix<true>},
      {kText, "find", {"sub", "start", "end"}, method_find},
      {kText, "join", {"iterable"}, method_join},
      {kText, "lower", {}, method_case<to_lower>},
      {kText, "lstrip", {"chars"}, method_strip<true, false>},
      {kText, "replace", {"old", "new", "count"}, method_replace},
      {kText, "rstrip", {"chars"}, method_strip<false, true>},
      {kText, "split", {"sep", "maxsplit"}, method_split, true},
      {kText, "startswith", {"prefix", "start", "end"}, method_affix<false>},
      {kText, "strip", {"chars"}, method_strip<true, true>},
      {kText, "title", {}, method_case<to_title>},
      {kText, "upper", {}, method_case<to_upper>},
      {Kind::kDict, "get", {"key", "default"}, method_get},
      {Kind::kDict, "items", {}, method_view<What::kItems>},
      {Kind::kDict, "keys", {}, method_view<What::kKeys>},
      {Kind::kDict, "values", {}, method_view<What::kValues>},
      {Kind::kList, "count", {"value"}, method_count_items},
      {Kind::kTuple, "count", {"value"}, method_count_items},
  }};
  return table;
}

}  // namespace

bool is_offered_method(std::string_view name) {
  return std::any_of(methods().begin(), methods().end(),
                     [&](const Method& method) { return method.name == name; });
}

Result<Value> call_method(Heap& heap, const Value& method, const Arguments& arguments) {
  const MethodObject& object = method.method();
  ROOST_TRY_DO(heap.spend(1));
  for (const Method& m : methods()) {
    if (m.kind != object.self.kind() || m.name != object.name) continue;
    if (object.self.is_markup())
      return refuse(fmt::format("the method '{}' of text marked safe", m.name));
    if (!m.takes_names && !arguments.named.empty())
      return refuse(fmt::format("the method '{}' takes no names", m.name));
    ROOST_TRY(const Bound bound, bind_arguments(arguments, m.parameters));
    return m.run(heap, object.self, bound);
  }
  return refuse(fmt::format("the method '{}' of a '{}'", object.name, type_name(object.self)));
}

Result<Value> replace_text(Heap& heap, std::string_view text, std::string_view old,
                           std::string_view by, int64_t n_max) {
  ROOST_TRY_DO(heap.spend_bytes(text.size()));
  size_t n = count_occurrences(text, old);
  if (n_max >= 0) n = std::min(n, static_cast<size_t>(n_max));
  size_t added = 0;
  if (__builtin_mul_overflow(n, by.size(), &added)) added = SIZE_MAX / 2;
  ROOST_TRY_DO(heap.check_text_size(text.size() + added));
  return heap.string(replace(text, old, by, n));
}

}  // namespace roost::jinja
