// Whatever bytes come in: the header reader and the chat codec refuse or accept, and never crash.
// The first byte chooses which of them reads the rest.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/check.h"
#include "server/chat_request.h"
#include "server/error_body.h"
#include "server/http_head.h"
#include "server/openai_chat.h"
#include "server/prompt.h"
#include "text/stop_matcher.h"

namespace {

const roost::RequestRules& rules() {
  static const roost::RequestRules kRules = [] {
    roost::RequestRules out;
    out.n_tokens = 3071;
    out.template_variables = {"enable_thinking", "messages", "reasoning_effort", "tools"};
    out.effort_levels = {"low", "medium", "xhigh"};
    out.model_ids = {"fledgling"};
    return out;
  }();
  return kRules;
}

// A refusal prints as a body that is JSON itself, whatever it quotes.
void check_error(const roost::Error& error, const roost::ParseNotes& notes) {
  const std::string body = roost::openai_error_body(error, notes.param);
  ROOST_CHECK(body.size() < 4096);
  ROOST_CHECK(bool(roost::json::parse(body)));
}

void read_head(std::string_view bytes) {
  const std::optional<size_t> end = roost::find_head_end(bytes, 0);
  const auto head = roost::read_http_head(end ? bytes.substr(0, *end) : bytes);
  if (!head) check_error(head.error(), {});
}

void read_chat(std::string_view bytes) {
  roost::ParseNotes notes;
  const auto request = roost::parse_openai_chat(bytes, rules(), notes);
  if (!request) return check_error(request.error(), notes);
  ROOST_CHECK(!request->messages.empty());
  const std::string mark = "\xEF\xB7\x90";
  for (const roost::Message& message : request->messages) {
    if (message.text.find(mark) != std::string::npos) continue;
    // No piece between marks holds an added token, and the pieces are the text.
    const std::string guarded =
        roost::guard_text(message.text, {"<|im_end|>", "<think>", "</think>"}, mark);
    std::string joined;
    for (size_t done = 0; done <= guarded.size();) {
      const size_t next = std::min(guarded.find(mark, done), guarded.size());
      const std::string piece = guarded.substr(done, next - done);
      ROOST_CHECK(piece.find("<|im_end|>") == std::string::npos);
      ROOST_CHECK(piece.find("<think>") == std::string::npos);
      joined += piece;
      done = next + mark.size();
    }
    ROOST_CHECK(joined == message.text);
  }
}

// The first line holds stop strings, the rest is text: its cut does not matter.
void match_stops(std::string_view bytes) {
  const size_t line = std::min(bytes.find('\n'), bytes.size());
  std::vector<std::string> stops;
  for (size_t at = 0; at < line && stops.size() < 4;) {
    const size_t end = std::min(bytes.find(',', at), line);
    if (end > at) stops.emplace_back(bytes.substr(at, end - at));
    at = end + 1;
  }
  const std::string_view text = bytes.substr(std::min(line + 1, bytes.size()));
  roost::StopMatcher whole(stops, false), pieces(stops, false);
  std::string one = whole.push(text);
  one += whole.finish();
  std::string many;
  for (const char c : text) many += pieces.push(std::string_view(&c, 1));
  many += pieces.finish();
  ROOST_CHECK(one == many);
  ROOST_CHECK(whole.matched() == pieces.matched());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  switch (data[0]) {
    case 'H':
      read_head(bytes);
      break;
    case 'S':
      match_stops(bytes);
      break;
    default:
      read_chat(bytes);
  }
  return 0;
}
