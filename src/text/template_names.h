// Decides for each scope of a template which names are its own, and which are read from outside.
#pragma once

#include "base/result.h"
#include "text/template_ast.h"

namespace roost::jinja {

// Fills Scoped::unset everywhere and Program::variables. Refuses template.feature for global
// functions and names with a meaning of their own that are not supported.
Result<void> resolve_names(Program& program);

}  // namespace roost::jinja
