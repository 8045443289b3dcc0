// Framing of server-sent events.
#include "server/sse.h"

namespace roost::sse {

std::string data(std::string_view one_line) {
  return std::string("data: ").append(one_line).append("\n\n");
}

std::string comment(std::string_view one_line) {
  return std::string(": ").append(one_line).append("\n\n");
}

std::string event(std::string_view type, std::string_view one_line) {
  return std::string("event: ").append(type).append("\n").append(data(one_line));
}

}  // namespace roost::sse
