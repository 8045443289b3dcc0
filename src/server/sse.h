// Server-sent events: one record per event, comments between them.
#pragma once

#include <string>
#include <string_view>

namespace roost::sse {

std::string data(std::string_view one_line);     // "data: …\n\n"
std::string comment(std::string_view one_line);  // ": …\n\n"

}  // namespace roost::sse
