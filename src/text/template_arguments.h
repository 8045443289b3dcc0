// Arguments of filters, tests, methods and functions, and their binding to parameters.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/template_value.h"

namespace roost::jinja {

struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;
};

// One place for each parameter: null where the call leaves it out. Refuses what fits no parameter.
Result<std::vector<const Value*>> bind_arguments(const Arguments& arguments,
                                                 const std::vector<std::string_view>& parameters);

// Bound arguments as plain values, with their defaults.
Result<int64_t> int_argument(const Value* argument, int64_t otherwise);
bool flag_argument(const Value* argument, bool otherwise);
bool is_absent_or_none(const Value* argument);

}  // namespace roost::jinja
