#include "apps/flag_pages.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <type_traits>
#include <vector>

#include "apps/command_line.h"
#include "server/version.h"

namespace roost {

namespace {

struct FlagRow {
  unsigned commands;
  bool takes_value;
  std::string_view spelling, value, help;
};

const std::vector<FlagRow>& flag_rows() {
  static const std::vector<FlagRow> kRows = {
#define ROOST_FLAG(commands, field, type, initial, spelling, value, help) \
  {commands, !std::is_same_v<type, bool>, spelling, value, help},
#include "apps/flags.def"
#undef ROOST_FLAG
      // Those that no field of a command holds.
      {kServe, true, "--config", "FILE",
       "file of flags, in a section [serve]; the command line wins"},
      {kServe, false, "--print-config", "", "print the flags as such a file, and end"},
  };
  return kRows;
}

// "-p,--prompt" -> both.
std::vector<std::string_view> spellings_of(const FlagRow& row) {
  std::vector<std::string_view> out;
  for (std::string_view rest = row.spelling; !rest.empty();) {
    const size_t comma = std::min(rest.find(','), rest.size());
    out.push_back(rest.substr(0, comma));
    rest.remove_prefix(std::min(comma + 1, rest.size()));
  }
  return out;
}

// What a shell offers behind the flag: words, files, folders, or nothing.
std::string words_of(const FlagRow& row) {
  std::string out(row.value);
  if (row.value.find('|') == std::string_view::npos) return "";
  std::replace(out.begin(), out.end(), '|', ' ');
  return out;
}

// The commands that stand behind "roost": bench serve stands behind bench.
std::vector<const CommandName*> top_commands() {
  std::vector<const CommandName*> out;
  for (const CommandName& one : commands())
    if (one.command != kBenchServe) out.push_back(&one);
  return out;
}

// bench takes those of bench serve as well, as the word may come later.
bool is_of(const FlagRow& row, const CommandName& command) {
  const unsigned own = command.command == kBench ? unsigned{kBench} | unsigned{kBenchServe}
                                                 : unsigned{command.command};
  return (row.commands & own) != 0;
}

std::string joined(const std::vector<std::string>& words, std::string_view between) {
  std::string out;
  for (const std::string& one : words) {
    if (!out.empty()) out += between;
    out += one;
  }
  return out;
}

std::string command_names(std::string_view between) {
  std::vector<std::string> out;
  for (const CommandName* one : top_commands()) out.emplace_back(one->name);
  return joined(out, between);
}

std::string bash_script() {
  std::string out = "# Completions of roost for bash: roost completion bash\n_roost() {\n";
  out += "  local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]} command= i\n";
  out += fmt::format(
      "  for ((i = 1; i < COMP_CWORD; ++i)); do\n    case ${{COMP_WORDS[i]}} in {})\n"
      "      command=${{COMP_WORDS[i]}}; break ;;\n    esac\n  done\n",
      command_names("|"));
  out += "  case $before in\n";
  for (const FlagRow& row : flag_rows()) {
    if (!row.takes_value) continue;
    std::vector<std::string> names;
    for (const std::string_view one : spellings_of(row)) names.emplace_back(one);
    const std::string words = words_of(row);
    const std::string offers = !words.empty()        ? fmt::format("-W '{}' ", words)
                               : row.value == "FILE" ? "-f "
                               : row.value == "DIR"  ? "-d "
                                                     : "";
    out += fmt::format("    {}) COMPREPLY=({}); return ;;\n", joined(names, "|"),
                       offers.empty() ? "" : fmt::format("$(compgen {}-- \"$word\")", offers));
  }
  out += "  esac\n  local words=\n  case $command in\n";
  out += fmt::format("    '') words='{} --help --version' ;;\n", command_names(" "));
  for (const CommandName* command : top_commands()) {
    std::vector<std::string> words = {"--help"};
    for (const FlagRow& row : flag_rows())
      if (is_of(row, *command))
        for (const std::string_view one : spellings_of(row)) words.emplace_back(one);
    if (command->command == kBench) words.emplace_back("serve");
    if (command->command == kCompletion) words = {"bash", "zsh", "fish"};
    out += fmt::format("    {}) words='{}' ;;\n", command->name, joined(words, " "));
  }
  out += "  esac\n  COMPREPLY=($(compgen -W \"$words\" -- \"$word\"))\n";
  out += "  [[ $word == -* || -z $command ]] || COMPREPLY+=($(compgen -d -- \"$word\"))\n}\n";
  return out + "complete -o filenames -F _roost roost\n";
}

// For a text inside of single quotes and brackets of zsh's _arguments.
std::string zsh_escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '[' || c == ']' || c == ':') out += '\\';
    if (c == '\'')
      out += "'\\''";
    else
      out += c;
  }
  return out;
}

std::string zsh_script() {
  std::string out =
      "#compdef roost\n# Completions of roost for zsh: roost completion zsh\n_roost() {\n";
  out += "  local -a commands=(\n";
  for (const CommandName* one : top_commands())
    out += fmt::format("    '{}:{}'\n", one->name, zsh_escaped(one->help));
  out += "  )\n  if (( CURRENT == 2 )); then _describe command commands; return; fi\n";
  out += "  local command=$words[2]\n  shift words; (( CURRENT-- ))\n  case $command in\n";
  for (const CommandName* command : top_commands()) {
    out += fmt::format("    {}) _arguments", command->name);
    for (const FlagRow& row : flag_rows()) {
      if (!is_of(row, *command)) continue;
      const std::string words = words_of(row);
      const std::string action = !words.empty()        ? fmt::format("({})", words)
                                 : row.value == "FILE" ? "_files"
                                 : row.value == "DIR"  ? "_files -/"
                                                       : " ";
      for (const std::string_view one : spellings_of(row))
        out += fmt::format(
            " \\\n      '*{}[{}]{}'", one, zsh_escaped(row.help),
            row.takes_value ? fmt::format(":{}:{}", zsh_escaped(row.value), action) : "");
    }
    const char* rest = command->command == kCompletion ? "'1:shell:(bash zsh fish)'"
                       : command->command == kBench    ? "'*:folder or serve:_files -/'"
                                                       : "'*:folder:_files -/'";
    out += fmt::format(" \\\n      {} ;;\n", rest);
  }
  return out + "  esac\n}\n_roost \"$@\"\n";
}

std::string fish_quoted(std::string_view text) {
  std::string out = "'";
  for (const char c : text) {
    if (c == '\'' || c == '\\') out += '\\';
    out += c;
  }
  return out + "'";
}

std::string fish_script() {
  std::string out =
      "# Completions of roost for fish: roost completion fish\ncomplete -c roost -f\n";
  for (const CommandName* one : top_commands())
    out += fmt::format("complete -c roost -n __fish_use_subcommand -a {} -d {}\n", one->name,
                       fish_quoted(one->help));
  for (const CommandName* command : top_commands()) {
    const std::string when =
        fmt::format("complete -c roost -n '__fish_seen_subcommand_from {}'", command->name);
    for (const FlagRow& row : flag_rows()) {
      if (!is_of(row, *command)) continue;
      out += when;
      for (const std::string_view one : spellings_of(row))
        out += one.starts_with("--") ? fmt::format(" -l {}", one.substr(2))
                                     : fmt::format(" -s {}", one.substr(1));
      const std::string words = words_of(row);
      if (row.takes_value) out += row.value == "FILE" || row.value == "DIR" ? " -r -F" : " -x";
      if (!words.empty()) out += fmt::format(" -a {}", fish_quoted(words));
      out += fmt::format(" -d {}\n", fish_quoted(row.help));
    }
    if (command->command == kCompletion) out += when + " -a 'bash zsh fish'\n";
    if (command->command == kBench) out += when + " -a serve\n";
    if (command->argument_help[0] != '\0' && command->command != kCompletion) out += when + " -F\n";
  }
  return out;
}

// For a line of roff: a minus is one, no line begins with a command, and all of it is ASCII.
std::string roff(std::string_view text) {
  constexpr std::string_view kDots = "\xE2\x80\xA6";
  std::string plain(text);
  for (size_t at; (at = plain.find(kDots)) != std::string::npos;)
    plain.replace(at, kDots.size(), "...");
  std::string out;
  if (text.starts_with('.') || text.starts_with('\'')) out += "\\&";
  for (const char c : plain) {
    if (c == '\\')
      out += "\\e";
    else if (c == '-')
      out += "\\-";
    else
      out += c;
  }
  return out;
}

}  // namespace

Result<std::string> completion_script(const std::string& shell) {
  if (shell == "bash") return bash_script();
  if (shell == "zsh") return zsh_script();
  if (shell == "fish") return fish_script();
  return Error{Refusal::FlagValue, fmt::format("have {}, want bash, zsh or fish", shell)};
}

std::string man_page() {
  std::string out = fmt::format(".TH ROOST 1 \"\" \"roost {}\"\n.SH NAME\n", kVersion);
  out += "roost \\- a local inference server for the Qwen3.5 family\n.SH SYNOPSIS\n";
  const auto name_of = [](const CommandName& one) {
    return std::string(one.command == kBenchServe ? "bench " : "") + one.name;
  };
  for (const CommandName& one : commands())
    out += fmt::format(".B roost {}\n.I {} {}\n.br\n", name_of(one), one.argument,
                       one.command == kMan || one.command == kCompletion ? "" : "[flags]");
  out += ".SH COMMANDS\n";
  for (const CommandName& one : commands()) {
    out += fmt::format(".SS roost {} {}\n{}.\n", name_of(one), one.argument, roff(one.help));
    if (one.argument[0] != '\0')
      out += fmt::format(".TP\n.I {}\n{}.\n", one.argument, roff(one.argument_help));
    for (const FlagRow& row : flag_rows()) {
      if ((row.commands & one.command) == 0) continue;
      std::string names;
      for (const std::string_view spelling : spellings_of(row))
        names += (names.empty() ? "" : ", ") + roff(spelling);
      out += fmt::format(".TP\n.B {}{}\n{}.\n", names,
                         row.value.empty() ? "" : " " + roff(row.value), roff(row.help));
    }
  }
  out +=
      ".SH FILES\nA file of flags for \\-\\-config has a section [serve] with a line for each "
      "flag, "
      "its name without the dashes; roost serve \\-\\-print\\-config prints one.\n";
  out +=
      ".SH ENVIRONMENT\n.TP\n.B ROOST_API_KEY\nOne key: of the server, of the client that bench "
      "serve is.\n";
  out += ".SH EXIT STATUS\n0 when all went well, 1 after a refusal, 2 for a bad command line.\n";
  return out;
}

}  // namespace roost
