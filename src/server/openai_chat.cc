// Codec of the Chat dialect (docs/SERVER.md, Chat).
#include "server/openai_chat.h"

#include <fmt/format.h>

#include "base/json.h"
#include "base/limits.h"
#include "server/chat_messages.h"
#include "server/generation_fields.h"
#include "server/openai_common.h"
#include "server/tools.h"

namespace roost {

namespace {

// The probabilities of this dialect: a switch and a number.
Result<void> read_logprobs(Fields& body, GenerationFields& out) {
  ROOST_TRY(const std::optional<bool> is_on, body.boolean("logprobs"));
  ROOST_TRY(const std::optional<int64_t> n,
            body.integer("top_logprobs", 0, limits::kTopLogprobsMax));
  if (n && !is_on.value_or(false) && *n > 0)
    return body.refuse(Refusal::FieldConflict, "top_logprobs",
                       fmt::format("top_logprobs is {} and logprobs is not true", *n));
  if (is_on.value_or(false)) out.n_logprobs = n.value_or(0);
  return {};
}

}  // namespace

Result<ChatRequest> parse_openai_chat(std::string_view body, const RequestRules& rules,
                                      ParseNotes& notes) {
  ROOST_TRY(const json::Value value, json::parse(body));
  ROOST_TRY(Fields fields, Fields::open(value, "", notes));
  ChatRequest out;
  ROOST_TRY(out.model, read_model_name(fields, rules));
  ROOST_TRY(out.messages, read_messages(fields));
  ROOST_TRY(out.tools, read_chat_tools(fields));
  ROOST_TRY(const StreamFields stream, read_stream_fields(fields));
  out.is_stream = stream.is_stream;
  out.include_usage = stream.include_usage;
  out.has_running_usage = stream.has_running_usage;
  ROOST_TRY(const ToolChoice choice, read_tool_choice(fields));
  ROOST_TRY_DO(apply_tool_choice(fields, choice, out));
  ROOST_TRY(const std::optional<bool> parallel, fields.boolean("parallel_tool_calls"));
  out.ends_at_first_call |= !parallel.value_or(true);
  ROOST_TRY_DO(read_continuation(fields, out));
  FieldNames names;
  names.other_max_tokens = "max_completion_tokens";
  names.has_n = true;
  ROOST_TRY(out.generation, read_generation(fields, rules, names));
  ROOST_TRY_DO(read_response_format(fields, out.generation.output));
  ROOST_TRY_DO(read_logprobs(fields, out.generation));
  fields.ignore_rest();
  return out;
}

}  // namespace roost
