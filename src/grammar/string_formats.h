// The formats of JSON schema strings, as regular expressions.
#pragma once

#include <optional>
#include <string_view>

namespace roost {

// An expression of the whole string; nothing for a format that is not enforced.
std::optional<std::string_view> pattern_of_format(std::string_view format);

}  // namespace roost
