// The text of a reply, cut anywhere: the first two bytes say how it is read and where it is cut.
// The parts do not depend on the cuts, and the arguments of every call are JSON.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "base/json.h"
#include "base/utf8.h"
#include "text/reply_parser.h"

namespace roost {
namespace {

std::shared_ptr<const ToolTable> tools() {
  static const auto kTools = std::make_shared<const ToolTable>(
      std::vector<OfferedTool>{{"get",
                                json::parse(R"({"type":"object","properties":{"a":{"type":"string"},
                              "n":{"type":"integer"},"o":{"type":["object","array","null"]},
                              "e":{"enum":[1,"x",true]},"b":{"type":"boolean"}},
                              "required":["a"],"additionalProperties":false})")
                                    .value(),
                                false},
                               {"open", json::Value(), false},
                               {"text", json::Value(), true}});
  return kTools;
}

std::vector<ReplyEvent> events_of(std::string_view text, uint8_t how, size_t n_push) {
  ReplyParserOptions options;
  options.starts_in_reasoning = (how & 1) != 0;
  options.finds_markers = (how & 2) == 0;
  if ((how & 4) != 0 && options.finds_markers) options.tools = tools();
  options.ends_at_first_call = (how & 8) != 0;
  if ((how & 16) != 0) options.stops = {"END", "\n\n"};
  options.keeps_stop_text = (how & 32) != 0;
  ReplyParser parser(options);
  std::vector<ReplyEvent> all, events;
  const auto take = [&] {
    for (ReplyEvent& event : events) {
      if (event.kind == ReplyEvent::Kind::kCallStart || event.kind == ReplyEvent::Kind::kCallEnd)
        all.push_back(std::move(event));
      else
        add_text(all, std::move(event));
    }
    events.clear();
  };
  for (size_t at = 0; at < text.size(); at += n_push) {
    parser.push(text.substr(at, n_push), events);
    take();
  }
  parser.finish((how & 64) != 0, events);
  take();
  return all;
}

bool is_same(const ReplyEvent& a, const ReplyEvent& b) {
  return a.kind == b.kind && a.text == b.text && a.call_idx == b.call_idx;
}

void run(uint8_t how, uint8_t n_push, std::string_view text) {
  const std::vector<ReplyEvent> whole = events_of(text, how, text.size() + 1);
  const std::vector<ReplyEvent> cut = events_of(text, how, 1 + n_push % 16);
  ROOST_CHECK(std::equal(whole.begin(), whole.end(), cut.begin(), cut.end(), is_same));
  std::string arguments;
  for (const ReplyEvent& event : whole) {
    if (event.is_free_text) continue;
    if (event.kind == ReplyEvent::Kind::kCallArguments) arguments += event.text;
    if (event.kind != ReplyEvent::Kind::kCallEnd) continue;
    const Result<json::Value> value = json::parse(arguments);
    ROOST_CHECK(value && value->is_object());
    arguments.clear();
  }
}

}  // namespace
}  // namespace roost

// Text reaches the parser of replies as valid UTF-8.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 2) return 0;
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 2, size - 2);
  roost::run(data[0], data[1], roost::replace_invalid_utf8(bytes));
  return 0;
}
