// The `loop` object of a for statement: how far the loop is, and what comes before and after.
#pragma once

#include <optional>
#include <string_view>

#include "text/template_arguments.h"
#include "text/template_value.h"

namespace roost::jinja {

// Walks an iterable and looks ahead only when it is asked for what lies ahead.
struct LoopObject : Object {
  LoopObject(Value walked, Ref<IteratorObject> walk)
      : iterable(std::move(walked)), iterator(std::move(walk)) {}

  Value iterable;
  Ref<IteratorObject> iterator;
  bool is_filtered = false;
  bool is_over = false;     // no item may be asked for: the filter's scope has ended
  bool is_walking = false;  // an item is being asked for
  int64_t index0 = -1;
  Value previous, current;
  std::optional<Value> ahead;      // looked at, not yet taken
  std::optional<int64_t> n_items;  // known once asked for

  Result<bool> advance();  // false at the end
  Result<bool> look_ahead();
  Result<int64_t> count_items();

 private:
  Result<bool> next_item(Value& item);
};

// Undefined for a name that loops do not have.
Result<Value> loop_attribute(const Value& loop, std::string_view name);
Result<Value> loop_cycle(const Value& loop, const Arguments& arguments);

}  // namespace roost::jinja
