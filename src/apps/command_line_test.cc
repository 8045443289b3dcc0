// The table of flags as a person meets it.
#include "apps/command_line.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>

namespace roost {
namespace {

Result<CommandLine> parse(std::vector<const char*> words) {
  words.insert(words.begin(), "roost");
  return parse_command_line(static_cast<int>(words.size()), words.data());
}

TEST(CommandLine, serve_reads_its_flags_and_keeps_defaults) {
  const Result<CommandLine> line =
      parse({"serve", "--alias", "a", "models/x", "--alias", "b", "--port", "0", "--strict-model"});
  ASSERT_TRUE(line) << to_string(line.error());
  EXPECT_EQ(line->command, kServe);
  EXPECT_EQ(line->model, "models/x");
  EXPECT_EQ(line->flags.alias, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(line->flags.port, 0);
  EXPECT_TRUE(line->flags.strict_model);
  EXPECT_EQ(line->flags.host, "127.0.0.1");
  EXPECT_EQ(line->flags.queue_size, 64);
}

TEST(CommandLine, run_tells_absent_from_zero) {
  const Result<CommandLine> line =
      parse({"run", "m", "-p", "", "--temperature", "0", "--seed", "18446744073709551615"});
  ASSERT_TRUE(line) << to_string(line.error());
  EXPECT_EQ(line->command, kRun);
  EXPECT_EQ(line->flags.prompt, "");
  EXPECT_EQ(line->flags.temperature, 0.0);
  EXPECT_EQ(line->flags.top_p, std::nullopt);
  EXPECT_EQ(line->flags.seed, UINT64_MAX);
  EXPECT_EQ(parse({"run", "m"})->flags.prompt, std::nullopt);
}

TEST(CommandLine, synth_takes_a_shape_and_a_folder) {
  const Result<CommandLine> line = parse({"synth", "tiny", "out", "--layers", "4"});
  ASSERT_TRUE(line) << to_string(line.error());
  EXPECT_EQ(line->command, kSynth);
  EXPECT_EQ(line->shape, "tiny");
  EXPECT_EQ(line->model, "out");
  EXPECT_EQ(line->flags.layers, 4);
}

TEST(CommandLine, what_is_not_in_the_table_is_refused) {
  EXPECT_EQ(parse({"serve", "m", "--no-such-flag"}).error().refusal, Refusal::FlagUnknown);
  EXPECT_EQ(parse({"run", "m", "--port", "1"}).error().refusal, Refusal::FlagUnknown);
  for (const std::vector<const char*>& words :
       {std::vector<const char*>{}, {"serve"}, {"serve", "m", "--port", "x"}, {"sing", "m"}})
    EXPECT_FALSE(parse(words));
}

TEST(CommandLine, help_lists_the_flags_of_a_command) {
  const Result<CommandLine> line = parse({"run", "--help"});
  ASSERT_TRUE(line) << to_string(line.error());
  ASSERT_TRUE(line->text_to_print);
  EXPECT_NE(line->text_to_print->find("--temperature"), std::string::npos);
  EXPECT_EQ(line->text_to_print->find("--port"), std::string::npos);
  EXPECT_NE(parse({"--version"})->text_to_print->find("roost "), std::string::npos);
}

TEST(CommandLine, a_config_file_sets_flags_and_the_command_line_wins) {
  const std::string path = testing::TempDir() + "/roost_config_test.toml";
  std::ofstream(path) << "[serve]\nport = 9000\nqueue-size = 5\nalias = [\"a\", \"b\"]\n"
                         "strict-model = true\n";
  const Result<CommandLine> line =
      parse({"serve", "m", "--config", path.c_str(), "--queue-size", "7"});
  ASSERT_TRUE(line) << to_string(line.error());
  EXPECT_EQ(line->model, "m");
  EXPECT_EQ(line->flags.port, 9000);
  EXPECT_EQ(line->flags.queue_size, 7);
  EXPECT_EQ(line->flags.alias, (std::vector<std::string>{"a", "b"}));
  EXPECT_TRUE(line->flags.strict_model);
  EXPECT_FALSE(parse({"serve", "m", "--config", "/no/such/file"}));
  std::ofstream(path) << "[serve]\nno-such-flag = 1\n";
  EXPECT_FALSE(parse({"serve", "m", "--config", path.c_str()}));
  std::remove(path.c_str());
}

TEST(CommandLine, the_printed_config_reads_back) {
  const Result<CommandLine> line =
      parse({"serve", "m", "--port", "9001", "--alias", "x y", "--print-config"});
  ASSERT_TRUE(line) << to_string(line.error());
  ASSERT_TRUE(line->text_to_print);
  const std::string path = testing::TempDir() + "/roost_printed_config_test.toml";
  std::ofstream(path) << *line->text_to_print;
  const Result<CommandLine> again = parse({"serve", "m", "--config", path.c_str()});
  ASSERT_TRUE(again) << to_string(again.error()) << *line->text_to_print;
  EXPECT_EQ(again->flags.port, 9001);
  EXPECT_EQ(again->flags.alias, (std::vector<std::string>{"x y"}));
  EXPECT_EQ(again->flags.keepalive, 5);
  std::remove(path.c_str());
}

}  // namespace
}  // namespace roost
