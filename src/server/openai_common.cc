#include "server/openai_common.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/utf8.h"
#include "server/sse.h"

namespace roost {

Result<StreamFields> read_stream_fields(Fields& body) {
  StreamFields out;
  ROOST_TRY(const std::optional<bool> stream, body.boolean("stream"));
  out.is_stream = stream.value_or(false);
  ROOST_TRY(const json::Value* value, body.object("stream_options"));
  if (value == nullptr) return out;
  ROOST_TRY(Fields options, Fields::open(*value, body.pointer_of("stream_options"), body.notes()));
  ROOST_TRY(const std::optional<bool> usage, options.boolean("include_usage"));
  ROOST_TRY(const std::optional<bool> running, options.boolean("continuous_usage_stats"));
  if (!out.is_stream) {
    body.ignore("stream_options");
    return out;
  }
  out.include_usage = usage.value_or(false);
  out.has_running_usage = running.value_or(false);
  options.ignore_rest();
  return out;
}

std::string openai_finish_reason(const FinishedChoice& choice, bool is_call_named) {
  if (is_length(choice.end.cause)) return "length";
  if (is_call_named) return "stop";  // as the protocol's owner answers
  const bool is_stop =
      choice.end.cause == FinishCause::kStopString || choice.end.cause == FinishCause::kStopToken;
  return choice.machine->has_calls() && !is_stop ? "tool_calls" : "stop";
}

json::Value openai_stop_reason(const ReplyEnd& end) {
  if (end.cause == FinishCause::kStopString) return json::Value::string(end.stop_string);
  if (end.cause == FinishCause::kStopToken) return json::Value::integer(end.stop_token);
  return {};
}

json::Value openai_usage(const ReplyCounts& counts) {
  json::Value prompt = json::Value::object();
  prompt.set("cached_tokens", json::Value::integer(counts.n_cached));
  prompt.set("image_tokens", json::Value::integer(0));
  json::Value reply = json::Value::object();
  reply.set("reasoning_tokens", json::Value::integer(counts.n_reasoning));
  reply.set("accepted_prediction_tokens", json::Value::integer(0));
  reply.set("rejected_prediction_tokens", json::Value::integer(0));
  json::Value out = json::Value::object();
  out.set("prompt_tokens", json::Value::integer(counts.n_prompt));
  out.set("completion_tokens", json::Value::integer(counts.n_reply));
  out.set("total_tokens", json::Value::integer(counts.n_prompt + counts.n_reply));
  out.set("prompt_tokens_details", std::move(prompt));
  out.set("completion_tokens_details", std::move(reply));
  return out;
}

json::Value openai_usage(const ReplyHead& head, const std::vector<FinishedChoice>& choices) {
  return openai_usage(counts_of(head, choices));
}

json::Value openai_envelope(const ReplyHead& head, const char* object) {
  json::Value out = json::Value::object();
  out.set("id", json::Value::string(head.id));
  out.set("object", json::Value::string(object));
  out.set("created", json::Value::integer(head.created));
  out.set("model", json::Value::string(head.model_id));
  out.set("system_fingerprint", json::Value::string(head.fingerprint));
  return out;
}

void set_extras(json::Value& out, const ReplyHead& head,
                const std::vector<FinishedChoice>& choices) {
  out.set("timings", timings_of(head, choices));
  out.set("roost", extras_of(head, choices));
}

std::string openai_last_events(const ReplyHead& head, const char* object, json::Value finish_event,
                               bool include_usage, const std::vector<FinishedChoice>& choices) {
  if (!include_usage) set_extras(finish_event, head, choices);
  std::string out = sse::data(json::write(finish_event));
  if (include_usage) {
    json::Value usage = openai_envelope(head, object);
    usage.set("choices", json::Value::array());
    usage.set("usage", openai_usage(head, choices));
    set_extras(usage, head, choices);
    out += sse::data(json::write(usage));
  }
  return out + sse::data("[DONE]");
}

double printed_logprob(double logprob) {
  return std::isfinite(logprob) ? logprob : -9999.0;
}

std::string token_text(const Tokenizer& tokenizer, int32_t id) {
  return replace_invalid_utf8(tokenizer.bytes_of(id));
}

namespace {

json::Value one_logprob(const Tokenizer& tokenizer, int32_t id, double logprob) {
  json::Value bytes = json::Value::array();
  for (const char c : tokenizer.bytes_of(id))
    bytes.push(json::Value::integer(static_cast<unsigned char>(c)));
  json::Value out = json::Value::object();
  out.set("token", json::Value::string(token_text(tokenizer, id)));
  out.set("logprob", json::Value::real(printed_logprob(logprob)));
  out.set("bytes", std::move(bytes));
  return out;
}

}  // namespace

json::Value logprob_entry(const Tokenizer& tokenizer, const ReplyToken& token) {
  const TokenLogprobs logprobs = token.logprobs.value_or(TokenLogprobs());
  json::Value out = one_logprob(tokenizer, token.id, logprobs.logprob);
  json::Value top = json::Value::array();
  for (const TokenLogprob& one : logprobs.top)
    top.push(one_logprob(tokenizer, one.token, one.logprob));
  out.set("top_logprobs", std::move(top));
  return out;
}

}  // namespace roost
