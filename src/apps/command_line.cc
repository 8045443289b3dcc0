// Reading the command line with CLI11.
#include "apps/command_line.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>

#include "server/version.h"

namespace roost {

namespace {

struct CommandName {
  Command command;
  const char* name;
  const char* help;
};

constexpr CommandName kCommands[] = {
    {kServe, "serve", "answer over HTTP"},
    {kRun, "run", "one reply on stdout, or a chat in the terminal"},
    {kBench, "bench", "prompt and decode speed as shares of what the machine can do"},
    {kInspect, "inspect", "what is in a checkpoint, and which kernels will run"},
    {kSynth, "synth", "a random checkpoint of a published geometry"},
};

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

Result<CommandLine> parse_command_line(int argc, const char* const* argv) {
  CommandLine out;
  CLI::App app("A local inference server for the Qwen3.5 family.", "roost");
  app.set_version_flag("--version", fmt::format("roost {}", kVersion));
  app.require_subcommand(1);
  app.set_config("--config", "", "file of flags, in a section [serve]; the command line wins");
  app.allow_config_extras(CLI::config_extras_mode::error);  // an unknown flag in it is refused
  bool prints_config = false;
  CLI::App* serve = nullptr;
  for (const CommandName& command : kCommands) {
    CLI::App* sub = app.add_subcommand(command.name, command.help);
    if (command.command == kSynth) {
      sub->add_option("SHAPE", out.shape, "ornith-122b, 35b-a3b, 27b or tiny")->required();
      sub->add_option("DIR", out.model, "folder of the new checkpoint")->required();
    } else {
      const char* help =
          command.command == kBench
              ? "folder of a checkpoint, or synth:SHAPE: random weights, made in place"
              : "folder of a checkpoint, as published";
      sub->add_option("MODEL", out.model, help)->required();
    }
    add_flags(*sub, command.command, out.flags);
    if (command.command == kServe) {
      sub->allow_config_extras(CLI::config_extras_mode::error);
      sub->fallthrough();  // --config belongs to the program
      sub->add_flag("--print-config", prints_config, "print the flags as such a file, and end");
      serve = sub;
    }
    sub->callback([&out, &command] { out.command = command.command; });
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
  return out;
}

}  // namespace roost
