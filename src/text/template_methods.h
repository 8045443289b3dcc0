// The methods of strings, lists and dicts that a template may call; a call of any other is refused
// when the template is read.
#pragma once

#include <string_view>

#include "text/template_arguments.h"
#include "text/template_value.h"

namespace roost::jinja {

bool is_offered_method(std::string_view name);

// value: a kMethod.
Result<Value> call_method(Heap& heap, const Value& method, const Arguments& arguments);

// text.replace(old, by, n_max) as the filter and the method have it; all if n_max is negative.
Result<Value> replace_text(Heap& heap, std::string_view text, std::string_view old,
                           std::string_view by, int64_t n_max);

}  // namespace roost::jinja
