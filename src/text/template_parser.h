// Builds the tree of a template from its tokens and refuses by name what is not supported.
#pragma once

#include <string_view>

#include "base/result.h"
#include "text/template_ast.h"

namespace roost::jinja {

// Refuses template.syntax and template.feature, both with the line.
Result<Program> parse(std::string_view source);

}  // namespace roost::jinja
