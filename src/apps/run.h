// roost run MODEL: one reply on stdout, or a chat in the terminal.
#pragma once

#include "apps/command_line.h"

namespace roost {

// Returns the process's exit status.
int run_run(const CommandLine& line);

}  // namespace roost
