// How a refusal ends a command.
#pragma once

#include "base/result.h"

namespace roost {

constexpr int kExitRefused = 1, kExitBadCommandLine = 2, kExitDeviceLost = 3;

// Says what was refused on stderr; returns the exit status that goes with it (docs/SERVICE.md).
int complain(const Error& error);

}  // namespace roost
