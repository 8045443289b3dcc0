// Renders a template: walks its tree over the variables of a request.
#pragma once

#include <cstdint>
#include <string>

#include "base/json.h"
#include "base/result.h"
#include "text/template_ast.h"

namespace roost::jinja {

// variables: an object. Refuses request.template.
Result<std::string> render(const Program& program, const json::Value& variables,
                           int64_t unix_seconds);

}  // namespace roost::jinja
