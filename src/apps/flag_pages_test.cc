// Every flag is in everything that is made of the table.
#include "apps/flag_pages.h"

#include <gtest/gtest.h>

#include "apps/command_line.h"

namespace roost {
namespace {

// Each flag of the table by its longest spelling.
std::vector<std::string> long_flags() {
  std::vector<std::string> out;
#define ROOST_FLAG(commands, field, type, initial, spelling, value, help) out.push_back(spelling);
#include "apps/flags.def"
#undef ROOST_FLAG
  for (std::string& one : out) one = one.substr(one.rfind("--"));
  return out;
}

size_t n_times(const std::string& text, const std::string& part) {
  size_t n = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++n;
  return n;
}

TEST(FlagPages, every_flag_is_completed_in_every_shell) {
  for (const char* shell : {"bash", "zsh", "fish"}) {
    const Result<std::string> script = completion_script(shell);
    ASSERT_TRUE(script) << shell;
    for (const std::string& flag : long_flags()) {
      const std::string want = std::string(shell) == "fish" ? "-l " + flag.substr(2) : flag;
      EXPECT_NE(script->find(want), std::string::npos) << shell << " " << flag;
    }
    for (const CommandName& command : commands())
      EXPECT_NE(script->find(command.name), std::string::npos) << shell << " " << command.name;
  }
  EXPECT_EQ(completion_script("tcsh").error().refusal, Refusal::FlagValue);
}

TEST(FlagPages, the_man_page_explains_every_flag_of_every_command) {
  const std::string page = man_page();
  EXPECT_TRUE(page.starts_with(".TH ROOST 1"));
  for (const std::string& flag : long_flags()) {
    std::string dashed;
    for (const char c : flag) dashed += c == '-' ? std::string("\\-") : std::string(1, c);
    EXPECT_NE(page.find(dashed), std::string::npos) << flag;
  }
  EXPECT_EQ(n_times(page, ".SS roost "), commands().size());
  EXPECT_NE(page.find(".SS roost bench serve TARGET"), std::string::npos);
}

TEST(FlagPages, values_with_choices_are_offered) {
  EXPECT_NE(
      completion_script("bash")->find("--thinking) COMPREPLY=($(compgen -W 'on off template'"),
      std::string::npos);
  EXPECT_NE(completion_script("zsh")->find("(on off template)"), std::string::npos);
  EXPECT_NE(completion_script("fish")->find("-l thinking -x -a 'on off template'"),
            std::string::npos);
}

TEST(FlagPages, the_commands_are_read_as_they_are_told) {
  const auto parse = [](std::vector<const char*> words) {
    words.insert(words.begin(), "roost");
    return parse_command_line(static_cast<int>(words.size()), words.data());
  };
  EXPECT_EQ(parse({"bench", "m"})->command, kBench);
  EXPECT_EQ(parse({"bench", "m"})->model, "m");
  const Result<CommandLine> load =
      parse({"bench", "serve", "http://127.0.0.1:1", "--concurrency", "1,2", "--runs", "3"});
  ASSERT_TRUE(load) << to_string(load.error());
  EXPECT_EQ(load->command, kBenchServe);
  EXPECT_EQ(load->model, "http://127.0.0.1:1");
  EXPECT_EQ(load->flags.concurrency, "1,2");
  EXPECT_EQ(load->flags.runs, 3);
  EXPECT_FALSE(parse({"bench"}));
  EXPECT_FALSE(parse({"bench", "serve"}));
  EXPECT_EQ(parse({"completion", "zsh"})->shape, "zsh");
  EXPECT_EQ(parse({"man"})->command, kMan);
}

}  // namespace
}  // namespace roost
