// The log: one line an event on stderr, key=value, no user content above the debug level.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>

namespace roost {

enum class LogLevel { kError, kWarning, kInfo, kDebug };

struct LogField {
  std::string_view key;
  std::string value;
};

enum class LogFormat { kText, kJson };

void set_log_level(LogLevel level);     // at start, before threads
void set_log_format(LogFormat format);  // too
// "2026-01-02T03:04:05.678Z info loaded weights bytes=15373736 ms=12"; thread-safe, one write a
// line. As JSON: {"ts":…,"level":…,"event":…} and the fields, all of them strings.
void log(LogLevel level, std::string_view event, std::initializer_list<LogField> fields = {});

}  // namespace roost
