// The values that a chat template computes with: Python's, immutable but for namespaces. A Heap
// counts the steps of one rendering and the bytes that its values hold, and refuses beyond limits.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json.h"
#include "base/limits.h"
#include "base/result.h"

namespace roost::jinja {

class Heap;
class Value;
struct MacroObject;  // template_eval.h
struct NamespaceObject;

// A container holds at most so many levels of containers: what a request may bring, and some more.
inline constexpr uint32_t kValueDepthMax =
    static_cast<uint32_t>(limits::kJsonDepthMax) + limits::kTemplateDepthMax;

// As in the sandbox that templates are written for.
inline constexpr int64_t kRangeMax = 100'000;

// What a rendering cannot go on with.
Error refuse(std::string detail);

// Memory shared by values. Counted without atomics: the values of a rendering stay on its thread.
struct Object {
  Object() = default;
  Object(const Object&) = delete;
  Object& operator=(const Object&) = delete;
  virtual ~Object() = default;

  uint32_t n_refs = 0;
  uint32_t depth = 0;     // levels of values below, so that no walk or destructor runs out of stack
  size_t n_bytes = 0;     // taken from the heap, given back at the end
  Heap* owner = nullptr;  // counts n_bytes
};

// Owns one count of an Object.
template <class T>
class Ref {
 public:
  Ref() = default;
  explicit Ref(T* object) : object_(object) { count_up(); }
  Ref(const Ref& other) : object_(other.object_) { count_up(); }
  Ref(Ref&& other) noexcept : object_(std::exchange(other.object_, nullptr)) {}
  Ref& operator=(Ref other) noexcept {
    std::swap(object_, other.object_);
    return *this;
  }
  ~Ref() { release(); }

  T* get() const { return object_; }
  T* operator->() const { return object_; }
  T& operator*() const { return *object_; }
  explicit operator bool() const { return object_ != nullptr; }

 private:
  void count_up() {
    if (object_) ++object_->n_refs;
  }
  void release();
  T* object_ = nullptr;
};

enum class Kind : uint8_t {
  kUndefined,
  kNone,
  kBool,
  kInt,
  kBigInt,  // an integer of the request beyond 64 bits: printed and compared, not computed with
  kFloat,
  kString,
  kList,
  kTuple,
  kDict,
  kDictView,  // what items(), keys() and values() give
  kRange,
  kIterator,  // can be walked once
  kNamespace,
  kMacro,
  kFunction,  // a global function
  kMethod,    // a method of a value, not yet called
  kLoop,
};

enum class Function : uint8_t { kNamespace, kRange, kRaiseException, kStrftimeNow };

struct StringObject;
struct SequenceObject;
struct DictObject;
struct DictViewObject;
struct RangeObject;
struct MethodObject;
struct IteratorObject;

class Value {
 public:
  Value() = default;  // undefined
  static Value none() { return Value(Kind::kNone); }
  static Value boolean(bool b);
  static Value integer(int64_t i);
  static Value real(double d);
  static Value function(Function f);
  // The heap owns namespaces and macros: values only point at them, so that a namespace that holds
  // itself is no leak.
  static Value of(NamespaceObject* n);
  static Value of(MacroObject* macro);
  Value(Kind kind, Ref<Object> object) : kind_(kind), object_(std::move(object)) {}

  Kind kind() const { return kind_; }
  bool is(Kind kind) const { return kind_ == kind; }
  bool is_string() const { return kind_ == Kind::kString; }
  bool is_integral() const { return kind_ == Kind::kInt || kind_ == Kind::kBool; }  // as Python's
  bool is_markup() const { return is_markup_; }  // a string that went through the filter "safe"
  Value as_markup(bool is_markup) const;

  int64_t as_int() const;   // of kInt, kBool
  double as_float() const;  // of kFloat
  Function as_function() const;
  NamespaceObject* as_namespace() const;
  MacroObject* as_macro() const;
  const std::string& text() const;          // of kString; the digits of kBigInt
  const std::vector<Value>& items() const;  // of kList, kTuple
  const DictObject& dict() const;
  const DictViewObject& view() const;
  const RangeObject& range() const;
  const MethodObject& method() const;
  IteratorObject& iterator() const;
  const Ref<Object>& object() const { return object_; }
  uint32_t depth() const { return object_ ? object_->depth : 0; }

 private:
  explicit Value(Kind kind) : kind_(kind) {}

  Kind kind_ = Kind::kUndefined;
  bool is_markup_ = false;
  union {
    int64_t int_ = 0;
    double float_;
    Function function_;
    NamespaceObject* namespace_;
    MacroObject* macro_;
  };
  Ref<Object> object_;
};

struct StringObject : Object {
  std::string text;
};

struct SequenceObject : Object {
  std::vector<Value> items;
};

using Entry = std::pair<Value, Value>;

struct DictObject : Object {
  std::vector<Entry> entries;      // in order of insertion, keys are unlike each other
  std::vector<uint32_t> by_text;   // entries with string keys, sorted by key
  std::vector<uint32_t> by_other;  // the other ones: only dicts written in the template have them

  const Value* find(std::string_view key) const;
  Result<const Value*> find(Heap& heap, const Value& key) const;  // key must be hashable
};

struct DictViewObject : Object {
  enum class What : uint8_t { kItems, kKeys, kValues };
  Ref<DictObject> dict;
  What what = What::kItems;
};

struct RangeObject : Object {
  int64_t start = 0, step = 1, n = 0;
  int64_t stop = 0;
};

struct MethodObject : Object {
  Value self;
  std::string name;
};

// Gives its elements one by one, once. What an element needs is computed when it is asked for.
struct IteratorObject : Object {
  virtual Result<bool> next(Value& out) = 0;  // false at the end
};

struct NamespaceObject {
  std::map<std::string, Value, std::less<>> attributes;
};

class Heap {
 public:
  Heap() = default;
  Heap(const Heap&) = delete;
  Heap& operator=(const Heap&) = delete;

  Result<void> spend(size_t n_steps);
  Result<void> spend_bytes(size_t n_bytes);            // work on a text: a step for every 64 bytes
  Result<void> check_text_size(size_t n_bytes) const;  // before a text is made that may be huge

  Result<Value> string(std::string text);
  Result<Value> big_integer(std::string digits);
  Result<Value> list(std::vector<Value> items) { return sequence(Kind::kList, std::move(items)); }
  Result<Value> tuple(std::vector<Value> items) { return sequence(Kind::kTuple, std::move(items)); }
  Result<Value> sequence(Kind kind, std::vector<Value> items);
  Result<Value> dict(std::vector<Entry> entries);  // of equal keys the first place, the last value
  Result<Value> dict_view(const Value& dict, DictViewObject::What what);
  Result<Value> range(int64_t start, int64_t stop, int64_t step);
  Result<Value> method(const Value& self, std::string_view name);
  Result<Value> from_json(const json::Value& json, uint32_t depth = 0);
  Result<NamespaceObject*> new_namespace();

  // Any other object; depth and n_bytes are set by the caller.
  template <class T>
  Result<Ref<T>> adopt(std::unique_ptr<T> object) {
    ROOST_TRY_DO(check_depth(object->depth));
    object->n_bytes += sizeof(T);
    ROOST_TRY_DO(take(object->n_bytes));
    object->owner = this;
    return Ref<T>(object.release());
  }

  Result<void> take(size_t n_bytes);  // refuses when the values hold too much
  void give_back(size_t n_bytes) { n_bytes_ -= n_bytes; }

 private:
  Result<void> check_depth(uint32_t depth) const;

  size_t n_steps_ = 0;
  size_t n_bytes_ = 0;
  std::vector<std::unique_ptr<NamespaceObject>> namespaces_;
};

template <class T>
void Ref<T>::release() {
  if (object_ == nullptr || --object_->n_refs != 0) return;
  if (object_->owner != nullptr) object_->owner->give_back(object_->n_bytes);
  delete object_;
}

// Python's rules.
bool truth(const Value& value);
Result<bool> equals(Heap& heap, const Value& a, const Value& b);
// Refuses values that have no order.
Result<std::partial_ordering> compare(Heap& heap, const Value& a, const Value& b);
bool is_hashable(const Value& value);
std::string_view type_name(const Value& value);  // "str", "NoneType": for messages

// len(), or nothing where Python has none.
std::optional<size_t> length(const Value& value);

// iter(): refuses what cannot be walked.
Result<Ref<IteratorObject>> iterate(Heap& heap, const Value& value);
Result<std::vector<Value>> to_vector(Heap& heap, const Value& value);

}  // namespace roost::jinja
