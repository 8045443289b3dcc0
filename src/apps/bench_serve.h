// roost bench serve TARGET: load over HTTP, with the figures of docs/SERVER.md, benchmark.
#pragma once

#include "apps/command_line.h"

namespace roost {

// Returns the process's exit status.
int run_bench_serve(const CommandLine& line);

}  // namespace roost
