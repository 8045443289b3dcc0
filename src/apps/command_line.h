// The command line: one table of flags (flags.def) read into one struct.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"

namespace roost {

enum Command : unsigned {
  kServe = 1,
  kRun = 2,
  kBench = 4,
  kInspect = 8,
  kSynth = 16,
  kBenchServe = 32,  // "bench serve"
  kCompletion = 64,
  kMan = 128
};

struct CommandName {
  Command command;
  const char* name;
  const char* help;
  const char* argument;  // as help spells it
  const char* argument_help;
};
std::span<const CommandName> commands();
const CommandName& command_of(Command command);

struct Flags {
#define ROOST_FLAG(commands, field, type, initial, spelling, value, help) type field = initial;
#include "apps/flags.def"
#undef ROOST_FLAG
};

struct CommandLine {
  Command command = kServe;
  std::string model;  // a folder; synth: where the checkpoint goes
  std::string shape;  // of synth, or the shell of completion
  Flags flags;
  std::optional<std::string> text_to_print;  // help or version was asked for: print it and end
};

// Refuses flag.unknown and flag.value.
Result<CommandLine> parse_command_line(int argc, const char* const* argv);

}  // namespace roost
