// The filters that a template may use; any other is refused when the template is read.
#pragma once

#include <string_view>
#include <vector>

#include "text/template_arguments.h"
#include "text/template_value.h"

namespace roost::jinja {

using Bound = std::vector<const Value*>;  // one place for each parameter, null if left out

struct Filter {
  std::string_view name;
  std::vector<std::string_view> parameters;
  Result<Value> (*run)(Heap& heap, const Value& input, const Bound& arguments);
  // Instead of run: takes the name of a filter, a test or an attribute and what belongs to it.
  Result<Value> (*run_by_name)(Heap& heap, const Value& input,
                               const Arguments& arguments) = nullptr;
  // Whether text marked safe goes through as it is. Elsewhere its escaping rules would apply, and
  // the template is refused.
  bool takes_markup = false;
};

const Filter* find_filter(std::string_view name);  // null if there is none
Result<Value> apply_filter(Heap& heap, const Filter& filter, const Value& input,
                           const Arguments& arguments);

}  // namespace roost::jinja
