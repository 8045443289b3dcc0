// Messages and tools of the Chat dialect to the internal form.
#pragma once

#include "server/chat_request.h"
#include "server/request_fields.h"

namespace roost {

// `messages` of a body. Refuses request.field_value for an unknown role,
// request.unsupported_content for an unknown part, image.not_offered, request.too_many_items.
Result<std::vector<Message>> read_messages(Fields& body);

// `tools`, as the template prints them; entries of a kind that is not offered are listed as
// ignored.
Result<std::vector<json::Value>> read_tools(Fields& body);

// Arguments of a past call as an object: what is no JSON object becomes one parameter `arguments`
// that holds the text, so that no client is stuck with a past that it cannot repair.
json::Value past_arguments(const json::Value* arguments);

// Reasoning written inline at the start of an assistant's text, up to </think>: moved out of text.
std::string take_inline_reasoning(std::string& text);

}  // namespace roost
