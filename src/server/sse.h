// Server-sent events: one record a line of JSON.
#pragma once

#include <string>
#include <string_view>

namespace roost::sse {

std::string data(std::string_view one_line);                          // "data: …\n\n"
std::string comment(std::string_view one_line);                       // ": …\n\n"
std::string event(std::string_view type, std::string_view one_line);  // "event: …\ndata: …\n\n"

}  // namespace roost::sse
