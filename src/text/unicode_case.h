// Upper, lower and title case of Unicode text and which code points print, as Python's str has
// them.
#pragma once

#include <string>
#include <string_view>

namespace roost {

std::string to_upper(std::string_view text);
std::string to_lower(std::string_view text);  // with the final sigma
std::string to_title(std::string_view text);  // str.title: a cased letter after none begins a word
std::string capitalize(std::string_view text);  // first letter in title case, the rest lower

bool is_printable(char32_t code_point);  // str.isprintable: what repr() shows as it is

}  // namespace roost
