// Framing of server-sent events.
#include "server/sse.h"

namespace roost::sse {

std::string data(std::string_view one_line) {
  return std::string("data: ").append(one_line).append("\n\n");
}

std::string comment(std::string_view one_line) {
  return std::string(": ").append(one_line).append("\n\n");
}

}  // namespace roost::sse
