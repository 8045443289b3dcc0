#include "base/log.h"

#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

namespace roost {
namespace {

class LogTest : public testing::Test {
 protected:
  void TearDown() override {
    set_log_level(LogLevel::kInfo);
    set_log_format(LogFormat::kText);
  }
};

// Digits as 0: "2026-01-02T03:04:05.678Z" must look like this.
constexpr std::string_view kTimeShape = "0000-00-00T00:00:00.000Z ";

// What follows the time in the only line that was written.
std::string line_of(std::initializer_list<LogField> fields) {
  testing::internal::CaptureStderr();
  log(LogLevel::kInfo, "loaded weights", fields);
  const std::string line = testing::internal::GetCapturedStderr();
  std::string shape = line.substr(0, kTimeShape.size());
  for (char& c : shape)
    if (c >= '0' && c <= '9') c = '0';
  if (shape != kTimeShape || line.find('\n') + 1 != line.size()) return "not one line: " + line;
  return line.substr(kTimeShape.size(), line.size() - kTimeShape.size() - 1);
}

TEST_F(LogTest, a_line_has_time_level_event_and_fields) {
  EXPECT_EQ(line_of({{"bytes", "15373736"}, {"ms", "12"}}),
            "info loaded weights bytes=15373736 ms=12");
  EXPECT_EQ(line_of({}), "info loaded weights");
}

TEST_F(LogTest, a_value_cannot_forge_a_line_a_field_or_a_terminal_control) {
  EXPECT_EQ(line_of({{"path", "a b"}}), R"(info loaded weights path="a b")");
  EXPECT_EQ(line_of({{"path", "x=1"}}), R"(info loaded weights path="x=1")");
  EXPECT_EQ(line_of({{"path", ""}}), R"(info loaded weights path="")");
  EXPECT_EQ(line_of({{"path", "a\nb\"\\\x1b[31m"}}),
            R"(info loaded weights path="a\nb\"\\\u001b[31m")");
  EXPECT_EQ(line_of({{"path",
                      "\xC2\x9B"
                      "31m\u2028"}}),
            R"(info loaded weights path="\u009b31m\u2028")");
  EXPECT_EQ(line_of({{"path", "é\xFF"}}), "info loaded weights path=\"é\uFFFD\"");
}

TEST_F(LogTest, what_is_below_the_level_is_not_written) {
  testing::internal::CaptureStderr();
  log(LogLevel::kDebug, "hidden");
  set_log_level(LogLevel::kError);
  log(LogLevel::kWarning, "hidden");
  log(LogLevel::kError, "shown");
  set_log_level(LogLevel::kDebug);
  log(LogLevel::kDebug, "shown");
  const std::string text = testing::internal::GetCapturedStderr();
  EXPECT_EQ(text.find("hidden"), std::string::npos);
  EXPECT_NE(text.find(" error shown\n"), std::string::npos);
  EXPECT_NE(text.find(" debug shown\n"), std::string::npos);
}

TEST_F(LogTest, lines_of_several_threads_stay_whole) {
  testing::internal::CaptureStderr();
  std::vector<std::thread> threads;
  const std::string value(200, 'x');
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&value] {
      for (int i = 0; i < 50; ++i) log(LogLevel::kInfo, "event", {{"value", value}});
    });
  for (std::thread& thread : threads) thread.join();
  const std::string text = testing::internal::GetCapturedStderr();
  int n_whole = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t end = text.find('\n', at);
    n_whole += text.substr(at + 24, end - at - 24) == " info event value=" + value;
    at = end + 1;
  }
  EXPECT_EQ(n_whole, 200);
}

TEST_F(LogTest, as_json_a_line_is_one_object_whatever_the_values_hold) {
  set_log_format(LogFormat::kJson);
  testing::internal::CaptureStderr();
  log(LogLevel::kWarning, "odd", {{"path", "a\nb\"\\\xFF"}, {"n", "3"}});
  const std::string line = testing::internal::GetCapturedStderr();
  EXPECT_EQ(line.substr(0, 7), "{\"ts\":\"");
  EXPECT_EQ(line.substr(line.find(",\"level\"")),
            ",\"level\":\"warning\",\"event\":\"odd\",\"path\":\"a\\nb\\\"\\\\\uFFFD\","
            "\"n\":\"3\"}\n");
}

}  // namespace
}  // namespace roost
