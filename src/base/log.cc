#include "base/log.h"

#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <ctime>

#include <fmt/core.h>

#include "base/json.h"
#include "base/utf8.h"

namespace roost {
namespace {

std::atomic<LogLevel> level_shown{LogLevel::kInfo};
std::atomic<LogFormat> format_used{LogFormat::kText};

std::string_view name_of(LogLevel level) {
  switch (level) {
    case LogLevel::kError:
      return "error";
    case LogLevel::kWarning:
      return "warning";
    case LogLevel::kInfo:
      return "info";
    case LogLevel::kDebug:
      return "debug";
  }
  return "";
}

std::string time_now() {
  const auto since_epoch = std::chrono::system_clock::now().time_since_epoch();
  const int64_t ms = std::chrono::floor<std::chrono::milliseconds>(since_epoch).count();
  const std::time_t seconds = ms / 1000;
  std::tm utc{};
  gmtime_r(&seconds, &utc);
  return fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:03}Z", utc.tm_year + 1900,
                     utc.tm_mon + 1, utc.tm_mday, utc.tm_hour, utc.tm_min, utc.tm_sec, ms % 1000);
}

bool is_plain(std::string_view value) {
  for (const char c : value)
    if (c <= ' ' || c == '"' || c == '=' || c == '\\' || c == '\x7F') return false;
  return !value.empty();
}

// A value that could be taken for something else is quoted; no byte of it ends the line or reaches
// a terminal as a control.
void append_value(std::string_view raw, std::string& line) {
  const std::string value = replace_invalid_utf8(raw);
  bool is_ascii_plain = is_plain(value);
  for (const char c : value) is_ascii_plain = is_ascii_plain && static_cast<signed char>(c) > 0;
  if (is_ascii_plain) {
    line += value;
    return;
  }
  line += '"';
  for (size_t at = 0; at < value.size();) {
    const Utf8Unit unit = read_utf8(value, at);
    const char32_t c = unit.code_point;
    const bool is_control = c < 0x20 || (c >= 0x7F && c < 0xA0) || c == 0x2028 || c == 0x2029;
    if (c == '\n') {
      line += "\\n";
    } else if (is_control) {
      line += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
    } else {
      if (c == '"' || c == '\\') line += '\\';
      line.append(value, at, unit.n_bytes);
    }
    at += unit.n_bytes;
  }
  line += '"';
}

// Nothing of a value but what JSON allows: no invalid UTF-8, no controls.
std::string json_line(LogLevel level, std::string_view event,
                      std::initializer_list<LogField> fields) {
  std::string line = "{";
  const auto add = [&](std::string_view key, std::string_view value) {
    if (line.size() > 1) line += ',';
    json::write_string(key, line);
    line += ':';
    json::write_string(replace_invalid_utf8(value), line);
  };
  add("ts", time_now());
  add("level", name_of(level));
  add("event", event);
  for (const LogField& field : fields) add(field.key, field.value);
  return line + "}\n";
}

void write_whole(std::string_view line) {
  while (!line.empty()) {
    const ssize_t n = ::write(STDERR_FILENO, line.data(), line.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return;  // nowhere to say that the log cannot be written
    line.remove_prefix(static_cast<size_t>(n));
  }
}

}  // namespace

void set_log_level(LogLevel level) {
  level_shown = level;
}

void set_log_format(LogFormat format) {
  format_used = format;
}

void log(LogLevel level, std::string_view event, std::initializer_list<LogField> fields) {
  if (level > level_shown.load(std::memory_order_relaxed)) return;
  if (format_used.load(std::memory_order_relaxed) == LogFormat::kJson)
    return write_whole(json_line(level, event, fields));
  std::string line = time_now();
  line += ' ';
  line += name_of(level);
  line += ' ';
  line += event;
  for (const LogField& field : fields) {
    line += ' ';
    line += field.key;
    line += '=';
    append_value(field.value, line);
  }
  line += '\n';
  write_whole(line);
}

}  // namespace roost
