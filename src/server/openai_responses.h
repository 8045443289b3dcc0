// The Responses dialect: its body to the internal request, replies to its events and whole bodies.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "server/chat_request.h"
#include "server/reply_codec.h"
#include "server/request_fields.h"
#include "server/response_store.h"

namespace roost {

struct ResponsesRequest {
  ChatRequest chat;
  bool is_stored = true;
  bool has_summary = false;  // reasoning leaves as a summary
  bool has_encrypted_reasoning = false;
  json::Value echo;                // members of the reply object that repeat the request
  std::vector<json::Value> input;  // all items, those of earlier replies first
};

Result<ResponsesRequest> parse_openai_responses(std::string_view body, const RequestRules& rules,
                                                const StoredReplies& stored, ParseNotes& notes);

struct ResponsesCodecOptions {
  std::function<std::string(const char* prefix)> new_id;
  std::function<void(const json::Value& response)> on_complete;  // to be stored; may be empty
};
std::unique_ptr<ReplyCodec> make_openai_responses_codec(ReplyHead head,
                                                        const ResponsesRequest& request,
                                                        ResponsesCodecOptions options);

// Reasoning that a client carries without reading it, and back; empty for what others made.
std::string seal_reasoning(const std::string& text);
std::string open_sealed_reasoning(const std::string& sealed);

}  // namespace roost
