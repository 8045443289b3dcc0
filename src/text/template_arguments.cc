#include "text/template_arguments.h"

#include <algorithm>

#include <fmt/core.h>

namespace roost::jinja {

Result<std::vector<const Value*>> bind_arguments(const Arguments& arguments,
                                                 const std::vector<std::string_view>& parameters) {
  std::vector<const Value*> bound(parameters.size(), nullptr);
  if (arguments.positional.size() > parameters.size())
    return refuse(fmt::format("{} arguments where at most {} are taken",
                              arguments.positional.size(), parameters.size()));
  for (size_t i = 0; i < arguments.positional.size(); ++i) bound[i] = &arguments.positional[i];
  for (const auto& [name, value] : arguments.named) {
    const auto place = std::find(parameters.begin(), parameters.end(), name);
    if (place == parameters.end()) return refuse(fmt::format("no parameter '{}'", name));
    const Value*& slot = bound[static_cast<size_t>(place - parameters.begin())];
    if (slot != nullptr) return refuse(fmt::format("two values for the parameter '{}'", name));
    slot = &value;
  }
  return bound;
}

Result<int64_t> int_argument(const Value* argument, int64_t otherwise) {
  if (argument == nullptr) return otherwise;
  if (argument->is_integral()) return argument->as_int();
  return refuse(fmt::format("an argument is '{}', not an integer", type_name(*argument)));
}

bool flag_argument(const Value* argument, bool otherwise) {
  return argument == nullptr ? otherwise : truth(*argument);
}

bool is_absent_or_none(const Value* argument) {
  return argument == nullptr || argument->is(Kind::kNone);
}

}  // namespace roost::jinja
