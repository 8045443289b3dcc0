// Codec of the Chat dialect (docs/SERVER.md, Chat).
#include "server/openai_chat.h"

#include <fmt/format.h>

#include "base/json.h"
#include "base/limits.h"
#include "server/chat_messages.h"
#include "server/error_body.h"
#include "server/generation_fields.h"
#include "server/sse.h"

namespace roost {

namespace {

Result<void> read_stream_options(Fields& body, ChatRequest& out) {
  ROOST_TRY(const std::optional<bool> stream, body.boolean("stream"));
  out.is_stream = stream.value_or(false);
  ROOST_TRY(const json::Value* value, body.object("stream_options"));
  if (value == nullptr) return {};
  ROOST_TRY(Fields options, Fields::open(*value, body.pointer_of("stream_options"), body.notes()));
  ROOST_TRY(const std::optional<bool> usage, options.boolean("include_usage"));
  ROOST_TRY_DO(options.boolean("continuous_usage_stats"));
  if (!out.is_stream) {
    body.ignore("stream_options");
    return {};
  }
  out.include_usage = usage.value_or(false);
  options.ignore("continuous_usage_stats");
  options.ignore_rest();
  return {};
}

Result<void> read_tool_choice(Fields& body, bool has_tools) {
  const json::Value* choice = body.take("tool_choice");
  if (choice != nullptr && choice->is_string()) {
    const std::string& word = choice->as_string();
    if (word == "required")
      return body.refuse(Refusal::UnsupportedField, "tool_choice",
                         "calls are not enforced; use auto or none");
    if (word != "auto" && word != "none")
      return body.refuse(Refusal::FieldValue, "tool_choice",
                         fmt::format("have {}, want auto or none", quoted_short(word)));
  } else if (choice != nullptr && choice->is_object()) {
    return body.refuse(Refusal::UnsupportedField, "tool_choice",
                       "calls are not enforced; use auto or none");
  } else if (choice != nullptr) {
    return body.refuse(Refusal::FieldType, "tool_choice",
                       fmt::format("have {}, want a string", value_short(*choice)));
  }
  ROOST_TRY(const std::optional<bool> parallel, body.boolean("parallel_tool_calls"));
  if (has_tools && !parallel.value_or(true))
    return body.refuse(Refusal::UnsupportedField, "parallel_tool_calls",
                       "have false; replies are not ended after the first call");
  return {};
}

// A last turn of the assistant asks to be continued unless the request says otherwise.
Result<void> read_continuation(Fields& body, const std::vector<Message>& messages) {
  ROOST_TRY(const std::optional<bool> resume, body.boolean("continue_final_message"));
  ROOST_TRY(const std::optional<bool> header, body.boolean("add_generation_prompt"));
  if (resume.value_or(false) && header.value_or(false))
    return body.refuse(Refusal::FieldConflict, "continue_final_message",
                       "continue_final_message and add_generation_prompt are both true");
  if (resume.value_or(false))
    return body.refuse(Refusal::UnsupportedField, "continue_final_message",
                       "turns are not continued; end with a user or tool message");
  if (!header.value_or(true))
    return body.refuse(Refusal::FieldValue, "add_generation_prompt",
                       "have false; a reply needs its header");
  if (messages.back().role == Role::kAssistant && !resume)
    return body.refuse(Refusal::UnsupportedField, "messages",
                       "the last message is the assistant's and turns are not continued; end with "
                       "a user or tool message, or say continue_final_message false");
  return {};
}

Result<void> read_model(Fields& body, const RequestRules& rules, ChatRequest& out) {
  ROOST_TRY(const std::optional<std::string> model, body.string("model", SIZE_MAX));
  out.model = model.value_or("");
  if (!rules.is_strict_model || !model) return {};
  for (const std::string& id : rules.model_ids)
    if (id == out.model) return {};
  return body.refuse(Refusal::UnknownModel, "model",
                     fmt::format("have {}, served is {}", quoted_short(out.model),
                                 quoted_short(rules.model_ids.front())));
}

class OpenAiChatCodec final : public ReplyCodec {
 public:
  OpenAiChatCodec(ReplyHead head, const ChatRequest& request)
      : head_(std::move(head)),
        fields_(request.generation),
        include_usage_(request.include_usage) {}

  std::string first_event() override {
    json::Value delta = json::Value::object();
    delta.set("role", json::Value::string("assistant"));
    delta.set("content", json::Value::string(""));
    json::Value event = chunk(std::move(delta));
    if (fields_.return_token_ids) event.set("prompt_token_ids", ids_value(head_.prompt_tokens));
    return sse::data(json::write(event));
  }

  std::string idle_event() override {
    return sse::comment("keep-alive") + sse::data(json::write(chunk(json::Value::object())));
  }

  std::string piece_event(const ReplyPiece& piece) override {
    // Ids of text that is not shown still belong to the reply: they ride on the next event.
    hidden_ids_.insert(hidden_ids_.end(), piece.token_ids.begin(), piece.token_ids.end());
    std::string out;
    if (!piece.reasoning.empty() && fields_.include_reasoning) {
      json::Value delta = json::Value::object();
      set_reasoning(delta, piece.reasoning);
      // A piece that holds both kinds gives its ids to the last of its events.
      out += text_event(std::move(delta), piece.content.empty());
    }
    if (!piece.content.empty()) {
      json::Value delta = json::Value::object();
      delta.set("content", json::Value::string(piece.content));
      out += text_event(std::move(delta), true);
    }
    return out;
  }

  std::string last_events(const ReplyPiece& rest, const ReplyMachine& machine,
                          const ReplyEnd& end) override {
    std::string out = piece_event(rest);
    json::Value event = chunk(json::Value::object());
    json::Value& choice = event.members()[kChoicesMember].second.items()[0];
    choice.set("finish_reason", json::Value::string(finish_reason(end.cause)));
    choice.set("stop_reason", stop_reason(end));
    if (fields_.return_token_ids) choice.set("token_ids", ids_value(take_hidden_ids()));
    if (!include_usage_) set_extras(event, machine, end);
    out += sse::data(json::write(event));
    if (include_usage_) {
      json::Value usage = envelope("chat.completion.chunk");
      usage.set("choices", json::Value::array());
      usage.set("usage", usage_value(machine, end));
      set_extras(usage, machine, end);
      out += sse::data(json::write(usage));
    }
    return out + sse::data("[DONE]");
  }

  std::string error_event(const Error& error) override {
    return sse::data(openai_error_body(error, ""));
  }

  std::string whole(const ReplyMachine& machine, const ReplyEnd& end) override {
    json::Value message = json::Value::object();
    message.set("role", json::Value::string("assistant"));
    message.set("content", json::Value::string(machine.content()));
    if (machine.was_reasoning() && fields_.include_reasoning)
      set_reasoning(message, machine.reasoning());
    message.set("refusal", json::Value());
    json::Value choice = json::Value::object();
    choice.set("index", json::Value::integer(0));
    choice.set("message", std::move(message));
    choice.set("logprobs", json::Value());
    choice.set("finish_reason", json::Value::string(finish_reason(end.cause)));
    choice.set("stop_reason", stop_reason(end));
    if (fields_.return_token_ids) choice.set("token_ids", ids_value(machine.token_ids()));
    json::Value out = envelope("chat.completion");
    out.set("choices", json::Value::array({std::move(choice)}));
    out.set("usage", usage_value(machine, end));
    if (fields_.return_token_ids) out.set("prompt_token_ids", ids_value(head_.prompt_tokens));
    set_extras(out, machine, end);
    return json::write(out);
  }

 private:
  static constexpr size_t kChoicesMember = 5;  // of an event: id, object, created, model, print, …

  json::Value envelope(const char* object) const {
    json::Value out = json::Value::object();
    out.set("id", json::Value::string(head_.id));
    out.set("object", json::Value::string(object));
    out.set("created", json::Value::integer(head_.created));
    out.set("model", json::Value::string(head_.model_id));
    out.set("system_fingerprint", json::Value::string(head_.fingerprint));
    return out;
  }

  json::Value chunk(json::Value delta) const {
    json::Value choice = json::Value::object();
    choice.set("index", json::Value::integer(0));
    choice.set("delta", std::move(delta));
    choice.set("logprobs", json::Value());
    choice.set("finish_reason", json::Value());
    json::Value out = envelope("chat.completion.chunk");
    out.set("choices", json::Value::array({std::move(choice)}));
    if (include_usage_) out.set("usage", json::Value());
    return out;
  }

  std::string text_event(json::Value delta, bool takes_ids) {
    json::Value event = chunk(std::move(delta));
    if (fields_.return_token_ids)
      event.members()[kChoicesMember].second.items()[0].set(
          "token_ids", ids_value(takes_ids ? take_hidden_ids() : std::vector<int32_t>()));
    return sse::data(json::write(event));
  }

  void set_reasoning(json::Value& out, const std::string& text) const {
    if (fields_.reasoning_field != ReasoningField::kReasoning)
      out.set("reasoning_content", json::Value::string(text));
    if (fields_.reasoning_field != ReasoningField::kReasoningContent)
      out.set("reasoning", json::Value::string(text));
  }

  static json::Value ids_value(const std::vector<int32_t>& ids) {
    json::Value out = json::Value::array();
    for (const int32_t id : ids) out.push(json::Value::integer(id));
    return out;
  }

  std::vector<int32_t> take_hidden_ids() { return std::exchange(hidden_ids_, {}); }

  static std::string finish_reason(FinishCause cause) {
    const bool is_length = cause == FinishCause::kMaxTokens || cause == FinishCause::kContext;
    return is_length ? "length" : "stop";
  }

  static json::Value stop_reason(const ReplyEnd& end) {
    if (end.cause == FinishCause::kStopString) return json::Value::string(end.stop_string);
    if (end.cause == FinishCause::kStopToken) return json::Value::integer(end.stop_token);
    return {};
  }

  json::Value usage_value(const ReplyMachine& machine, const ReplyEnd& end) const {
    const auto n_prompt = static_cast<int64_t>(head_.prompt_tokens.size());
    const auto n_reply = static_cast<int64_t>(machine.token_ids().size());
    json::Value prompt = json::Value::object();
    prompt.set("cached_tokens", json::Value::integer(end.finished.n_cached));
    prompt.set("image_tokens", json::Value::integer(0));
    json::Value reply = json::Value::object();
    reply.set("reasoning_tokens", json::Value::integer(machine.n_reasoning_tokens()));
    reply.set("accepted_prediction_tokens", json::Value::integer(0));
    reply.set("rejected_prediction_tokens", json::Value::integer(0));
    json::Value out = json::Value::object();
    out.set("prompt_tokens", json::Value::integer(n_prompt));
    out.set("completion_tokens", json::Value::integer(n_reply));
    out.set("total_tokens", json::Value::integer(n_prompt + n_reply));
    out.set("prompt_tokens_details", std::move(prompt));
    out.set("completion_tokens_details", std::move(reply));
    return out;
  }

  void set_extras(json::Value& out, const ReplyMachine& machine, const ReplyEnd& end) const {
    out.set("timings", timings_of(machine, end));
    out.set("roost", extras_of(head_, machine, end));
  }

  ReplyHead head_;
  GenerationFields fields_;
  bool include_usage_;
  std::vector<int32_t> hidden_ids_;
};

}  // namespace

Result<ChatRequest> parse_openai_chat(std::string_view body, const RequestRules& rules,
                                      ParseNotes& notes) {
  ROOST_TRY(const json::Value value, json::parse(body));
  ROOST_TRY(Fields fields, Fields::open(value, "", notes));
  ChatRequest out;
  ROOST_TRY_DO(read_model(fields, rules, out));
  ROOST_TRY(out.messages, read_messages(fields));
  ROOST_TRY(out.tools, read_tools(fields));
  ROOST_TRY_DO(read_stream_options(fields, out));
  ROOST_TRY_DO(read_tool_choice(fields, !out.tools.empty()));
  ROOST_TRY_DO(read_continuation(fields, out.messages));
  ROOST_TRY(out.generation, read_generation(fields, rules));
  ROOST_TRY_DO(read_response_format(fields, out.generation.output));
  fields.ignore_rest();
  return out;
}

std::unique_ptr<ReplyCodec> make_openai_chat_codec(ReplyHead head, const ChatRequest& request) {
  return std::make_unique<OpenAiChatCodec>(std::move(head), request);
}

}  // namespace roost
