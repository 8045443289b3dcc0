// The version that answers, fingerprints and the Server line name; equal to CMakeLists.txt's.
#pragma once

#include <string_view>

namespace roost {

inline constexpr std::string_view kVersion = "0.1.0";

}  // namespace roost
