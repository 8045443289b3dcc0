// Reading the command line with CLI11.
#include "apps/command_line.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>

#include "server/version.h"

namespace roost {

namespace {

void add_flag(CLI::App& app, const char* spelling, bool& field, const char*, const char* help) {
  app.add_flag(spelling, field, help);
}

template <class T>
void add_flag(CLI::App& app, const char* spelling, T& field, const char* value, const char* help) {
  CLI::Option* option = app.add_option(spelling, field, help);
  option->type_name(value);
  // A list takes one value each time it is written, so that MODEL may follow.
  if constexpr (std::is_same_v<T, std::vector<std::string>>) option->allow_extra_args(false);
  if constexpr (std::is_arithmetic_v<T>) option->capture_default_str();
}

void add_flags(CLI::App& app, Command command, Flags& flags) {
#define ROOST_FLAG(commands, field, type, initial, spelling, value, help) \
  if ((commands) & command) add_flag(app, spelling, flags.field, value, help);
#include "apps/flags.def"
#undef ROOST_FLAG
}

// The command with its arguments and flags. roost bench has a command of its own below it.
CLI::App& add_command(CLI::App& app, const CommandName& command, CommandLine& out) {
  CLI::App* sub = app.add_subcommand(command.name, command.help);
  if (command.command == kSynth) {
    sub->add_option("SHAPE", out.shape, "ornith-122b, 35b-a3b, 27b or tiny")->required();
    sub->add_option("DIR", out.model, "folder of the new checkpoint")->required();
  } else if (command.command == kCompletion) {
    sub->add_option("SHELL", out.shape, "bash, zsh or fish")->required();
  } else if (command.command != kMan) {
    CLI::Option* model = sub->add_option(command.argument, out.model, command.argument_help);
    // Or the name of the command below it.
    if (command.command != kBench) model->required();
  }
  add_flags(*sub, command.command, out.flags);
  sub->final_callback([&out, &command] {
    if (command.command == kBench && out.command == kBenchServe) return;
    out.command = command.command;
  });
  return *sub;
}

// Every flag of the command with its value, as --config reads it.
std::string config_text(const CLI::App& serve) {
  std::string out = "[serve]\n";
  const std::string all = serve.config_to_str(true, false);
  for (size_t at = 0; at < all.size();) {
    const size_t end = std::min(all.find('\n', at), all.size());
    const std::string line = all.substr(at, end - at);
    at = end + 1;
    if (!line.empty() && !line.starts_with("print-config")) out += line + "\n";
  }
  return out;
}

}  // namespace

std::span<const CommandName> commands() {
  static constexpr CommandName kCommands[] = {
      {kServe, "serve", "answer over HTTP", "MODEL", "folder of a checkpoint, as published"},
      {kRun, "run", "one reply on stdout, or a chat in the terminal", "MODEL",
       "folder of a checkpoint, as published"},
      {kBench, "bench", "prompt and decode speed as shares of what the machine can do", "MODEL",
       "folder of a checkpoint, or synth:SHAPE: random weights, made in place"},
      {kBenchServe, "serve", "load over HTTP on a server", "TARGET",
       "address of a running server, http://127.0.0.1:8080, or a folder that is served for each "
       "run"},
      {kInspect, "inspect", "what is in a checkpoint, and which kernels will run", "MODEL",
       "folder of a checkpoint, as published"},
      {kSynth, "synth", "a random checkpoint of a published geometry", "SHAPE DIR",
       "one of ornith-122b, 35b-a3b, 27b, tiny, and the folder of the new checkpoint"},
      {kCompletion, "completion", "completions for a shell, on stdout", "SHELL",
       "bash, zsh or fish"},
      {kMan, "man", "the man page, on stdout", "", ""},
  };
  return kCommands;
}

const CommandName& command_of(Command command) {
  const auto all = commands();
  return *std::find_if(all.begin(), all.end(),
                       [&](const CommandName& one) { return one.command == command; });
}

Result<CommandLine> parse_command_line(int argc, const char* const* argv) {
  CommandLine out;
  CLI::App app("A local inference server for the Qwen3.5 family.", "roost");
  app.set_version_flag("--version", fmt::format("roost {}", kVersion));
  app.require_subcommand(1);
  app.set_config("--config", "", "file of flags, in a section [serve]; the command line wins");
  app.allow_config_extras(CLI::config_extras_mode::error);  // an unknown flag in it is refused
  bool prints_config = false;
  CLI::App* serve = nullptr;
  for (const CommandName& command : commands()) {
    if (command.command == kBenchServe) continue;
    CLI::App& sub = add_command(app, command, out);
    if (command.command == kBench) add_command(sub, command_of(kBenchServe), out);
    if (command.command != kServe) continue;
    sub.allow_config_extras(CLI::config_extras_mode::error);
    sub.fallthrough();  // --config belongs to the program
    sub.add_flag("--print-config", prints_config, "print the flags as such a file, and end");
    serve = &sub;
  }
  try {
    app.parse(argc, argv);
    if (prints_config) out.text_to_print = config_text(*serve);
  } catch (const CLI::CallForHelp&) {
    out.text_to_print = app.help();
  } catch (const CLI::CallForAllHelp&) {
    out.text_to_print = app.help("", CLI::AppFormatMode::All);
  } catch (const CLI::CallForVersion& version) {
    out.text_to_print = fmt::format("{}\n", version.what());
  } catch (const CLI::ExtrasError& error) {
    return Error{Refusal::FlagUnknown, error.what()};
  } catch (const CLI::Error& error) {
    return Error{Refusal::FlagValue, error.what()};
  }
  if (!out.text_to_print && out.command == kBench && out.model.empty())
    return Error{Refusal::FlagValue, "MODEL is required"};
  return out;
}

}  // namespace roost
