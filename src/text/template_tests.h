// The tests ("x is name") that a template may use; any other is refused when the template is read.
#pragma once

#include <string_view>

#include "text/template_arguments.h"
#include "text/template_value.h"

namespace roost::jinja {

struct Test {
  std::string_view name;
  size_t n_arguments;
  Result<bool> (*run)(Heap& heap, const Value& value, const std::vector<Value>& arguments);
};

const Test* find_test(std::string_view name);  // null if there is none
Result<bool> apply_test(Heap& heap, const Test& test, const Value& value,
                        const Arguments& arguments);

}  // namespace roost::jinja
