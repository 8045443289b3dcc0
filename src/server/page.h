// The page at `/`: says that the server runs and how to call it.
#pragma once

#include <string>
#include <string_view>

namespace roost {

// HTML that names the served model; `model_id` empty while none is served.
std::string start_page(std::string_view model_id);

}  // namespace roost
