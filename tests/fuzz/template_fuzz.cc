// Any bytes as a chat template, rendered over fixed data: it renders or refuses, in bounded time
// and memory, and twice the same.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/check.h"
#include "base/json.h"
#include "text/chat_template.h"

namespace roost {
namespace {

json::Value data() {
  return *json::parse(R"json({"messages":[{"role":"system","content":"Be brief."},
    {"role":"user","content":[{"type":"image"},{"type":"text","text":" Straße 日本 🎉 "}]},
    {"role":"assistant","content":"<think>\nwhy\n</think>\n\nso","tool_calls":[{"function":{"name":"f",
      "arguments":{"a":[1,2.5,null],"b":"x","c":true}}}]},
    {"role":"tool","content":"{\"k\": 1}"}],
    "tools":[{"type":"function","function":{"name":"f","parameters":{"type":"object"}}}],
    "add_generation_prompt":true,"enable_thinking":false,"none":null,
    "n":7,"f":2.5,"big":123456789012345678901234567890,"s":"Hello, World","l":[3,1,2],
    "d":{"a":1,"b":{"c":[1,{"d":"e"}]},"items":"trap"}})json");
}

}  // namespace
}  // namespace roost

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  static const roost::json::Value kData = roost::data();
  const std::string_view source(reinterpret_cast<const char*>(bytes), size);
  const roost::Result<roost::ChatTemplate> chat_template = roost::ChatTemplate::parse(source);
  if (!chat_template) return 0;
  const roost::Result<std::string> first = chat_template->render(kData, 1'700'000'000);
  const roost::Result<std::string> second = chat_template->render(kData, 1'700'000'000);
  ROOST_CHECK(bool(first) == bool(second));
  if (first) ROOST_CHECK(*first == *second);
  return 0;
}
