// The Messages dialect: its body to the internal request, replies to its events and whole bodies.
#pragma once

#include <memory>
#include <string_view>

#include "server/chat_request.h"
#include "server/reply_codec.h"
#include "server/request_fields.h"

namespace roost {

// The body of POST /v1/messages and of /v1/messages/count_tokens.
Result<ChatRequest> parse_anthropic_messages(std::string_view body, const RequestRules& rules,
                                             ParseNotes& notes);

std::unique_ptr<ReplyCodec> make_anthropic_codec(ReplyHead head, const ChatRequest& request);

}  // namespace roost
