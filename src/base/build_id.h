// Which build of this program runs.
#pragma once

#include <string>

namespace roost {

// The build id that the linker wrote into the program, as hex: another one for every other code.
// Empty: the linker wrote none.
std::string build_id();

}  // namespace roost
