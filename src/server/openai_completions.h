// The Completions dialect: raw text or tokens in, text out.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "server/chat_request.h"
#include "server/reply_codec.h"
#include "server/request_fields.h"

namespace roost {

struct CompletionRequest {
  std::string model;
  std::vector<std::variant<std::string, std::vector<int32_t>>> prompts;  // >= 1
  std::string suffix;  // text that comes behind the reply
  bool has_suffix = false;
  bool parses_special = true;  // added tokens in a text prompt count
  bool echoes = false;         // the prompt's text comes before the reply
  GenerationFields generation;
  bool is_stream = false, include_usage = false, has_running_usage = false;
};

Result<CompletionRequest> parse_openai_completion(std::string_view body, const RequestRules& rules,
                                                  ParseNotes& notes);

// Tokens of every prompt. Refuses request.empty_prompt; request.unsupported_field for a suffix when
// the checkpoint has no marks for one.
Result<std::vector<std::vector<int32_t>>> completion_prompts(const ServedModel& model,
                                                             const CompletionRequest& request,
                                                             ParseNotes& notes);

std::unique_ptr<ReplyCodec> make_openai_completion_codec(ReplyHead head,
                                                         const CompletionRequest& request);

}  // namespace roost
