#include "text/template_value.h"

#include <algorithm>
#include <cmath>

#include <fmt/core.h>

#include "text/python_text.h"

namespace roost::jinja {
namespace {

constexpr size_t kLiveBytesMax = 4 * limits::kTemplateOutputBytesMax;  // the output, and its parts
constexpr size_t kBytesPerStep = 64;  // a step of work on text is about as long as any other step

// Exact, also where a double cannot hold the integer.
std::partial_ordering compare_int_float(int64_t i, double d) {
  if (std::isnan(d)) return std::partial_ordering::unordered;
  if (d >= 0x1p63) return std::partial_ordering::less;
  if (d < -0x1p63) return std::partial_ordering::greater;
  const auto whole = static_cast<int64_t>(d);
  if (i != whole) return i <=> whole;
  return 0.0 <=> d - static_cast<double>(whole);
}

std::strong_ordering compare_digits(std::string_view a, std::string_view b) {
  const bool is_a_negative = a[0] == '-';
  const bool is_b_negative = b[0] == '-';
  if (is_a_negative != is_b_negative)
    return is_a_negative ? std::strong_ordering::less : std::strong_ordering::greater;
  if (is_a_negative) return compare_digits(b.substr(1), a.substr(1));
  if (a.size() != b.size()) return a.size() <=> b.size();
  return a <=> b;
}

bool is_number(const Value& value) {
  return value.is_integral() || value.is(Kind::kFloat) || value.is(Kind::kBigInt);
}

std::partial_ordering flip(std::partial_ordering order) {
  return 0 <=> order;
}

// Both are numbers. A big integer against a float is decided by the nearest double of its digits.
std::partial_ordering compare_numbers(const Value& a, const Value& b) {
  if (b.is(Kind::kFloat) && !a.is(Kind::kFloat)) return flip(compare_numbers(b, a));
  if (a.is(Kind::kFloat)) {
    if (b.is(Kind::kFloat)) return a.as_float() <=> b.as_float();
    if (b.is(Kind::kBigInt)) return a.as_float() <=> parse_float(b.text()).value_or(0);
    return flip(compare_int_float(b.as_int(), a.as_float()));
  }
  if (a.is(Kind::kBigInt) && b.is(Kind::kBigInt)) return compare_digits(a.text(), b.text());
  if (a.is(Kind::kBigInt))
    return a.text()[0] == '-' ? std::partial_ordering::less : std::partial_ordering::greater;
  if (b.is(Kind::kBigInt)) return flip(compare_numbers(b, a));
  return a.as_int() <=> b.as_int();
}

bool is_sequence(const Value& value) {
  return value.is(Kind::kList) || value.is(Kind::kTuple);
}

class SequenceIterator : public IteratorObject {
 public:
  explicit SequenceIterator(Value sequence) : sequence_(std::move(sequence)) {}
  Result<bool> next(Value& out) override {
    if (at_ == sequence_.items().size()) return false;
    out = sequence_.items()[at_++];
    return true;
  }

 private:
  Value sequence_;
  size_t at_ = 0;
};

class StringIterator : public IteratorObject {
 public:
  explicit StringIterator(Value string) : string_(std::move(string)) {}
  Result<bool> next(Value& out) override {
    const std::string_view left = std::string_view(string_.text()).substr(at_);
    if (left.empty()) return false;
    const std::string_view point = left.substr(0, first_point_bytes(left));
    ROOST_TRY(out, owner->string(std::string(point)));
    at_ += point.size();
    return true;
  }

 private:
  Value string_;
  size_t at_ = 0;
};

class DictIterator : public IteratorObject {
 public:
  DictIterator(Value holder, const DictObject& dict, DictViewObject::What what)
      : holder_(std::move(holder)), dict_(dict), what_(what) {}
  Result<bool> next(Value& out) override {
    if (at_ == dict_.entries.size()) return false;
    const Entry& entry = dict_.entries[at_++];
    if (what_ == DictViewObject::What::kItems) {
      ROOST_TRY(out, owner->tuple({entry.first, entry.second}));
    } else {
      out = what_ == DictViewObject::What::kKeys ? entry.first : entry.second;
    }
    return true;
  }

 private:
  Value holder_;  // keeps the dict
  const DictObject& dict_;
  DictViewObject::What what_;
  size_t at_ = 0;
};

class RangeIterator : public IteratorObject {
 public:
  explicit RangeIterator(Value range) : range_(std::move(range)) {}
  Result<bool> next(Value& out) override {
    const RangeObject& range = range_.range();
    if (at_ == range.n) return false;
    out = Value::integer(range.start + at_++ * range.step);
    return true;
  }

 private:
  Value range_;
  int64_t at_ = 0;
};

class EmptyIterator : public IteratorObject {
 public:
  Result<bool> next(Value&) override { return false; }
};

template <class T, class... Args>
Result<Ref<IteratorObject>> make_iterator(Heap& heap, uint32_t depth, Args&&... args) {
  auto iterator = std::make_unique<T>(std::forward<Args>(args)...);
  iterator->depth = depth;
  ROOST_TRY(Ref<T> ref, heap.adopt(std::move(iterator)));
  return Ref<IteratorObject>(ref.get());
}

Result<bool> equal_items(Heap& heap, const std::vector<Value>& a, const std::vector<Value>& b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i) {
    ROOST_TRY(const bool is_equal, equals(heap, a[i], b[i]));
    if (!is_equal) return false;
  }
  return true;
}

Result<bool> equal_dicts(Heap& heap, const DictObject& a, const DictObject& b) {
  if (a.entries.size() != b.entries.size()) return false;
  for (const Entry& entry : a.entries) {
    ROOST_TRY(const Value* other, b.find(heap, entry.first));
    if (other == nullptr) return false;
    ROOST_TRY(const bool is_equal, equals(heap, entry.second, *other));
    if (!is_equal) return false;
  }
  return true;
}

}  // namespace

Error refuse(std::string detail) {
  return Error{Refusal::RequestTemplate, std::move(detail)};
}

Value Value::boolean(bool b) {
  Value value(Kind::kBool);
  value.int_ = b ? 1 : 0;
  return value;
}

Value Value::integer(int64_t i) {
  Value value(Kind::kInt);
  value.int_ = i;
  return value;
}

Value Value::real(double d) {
  Value value(Kind::kFloat);
  value.float_ = d;
  return value;
}

Value Value::function(Function f) {
  Value value(Kind::kFunction);
  value.function_ = f;
  return value;
}

Value Value::of(NamespaceObject* n) {
  Value value(Kind::kNamespace);
  value.namespace_ = n;
  return value;
}

Value Value::of(MacroObject* macro) {
  Value value(Kind::kMacro);
  value.macro_ = macro;
  return value;
}

Value Value::as_markup(bool is_markup) const {
  Value value = *this;
  value.is_markup_ = is_markup;
  return value;
}

int64_t Value::as_int() const {
  ROOST_CHECK(is_integral());
  return int_;
}

double Value::as_float() const {
  ROOST_CHECK(kind_ == Kind::kFloat);
  return float_;
}

Function Value::as_function() const {
  ROOST_CHECK(kind_ == Kind::kFunction);
  return function_;
}

NamespaceObject* Value::as_namespace() const {
  ROOST_CHECK(kind_ == Kind::kNamespace);
  return namespace_;
}

MacroObject* Value::as_macro() const {
  ROOST_CHECK(kind_ == Kind::kMacro);
  return macro_;
}

const std::string& Value::text() const {
  ROOST_CHECK(kind_ == Kind::kString || kind_ == Kind::kBigInt);
  return static_cast<const StringObject*>(object_.get())->text;
}

const std::vector<Value>& Value::items() const {
  ROOST_CHECK(kind_ == Kind::kList || kind_ == Kind::kTuple);
  return static_cast<const SequenceObject*>(object_.get())->items;
}

const DictObject& Value::dict() const {
  ROOST_CHECK(kind_ == Kind::kDict);
  return *static_cast<const DictObject*>(object_.get());
}

const DictViewObject& Value::view() const {
  ROOST_CHECK(kind_ == Kind::kDictView);
  return *static_cast<const DictViewObject*>(object_.get());
}

const RangeObject& Value::range() const {
  ROOST_CHECK(kind_ == Kind::kRange);
  return *static_cast<const RangeObject*>(object_.get());
}

const MethodObject& Value::method() const {
  ROOST_CHECK(kind_ == Kind::kMethod);
  return *static_cast<const MethodObject*>(object_.get());
}

IteratorObject& Value::iterator() const {
  ROOST_CHECK(kind_ == Kind::kIterator);
  return *static_cast<IteratorObject*>(object_.get());
}

const Value* DictObject::find(std::string_view key) const {
  const auto place =
      std::lower_bound(by_text.begin(), by_text.end(), key,
                       [&](uint32_t i, std::string_view k) { return entries[i].first.text() < k; });
  if (place == by_text.end() || entries[*place].first.text() != key) return nullptr;
  return &entries[*place].second;
}

Result<const Value*> DictObject::find(Heap& heap, const Value& key) const {
  if (key.is_string()) return find(key.text());
  for (const uint32_t i : by_other) {
    ROOST_TRY(const bool is_found, equals(heap, entries[i].first, key));
    if (is_found) return &entries[i].second;
  }
  return static_cast<const Value*>(nullptr);
}

Result<void> Heap::spend(size_t n_steps) {
  n_steps_ += n_steps;
  if (n_steps_ <= limits::kTemplateStepsMax) return {};
  return refuse(fmt::format("the template takes more than {} steps", limits::kTemplateStepsMax));
}

Result<void> Heap::spend_bytes(size_t n_bytes) {
  return spend(n_bytes / kBytesPerStep + 1);
}

Result<void> Heap::check_text_size(size_t n_bytes) const {
  if (n_bytes <= limits::kTemplateOutputBytesMax) return {};
  return refuse(fmt::format("the template makes a text of more than {} bytes",
                            limits::kTemplateOutputBytesMax));
}

Result<void> Heap::take(size_t n_bytes) {
  n_bytes_ += n_bytes;
  if (n_bytes_ <= kLiveBytesMax) return {};
  n_bytes_ -= n_bytes;
  return refuse(fmt::format("the template's values hold more than {} bytes", kLiveBytesMax));
}

Result<void> Heap::check_depth(uint32_t depth) const {
  if (depth <= kValueDepthMax) return {};
  return refuse(fmt::format("the template nests values more than {} deep", kValueDepthMax));
}

Result<Value> Heap::string(std::string text) {
  ROOST_TRY_DO(check_text_size(text.size()));
  ROOST_TRY_DO(spend_bytes(text.size()));
  auto object = std::make_unique<StringObject>();
  object->n_bytes = text.capacity();
  object->text = std::move(text);
  ROOST_TRY(Ref<StringObject> ref, adopt(std::move(object)));
  return Value(Kind::kString, Ref<Object>(ref.get()));
}

Result<Value> Heap::big_integer(std::string digits) {
  ROOST_TRY(const Value text, string(std::move(digits)));
  return Value(Kind::kBigInt, text.object());
}

Result<Value> Heap::sequence(Kind kind, std::vector<Value> items) {
  ROOST_TRY_DO(spend(items.size() + 1));
  auto object = std::make_unique<SequenceObject>();
  for (const Value& item : items) object->depth = std::max(object->depth, item.depth() + 1);
  object->n_bytes = items.capacity() * sizeof(Value);
  object->items = std::move(items);
  ROOST_TRY(Ref<SequenceObject> ref, adopt(std::move(object)));
  return Value(kind, Ref<Object>(ref.get()));
}

Result<Value> Heap::dict(std::vector<Entry> entries) {
  ROOST_TRY_DO(spend(entries.size() + 1));
  auto object = std::make_unique<DictObject>();
  std::map<std::string_view, uint32_t> by_text;
  for (Entry& entry : entries) {
    const auto place = static_cast<uint32_t>(object->entries.size());
    Value* known = nullptr;
    if (entry.first.is_string()) {
      const auto [at, is_new] = by_text.emplace(entry.first.text(), place);
      if (!is_new) known = &object->entries[at->second].second;
    } else {
      ROOST_TRY(const Value* found, object->find(*this, entry.first));
      known = const_cast<Value*>(found);  // the object is still being made
      if (known == nullptr) object->by_other.push_back(place);
    }
    object->depth = std::max({object->depth, entry.first.depth() + 1, entry.second.depth() + 1});
    if (known != nullptr)
      *known = std::move(entry.second);
    else
      object->entries.push_back(std::move(entry));
  }
  for (const auto& [key, place] : by_text) object->by_text.push_back(place);
  object->n_bytes = object->entries.capacity() * (sizeof(Entry) + sizeof(uint32_t));
  ROOST_TRY(Ref<DictObject> ref, adopt(std::move(object)));
  return Value(Kind::kDict, Ref<Object>(ref.get()));
}

Result<Value> Heap::dict_view(const Value& dict, DictViewObject::What what) {
  auto object = std::make_unique<DictViewObject>();
  object->dict = Ref<DictObject>(static_cast<DictObject*>(dict.object().get()));
  object->what = what;
  object->depth = dict.depth() + 1;
  ROOST_TRY(Ref<DictViewObject> ref, adopt(std::move(object)));
  return Value(Kind::kDictView, Ref<Object>(ref.get()));
}

Result<Value> Heap::range(int64_t start, int64_t stop, int64_t step) {
  auto object = std::make_unique<RangeObject>();
  object->start = start;
  object->stop = stop;
  object->step = step;
  const auto distance =
      step > 0 ? static_cast<__int128>(stop) - start : static_cast<__int128>(start) - stop;
  const __int128 stride = step > 0 ? static_cast<__int128>(step) : -static_cast<__int128>(step);
  const __int128 n = distance <= 0 ? 0 : (distance + stride - 1) / stride;
  if (n > kRangeMax) return refuse(fmt::format("a range of more than {} numbers", kRangeMax));
  object->n = static_cast<int64_t>(n);
  ROOST_TRY(Ref<RangeObject> ref, adopt(std::move(object)));
  return Value(Kind::kRange, Ref<Object>(ref.get()));
}

Result<Value> Heap::method(const Value& self, std::string_view name) {
  auto object = std::make_unique<MethodObject>();
  object->self = self;
  object->name = name;
  object->depth = self.depth() + 1;
  ROOST_TRY(Ref<MethodObject> ref, adopt(std::move(object)));
  return Value(Kind::kMethod, Ref<Object>(ref.get()));
}

Result<NamespaceObject*> Heap::new_namespace() {
  ROOST_TRY_DO(take(sizeof(NamespaceObject)));
  namespaces_.push_back(std::make_unique<NamespaceObject>());
  return namespaces_.back().get();
}

// The recursion is bounded: deeper containers are refused before anything is built from them.
Result<Value> Heap::from_json(const json::Value& json, uint32_t depth) {
  ROOST_TRY_DO(check_depth(depth));
  switch (json.type()) {
    case json::Type::kNull:
      return Value::none();
    case json::Type::kBool:
      return Value::boolean(json.as_bool());
    case json::Type::kString:
      return string(json.as_string());
    case json::Type::kNumber: {
      if (!json.is_spelled_as_integer()) return Value::real(json.as_double());
      if (const auto i = json.as_int64()) return Value::integer(*i);
      return big_integer(json.number_text());
    }
    case json::Type::kArray: {
      std::vector<Value> items;
      items.reserve(json.items().size());
      for (const json::Value& item : json.items()) {
        ROOST_TRY(Value value, from_json(item, depth + 1));
        items.push_back(std::move(value));
      }
      return list(std::move(items));
    }
    case json::Type::kObject:
      break;
  }
  std::vector<Entry> entries;
  entries.reserve(json.members().size());
  for (const json::Member& member : json.members()) {
    ROOST_TRY(Value key, string(member.first));
    ROOST_TRY(Value value, from_json(member.second, depth + 1));
    entries.emplace_back(std::move(key), std::move(value));
  }
  return dict(std::move(entries));
}

bool truth(const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
    case Kind::kNone:
      return false;
    case Kind::kBool:
    case Kind::kInt:
      return value.as_int() != 0;
    case Kind::kFloat:
      return value.as_float() != 0;
    case Kind::kString:
      return !value.text().empty();
    case Kind::kList:
    case Kind::kTuple:
    case Kind::kDict:
    case Kind::kDictView:
    case Kind::kRange:
      return length(value) != size_t{0};
    default:
      return true;
  }
}

Result<bool> equals(Heap& heap, const Value& a, const Value& b) {
  ROOST_TRY_DO(heap.spend(1));
  if (is_number(a) && is_number(b)) return compare_numbers(a, b) == 0;
  if (a.kind() != b.kind()) return false;
  switch (a.kind()) {
    case Kind::kUndefined:
    case Kind::kNone:
      return true;
    case Kind::kString:
      if (a.text().size() != b.text().size()) return false;
      ROOST_TRY_DO(heap.spend_bytes(a.text().size()));
      return a.text() == b.text();
    case Kind::kList:
    case Kind::kTuple:
      return equal_items(heap, a.items(), b.items());
    case Kind::kDict:
      return equal_dicts(heap, a.dict(), b.dict());
    case Kind::kRange: {
      const RangeObject& x = a.range();
      const RangeObject& y = b.range();
      return x.n == y.n && (x.n == 0 || x.start == y.start) && (x.n <= 1 || x.step == y.step);
    }
    case Kind::kNamespace:
      return a.as_namespace() == b.as_namespace();
    case Kind::kMacro:
      return a.as_macro() == b.as_macro();
    case Kind::kFunction:
      return a.as_function() == b.as_function();
    case Kind::kDictView:
    case Kind::kMethod:
      return refuse(fmt::format("'{}' compared", type_name(a)));
    default:
      return a.object().get() == b.object().get();
  }
}

Result<std::partial_ordering> compare(Heap& heap, const Value& a, const Value& b) {
  ROOST_TRY_DO(heap.spend(1));
  if (is_number(a) && is_number(b)) return compare_numbers(a, b);
  if (a.is_string() && b.is_string()) {
    ROOST_TRY_DO(heap.spend_bytes(std::min(a.text().size(), b.text().size())));
    // UTF-8 sorts as its code points do.
    return std::partial_ordering(a.text() <=> b.text());
  }
  if (a.kind() == b.kind() && is_sequence(a)) {
    const size_t n = std::min(a.items().size(), b.items().size());
    for (size_t i = 0; i < n; ++i) {
      ROOST_TRY(const bool is_equal, equals(heap, a.items()[i], b.items()[i]));
      if (!is_equal) return compare(heap, a.items()[i], b.items()[i]);
    }
    return std::partial_ordering(a.items().size() <=> b.items().size());
  }
  return refuse(fmt::format("'{}' and '{}' have no order", type_name(a), type_name(b)));
}

bool is_hashable(const Value& value) {
  if (value.is(Kind::kTuple))
    return std::all_of(value.items().begin(), value.items().end(), is_hashable);
  return !value.is(Kind::kList) && !value.is(Kind::kDict) && !value.is(Kind::kDictView);
}

std::string_view type_name(const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
      return "Undefined";
    case Kind::kNone:
      return "NoneType";
    case Kind::kBool:
      return "bool";
    case Kind::kInt:
    case Kind::kBigInt:
      return "int";
    case Kind::kFloat:
      return "float";
    case Kind::kString:
      return "str";
    case Kind::kList:
      return "list";
    case Kind::kTuple:
      return "tuple";
    case Kind::kDict:
      return "dict";
    case Kind::kDictView:
      return "dict view";
    case Kind::kRange:
      return "range";
    case Kind::kIterator:
      return "generator";
    case Kind::kNamespace:
      return "namespace";
    case Kind::kMacro:
      return "macro";
    case Kind::kFunction:
      return "function";
    case Kind::kMethod:
      return "method";
    case Kind::kLoop:
      return "loop";
  }
  return "value";
}

std::optional<size_t> length(const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
      return 0;
    case Kind::kString:
      return count_points(value.text());
    case Kind::kList:
    case Kind::kTuple:
      return value.items().size();
    case Kind::kDict:
      return value.dict().entries.size();
    case Kind::kDictView:
      return value.view().dict->entries.size();
    case Kind::kRange:
      return static_cast<size_t>(value.range().n);
    default:
      return std::nullopt;
  }
}

Result<Ref<IteratorObject>> iterate(Heap& heap, const Value& value) {
  const uint32_t depth = value.depth() + 1;
  switch (value.kind()) {
    case Kind::kUndefined:
      return make_iterator<EmptyIterator>(heap, 0);
    case Kind::kString:
      return make_iterator<StringIterator>(heap, depth, value);
    case Kind::kList:
    case Kind::kTuple:
      return make_iterator<SequenceIterator>(heap, depth, value);
    case Kind::kDict:
      return make_iterator<DictIterator>(heap, depth, value, value.dict(),
                                         DictViewObject::What::kKeys);
    case Kind::kDictView:
      return make_iterator<DictIterator>(heap, depth, value, *value.view().dict, value.view().what);
    case Kind::kRange:
      return make_iterator<RangeIterator>(heap, depth, value);
    case Kind::kIterator:
      return Ref<IteratorObject>(&value.iterator());
    default:
      return refuse(fmt::format("'{}' cannot be walked", type_name(value)));
  }
}

Result<std::vector<Value>> to_vector(Heap& heap, const Value& value) {
  ROOST_TRY(const Ref<IteratorObject> iterator, iterate(heap, value));
  std::vector<Value> items;
  while (true) {
    Value item;
    ROOST_TRY_DO(heap.spend(1));
    ROOST_TRY(const bool has_more, iterator->next(item));
    if (!has_more) return items;
    items.push_back(std::move(item));
  }
}

}  // namespace roost::jinja
