// roost serve MODEL: the server, from its first socket to its last byte.
#pragma once

#include "apps/command_line.h"

namespace roost {

// Returns the process's exit status.
int run_serve(const CommandLine& line);

}  // namespace roost
