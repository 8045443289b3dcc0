// The command line: one table of flags (flags.def) read into one struct.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"

namespace roost {

enum Command : unsigned { kServe = 1, kRun = 2, kBench = 4, kInspect = 8, kSynth = 16 };

struct Flags {
#define ROOST_FLAG(commands, field, type, initial, spelling, value, help) type field = initial;
#include "apps/flags.def"
#undef ROOST_FLAG
};

struct CommandLine {
  Command command = kServe;
  std::string model;  // a folder; synth: where the checkpoint goes
  std::string shape;  // synth only
  Flags flags;
  std::optional<std::string> text_to_print;  // help or version was asked for: print it and end
};

// Refuses flag.unknown and flag.value.
Result<CommandLine> parse_command_line(int argc, const char* const* argv);

}  // namespace roost
