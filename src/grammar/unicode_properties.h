// General categories and scripts of code points, for \p{…} in expressions.
#pragma once

#include <optional>
#include <string_view>

#include "grammar/code_points.h"

namespace roost {

// By the name between the braces: a general category ("Lu", "L", "Uppercase_Letter", with or
// without "gc=" or "General_Category="), or a script ("Script=Greek", "sc=Grek", "Greek"). Nothing
// for any other name.
std::optional<CodePoints> unicode_property(std::string_view name);

}  // namespace roost
