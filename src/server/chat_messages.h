// Messages and tools of the Chat dialect to the internal form.
#pragma once

#include "server/chat_request.h"
#include "server/request_fields.h"

namespace roost {

// `messages` of a body. Refuses request.field_value for an unknown role,
// request.unsupported_content for an unknown part, image.not_offered, request.too_many_items.
// As settle_pictures() says, a picture of the past may have become a note.
Result<std::vector<Message>> read_messages(Fields& body);

// Whether the reply goes on with the last message: it does when that is the assistant's, unless
// the body says otherwise.
Result<void> read_continuation(Fields& body, ChatRequest& out);

// `tools` of a Chat body.
Result<std::vector<Tool>> read_chat_tools(Fields& body);

// One part of a message's content; its text is appended to `out`, thoughts of the assistant to
// out.reasoning.
Result<void> read_chat_part(const json::Value& value, std::string pointer, ParseNotes& notes,
                            Message& out);

// Puts a note in the place of a picture, until settle_pictures() decides.
void note_picture(std::string pointer, std::string_view type, Message& out);

// Refuses the first picture in or behind the last question of the user, and any without
// `on_bad_image: "placeholder"`: a client cannot repair its past, so with it a note stands for a
// picture there. Refuses image.not_offered, request.field_value.
Result<void> settle_pictures(Fields& body, std::vector<Message>& messages);

// Arguments of a past call as an object: what is no JSON object becomes one parameter `arguments`
// that holds the text, so that no client is stuck with a past that it cannot repair.
json::Value past_arguments(const json::Value* arguments);

// Name or id of a past call: a string as it is, anything else as it was spelled, "" for nothing.
std::string past_label(const json::Value* value);

// Reasoning written inline at the start of an assistant's text, up to </think>: moved out of text.
std::string take_inline_reasoning(std::string& text);

}  // namespace roost
