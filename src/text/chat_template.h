// Chat templates: the checkpoint's own Jinja, in the subset that the family uses; anything else is
// refused by name when the template is read.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"

namespace roost {

class ChatTemplate {
 public:
  // Refuses template.syntax with the line, template.feature with the name of the tag, filter, test
  // or method that is not supported.
  static Result<ChatTemplate> parse(std::string_view source);

  // variables: an object; its members are the template's globals (messages, tools,
  // add_generation_prompt, enable_thinking, …). A member that is null is Python's None; an absent
  // one is undefined. unix_seconds: what strftime_now sees (UTC). Refuses request.template with the
  // template's own message, or when a bound on steps, output or depth is passed.
  Result<std::string> render(const json::Value& variables, int64_t unix_seconds) const;

  // Names of the global variables that the template reads, sorted.
  std::vector<std::string> variables() const;

 private:
  struct Program;
  std::shared_ptr<const Program> program_;
};

}  // namespace roost
