#include "text/template_sequence_filters.h"

#include <algorithm>
#include <charconv>
#include <set>

#include <fmt/core.h>

#include "text/python_text.h"
#include "text/template_operators.h"
#include "text/template_print.h"
#include "text/template_sort.h"
#include "text/template_tests.h"
#include "text/unicode_case.h"

namespace roost::jinja {
namespace {

// Reads what an attribute argument names: "a.b.0" is item a, of that item b, of that item 0.
class Getter {
 public:
  // Without an attribute (null or none) values are taken as they are.
  static Result<Getter> make(Heap& heap, const Value* attribute, bool ignores_case = false) {
    Getter getter;
    getter.ignores_case_ = ignores_case;
    if (is_absent_or_none(attribute)) return getter;
    if (!attribute->is_string()) {
      getter.parts_.push_back(*attribute);
      return getter;
    }
    for (const std::string_view part : split(attribute->text(), ".", -1)) {
      ROOST_TRY(Value key, part_key(heap, part));
      getter.parts_.push_back(std::move(key));
    }
    return getter;
  }
  void set_default(const Value& value) { default_ = value; }

  Result<Value> get(Heap& heap, const Value& item) const {
    Value value = item;
    for (const Value& part : parts_) {
      ROOST_TRY(value, get_item(heap, value, part));
      if (value.is(Kind::kUndefined) && !default_.is(Kind::kNone)) value = default_;
    }
    if (!ignores_case_ || !value.is_string()) return value;
    return heap.string(to_lower(value.text()));
  }

 private:
  static Result<Value> part_key(Heap& heap, std::string_view part) {
    const bool is_digits = !part.empty() && part.find_first_not_of("0123456789") == part.npos;
    if (!is_digits) return heap.string(std::string(part));
    int64_t index = 0;
    const auto read = std::from_chars(part.data(), part.data() + part.size(), index);
    if (read.ec != std::errc()) return refuse("an index beyond 64 bits");
    return Value::integer(index);
  }

  std::vector<Value> parts_;
  bool ignores_case_ = false;
  Value default_ = Value::none();
};

struct Keyed {
  Value key, item;
};

// Equal items keep their order when reversed too, as Python's do.
Result<void> sort_keyed(Heap& heap, std::vector<Keyed>& items, bool is_reversed) {
  return merge_sort(items, [&](const Keyed& a, const Keyed& b) -> Result<bool> {
    ROOST_TRY(const auto order,
              is_reversed ? compare(heap, b.key, a.key) : compare(heap, a.key, b.key));
    return order < 0;
  });
}

Result<Value> items_of(Heap& heap, std::vector<Keyed> keyed) {
  std::vector<Value> items;
  items.reserve(keyed.size());
  for (Keyed& k : keyed) items.push_back(std::move(k.item));
  return heap.list(std::move(items));
}

template <class T, class... Args>
Result<Value> make_generator(Heap& heap, const Value& input, Args&&... args) {
  auto generator = std::make_unique<T>(input, std::forward<Args>(args)...);
  generator->depth = input.depth() + 1;
  ROOST_TRY(Ref<T> ref, heap.adopt(std::move(generator)));
  return Value(Kind::kIterator, Ref<Object>(ref.get()));
}

// Walks its input one element at a time, when asked.
class Generator : public IteratorObject {
 public:
  // skips_false: an input that counts as false is empty, whatever it is.
  Generator(Value input, bool skips_false) : input_(std::move(input)), skips_false_(skips_false) {}

 protected:
  Result<bool> next_input(Value& out) {
    ROOST_TRY_DO(owner->spend(1));
    if (!walk_) {
      if (skips_false_ && !truth(input_)) return false;
      ROOST_TRY(walk_, iterate(*owner, input_));
    }
    return walk_->next(out);
  }

 private:
  Value input_;
  bool skips_false_;
  Ref<IteratorObject> walk_;
};

class MapAttribute : public Generator {
 public:
  MapAttribute(Value input, Getter getter)
      : Generator(std::move(input), true), getter_(std::move(getter)) {}
  Result<bool> next(Value& out) override {
    Value item;
    ROOST_TRY(const bool has_more, next_input(item));
    if (!has_more) return false;
    ROOST_TRY(out, getter_.get(*owner, item));
    return true;
  }

 private:
  Getter getter_;
};

class MapFilter : public Generator {
 public:
  MapFilter(Value input, const Filter& filter, Arguments arguments)
      : Generator(std::move(input), true), filter_(filter), arguments_(std::move(arguments)) {}
  Result<bool> next(Value& out) override {
    Value item;
    ROOST_TRY(const bool has_more, next_input(item));
    if (!has_more) return false;
    ROOST_TRY(out, apply_filter(*owner, filter_, item, arguments_));
    return true;
  }

 private:
  const Filter& filter_;
  Arguments arguments_;
};

class Select : public Generator {
 public:
  // Without a test: the truth of the value.
  Select(Value input, Getter getter, const Test* test, Arguments arguments, bool is_wanted)
      : Generator(std::move(input), true),
        getter_(std::move(getter)),
        test_(test),
        arguments_(std::move(arguments)),
        is_wanted_(is_wanted) {}
  Result<bool> next(Value& out) override {
    while (true) {
      ROOST_TRY(const bool has_more, next_input(out));
      if (!has_more) return false;
      ROOST_TRY(const Value subject, getter_.get(*owner, out));
      bool holds = truth(subject);
      if (test_ != nullptr) {
        ROOST_TRY(holds, apply_test(*owner, *test_, subject, arguments_));
      }
      if (holds == is_wanted_) return true;
    }
  }

 private:
  Getter getter_;
  const Test* test_;
  Arguments arguments_;
  bool is_wanted_;
};

class Unique : public Generator {
 public:
  Unique(Value input, Getter getter)
      : Generator(std::move(input), false), getter_(std::move(getter)) {}
  Result<bool> next(Value& out) override {
    while (true) {
      ROOST_TRY(const bool has_more, next_input(out));
      if (!has_more) return false;
      ROOST_TRY(const Value key, getter_.get(*owner, out));
      ROOST_TRY(const bool is_new, add(key));
      if (is_new) return true;
    }
  }

 private:
  Result<bool> add(const Value& key) {
    if (!is_hashable(key)) return refuse("the filter 'unique' over values without a hash");
    const size_t size = sizeof(Value) + (key.is_string() ? key.text().size() : 0);
    ROOST_TRY_DO(owner->take(size));
    n_bytes += size;
    if (key.is_string()) return texts_.insert(key.text()).second;
    for (const Value& other : others_) {
      ROOST_TRY(const bool is_equal, equals(*owner, other, key));
      if (is_equal) return false;
    }
    others_.push_back(key);
    return true;
  }

  Getter getter_;
  std::set<std::string> texts_;
  std::vector<Value> others_;
};

Result<Value> string_argument(const Value* argument, std::string_view filter) {
  if (argument != nullptr && argument->is_string()) return *argument;
  return refuse(fmt::format("the filter '{}' needs a name", filter));
}

Result<Value> select_by(Heap& heap, const Value& input, const Arguments& arguments,
                        bool has_attribute, bool is_wanted) {
  Arguments rest = arguments;
  Getter getter;
  if (has_attribute) {
    if (rest.positional.empty()) return refuse("the filter 'selectattr' needs an attribute");
    ROOST_TRY(getter, Getter::make(heap, &rest.positional[0]));
    rest.positional.erase(rest.positional.begin());
  }
  const Test* test = nullptr;
  if (!rest.positional.empty()) {
    ROOST_TRY(const Value name, string_argument(&rest.positional[0], "select"));
    test = find_test(name.text());
    if (test == nullptr) return refuse(fmt::format("no test '{}'", name.text()));
    rest.positional.erase(rest.positional.begin());
  }
  return make_generator<Select>(heap, input, std::move(getter), test, std::move(rest), is_wanted);
}

// Before the first of equal extremes nothing else is taken, as min() and max() do.
Result<Value> extreme(Heap& heap, const Value& input, const Bound& args, bool is_max) {
  ROOST_TRY(const Getter getter, Getter::make(heap, args[1], !flag_argument(args[0], false)));
  ROOST_TRY(const std::vector<Value> items, to_vector(heap, input));
  Value best, best_key;
  for (size_t i = 0; i < items.size(); ++i) {
    ROOST_TRY(const Value key, getter.get(heap, items[i]));
    if (i > 0) {
      ROOST_TRY(const auto order, compare(heap, key, best_key));
      if (!(is_max ? order > 0 : order < 0)) continue;
    }
    best = items[i];
    best_key = key;
  }
  return best;
}

// The key of the filter "sort": a list of what each of the attributes "a,b" gives. One attribute
// makes a list too: in lists, equal values without an order do not need one.
Result<Value> multi_key(Heap& heap, const std::vector<Getter>& getters, const Value& item) {
  std::vector<Value> keys;
  for (const Getter& getter : getters) {
    ROOST_TRY(Value key, getter.get(heap, item));
    keys.push_back(std::move(key));
  }
  return heap.list(std::move(keys));
}

Result<std::vector<Getter>> multi_getters(Heap& heap, const Value* attribute, bool ignores_case) {
  std::vector<Getter> getters;
  if (attribute != nullptr && attribute->is_string()) {
    for (const std::string_view part : split(attribute->text(), ",", -1)) {
      ROOST_TRY(const Value name, heap.string(std::string(part)));
      ROOST_TRY(Getter getter, Getter::make(heap, &name, ignores_case));
      getters.push_back(std::move(getter));
    }
    return getters;
  }
  ROOST_TRY(Getter getter, Getter::make(heap, attribute, ignores_case));
  getters.push_back(std::move(getter));
  return getters;
}

}  // namespace

Result<Value> filter_list(Heap& heap, const Value& input, const Bound&) {
  ROOST_TRY(std::vector<Value> items, to_vector(heap, input));
  return heap.list(std::move(items));
}

Result<Value> filter_first(Heap& heap, const Value& input, const Bound&) {
  ROOST_TRY(const Ref<IteratorObject> iterator, iterate(heap, input));
  Value item;
  ROOST_TRY_DO(iterator->next(item));
  return item;
}

Result<Value> filter_last(Heap& heap, const Value& input, const Bound&) {
  if (input.is(Kind::kIterator)) return refuse("the filter 'last' over a generator");
  ROOST_TRY(const std::vector<Value> items, to_vector(heap, input));
  return items.empty() ? Value() : items.back();
}

Result<Value> filter_join(Heap& heap, const Value& input, const Bound& args) {
  std::string separator;
  if (args[0] != nullptr) {
    ROOST_TRY(separator, to_text(heap, *args[0]));
  }
  ROOST_TRY(const Getter getter, Getter::make(heap, args[1]));
  ROOST_TRY(const Ref<IteratorObject> iterator, iterate(heap, input));
  std::string out;
  for (bool is_first = true;; is_first = false) {
    Value item;
    ROOST_TRY(const bool has_more, iterator->next(item));
    if (!has_more) return heap.string(std::move(out));
    if (!is_first) {
      ROOST_TRY_DO(heap.check_text_size(out.size() + separator.size()));
      ROOST_TRY_DO(heap.spend_bytes(separator.size()));
      out += separator;
    }
    ROOST_TRY(item, getter.get(heap, item));
    if (item.is_markup()) return refuse("text marked safe in the filter 'join'");
    ROOST_TRY_DO(append_text(heap, item, out));
  }
}

Result<Value> filter_items(Heap& heap, const Value& input, const Bound&) {
  Value view = input;
  if (input.is(Kind::kDict)) {
    ROOST_TRY(view, heap.dict_view(input, DictViewObject::What::kItems));
  } else if (!input.is(Kind::kUndefined)) {
    return refuse(fmt::format("the filter 'items' over a '{}'", type_name(input)));
  }
  ROOST_TRY(const Ref<IteratorObject> iterator, iterate(heap, view));
  return Value(Kind::kIterator, Ref<Object>(iterator.get()));
}

Result<Value> filter_dictsort(Heap& heap, const Value& input, const Bound& args) {
  if (!input.is(Kind::kDict))
    return refuse(fmt::format("the filter 'dictsort' over a '{}'", type_name(input)));
  bool by_value = false;
  if (args[1] != nullptr) {
    by_value = args[1]->is_string() && args[1]->text() == "value";
    if (!by_value && !(args[1]->is_string() && args[1]->text() == "key"))
      return refuse("dictsort takes 'key' or 'value'");
  }
  const Value none = Value::none();
  ROOST_TRY(const Getter fold, Getter::make(heap, &none, !flag_argument(args[0], false)));
  std::vector<Keyed> keyed;
  for (const Entry& entry : input.dict().entries) {
    ROOST_TRY(Value key, fold.get(heap, by_value ? entry.second : entry.first));
    ROOST_TRY(Value item, heap.tuple({entry.first, entry.second}));
    keyed.push_back({std::move(key), std::move(item)});
  }
  ROOST_TRY_DO(sort_keyed(heap, keyed, flag_argument(args[2], false)));
  return items_of(heap, std::move(keyed));
}

Result<Value> filter_sort(Heap& heap, const Value& input, const Bound& args) {
  ROOST_TRY(const std::vector<Getter> getters,
            multi_getters(heap, args[2], !flag_argument(args[1], false)));
  ROOST_TRY(const std::vector<Value> items, to_vector(heap, input));
  std::vector<Keyed> keyed;
  for (const Value& item : items) {
    ROOST_TRY(Value key, multi_key(heap, getters, item));
    keyed.push_back({std::move(key), item});
  }
  ROOST_TRY_DO(sort_keyed(heap, keyed, flag_argument(args[0], false)));
  return items_of(heap, std::move(keyed));
}

Result<Value> filter_unique(Heap& heap, const Value& input, const Bound& args) {
  ROOST_TRY(Getter getter, Getter::make(heap, args[1], !flag_argument(args[0], false)));
  return make_generator<Unique>(heap, input, std::move(getter));
}

Result<Value> filter_min(Heap& heap, const Value& input, const Bound& args) {
  return extreme(heap, input, args, false);
}

Result<Value> filter_max(Heap& heap, const Value& input, const Bound& args) {
  return extreme(heap, input, args, true);
}

Result<Value> filter_sum(Heap& heap, const Value& input, const Bound& args) {
  ROOST_TRY(const Getter getter, Getter::make(heap, args[0]));
  Value sum = args[1] != nullptr ? *args[1] : Value::integer(0);
  if (sum.is_string()) return refuse("the filter 'sum' over strings");
  ROOST_TRY(const std::vector<Value> items, to_vector(heap, input));
  for (const Value& item : items) {
    ROOST_TRY(const Value term, getter.get(heap, item));
    ROOST_TRY(sum, compute(heap, Arithmetic::kAdd, sum, term));
  }
  return sum;
}

Result<Value> filter_reverse(Heap& heap, const Value& input, const Bound&) {
  if (input.is_string()) {
    const Value back = Value::integer(-1);
    return get_slice(heap, input, nullptr, nullptr, &back);
  }
  ROOST_TRY(std::vector<Value> items, to_vector(heap, input));
  std::reverse(items.begin(), items.end());
  ROOST_TRY(const Value list, heap.list(std::move(items)));
  if (input.is(Kind::kIterator)) return list;
  ROOST_TRY(const Ref<IteratorObject> iterator, iterate(heap, list));
  return Value(Kind::kIterator, Ref<Object>(iterator.get()));
}

Result<Value> filter_map(Heap& heap, const Value& input, const Arguments& arguments) {
  if (!arguments.positional.empty()) {
    Arguments rest = arguments;
    ROOST_TRY(const Value name, string_argument(&rest.positional[0], "map"));
    rest.positional.erase(rest.positional.begin());
    const Filter* filter = find_filter(name.text());
    if (filter == nullptr) return refuse(fmt::format("no filter '{}'", name.text()));
    return make_generator<MapFilter>(heap, input, *filter, std::move(rest));
  }
  ROOST_TRY(const Bound bound, bind_arguments(arguments, {"attribute", "default"}));
  if (bound[0] == nullptr) return refuse("the filter 'map' needs a filter or an attribute");
  ROOST_TRY(Getter getter, Getter::make(heap, bound[0]));
  if (bound[1] != nullptr) getter.set_default(*bound[1]);
  return make_generator<MapAttribute>(heap, input, std::move(getter));
}

Result<Value> filter_select(Heap& heap, const Value& input, const Arguments& arguments) {
  return select_by(heap, input, arguments, false, true);
}

Result<Value> filter_reject(Heap& heap, const Value& input, const Arguments& arguments) {
  return select_by(heap, input, arguments, false, false);
}

Result<Value> filter_selectattr(Heap& heap, const Value& input, const Arguments& arguments) {
  return select_by(heap, input, arguments, true, true);
}

Result<Value> filter_rejectattr(Heap& heap, const Value& input, const Arguments& arguments) {
  return select_by(heap, input, arguments, true, false);
}

}  // namespace roost::jinja
