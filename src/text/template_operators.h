// Arithmetic, comparison, membership and access, as Python and the template language define them.
#pragma once

#include <string_view>

#include "text/template_ast.h"
#include "text/template_value.h"

namespace roost::jinja {

Result<Value> compute(Heap& heap, Arithmetic op, const Value& a, const Value& b);
Result<Value> apply_sign(bool is_minus, const Value& value);
Result<bool> holds(Heap& heap, Comparison op, const Value& a, const Value& b);
Result<bool> contains(Heap& heap, const Value& container, const Value& item);

// value.name: an attribute of the Python type, else an item. Loops are not known here.
Result<Value> get_attribute(Heap& heap, const Value& value, std::string_view name);
// value[index]: an item, else an attribute of that name; undefined if there is neither.
Result<Value> get_item(Heap& heap, const Value& value, const Value& index);
// value[start:stop:step]; null stands for a bound left out.
Result<Value> get_slice(Heap& heap, const Value& value, const Value* start, const Value* stop,
                        const Value* step);

}  // namespace roost::jinja
