#include "text/template_loop.h"

namespace roost::jinja {
namespace {

// Marks a loop while its iterable is asked for items: a filter that asks its own loop would walk
// in a circle.
class Walking {
 public:
  explicit Walking(bool& is_walking) : is_walking_(is_walking) { is_walking_ = true; }
  ~Walking() { is_walking_ = false; }
  Walking(const Walking&) = delete;
  Walking& operator=(const Walking&) = delete;

 private:
  bool& is_walking_;
};

LoopObject& object_of(const Value& loop) {
  ROOST_CHECK(loop.is(Kind::kLoop));
  return *static_cast<LoopObject*>(loop.object().get());
}

}  // namespace

Result<bool> LoopObject::next_item(Value& item) {
  if (is_walking) return refuse("a loop's filter asks its own loop");
  if (is_over) return refuse("a loop is asked for items after its end");
  const Walking walking(is_walking);
  return iterator->next(item);
}

Result<bool> LoopObject::advance() {
  Value item;
  if (ahead) {
    item = *std::exchange(ahead, std::nullopt);
  } else {
    ROOST_TRY(const bool has_more, next_item(item));
    if (!has_more) return false;
  }
  ++index0;
  previous = std::move(current);
  current = std::move(item);
  return true;
}

Result<bool> LoopObject::look_ahead() {
  if (ahead) return true;
  Value item;
  ROOST_TRY(const bool has_more, next_item(item));
  if (has_more) ahead = std::move(item);
  return has_more;
}

Result<int64_t> LoopObject::count_items() {
  if (n_items) return *n_items;
  const std::optional<size_t> size = is_filtered ? std::nullopt : length(iterable);
  if (size) {
    n_items = static_cast<int64_t>(*size);
    return *n_items;
  }
  std::vector<Value> rest;
  while (true) {
    Value item;
    ROOST_TRY_DO(owner->spend(1));
    ROOST_TRY(const bool has_more, next_item(item));
    if (!has_more) break;
    rest.push_back(std::move(item));
  }
  n_items = static_cast<int64_t>(rest.size()) + index0 + 1 + (ahead ? 1 : 0);
  ROOST_TRY(const Value list, owner->list(std::move(rest)));
  ROOST_TRY(iterator, iterate(*owner, list));
  return *n_items;
}

Result<Value> loop_attribute(const Value& value, std::string_view name) {
  LoopObject& loop = object_of(value);
  if (name == "index") return Value::integer(loop.index0 + 1);
  if (name == "index0") return Value::integer(loop.index0);
  if (name == "first") return Value::boolean(loop.index0 == 0);
  if (name == "depth") return Value::integer(1);
  if (name == "depth0") return Value::integer(0);
  if (name == "cycle") return loop.owner->method(value, name);
  if (name == "previtem") return loop.index0 == 0 ? Value() : loop.previous;
  if (name == "last" || name == "nextitem") {
    ROOST_TRY(const bool has_more, loop.look_ahead());
    if (name == "last") return Value::boolean(!has_more);
    return has_more ? *loop.ahead : Value();
  }
  if (name == "length" || name == "revindex" || name == "revindex0") {
    ROOST_TRY(const int64_t n, loop.count_items());
    if (name == "length") return Value::integer(n);
    return Value::integer(n - loop.index0 - (name == "revindex" ? 0 : 1));
  }
  if (name == "changed" || name.starts_with("_"))
    return refuse("the loop's '" + std::string(name) + "'");
  return Value();
}

Result<Value> loop_cycle(const Value& value, const Arguments& arguments) {
  const std::vector<Value>& values = arguments.positional;
  if (values.empty() || !arguments.named.empty()) return refuse("loop.cycle takes values");
  return values[static_cast<size_t>(object_of(value).index0) % values.size()];
}

}  // namespace roost::jinja
