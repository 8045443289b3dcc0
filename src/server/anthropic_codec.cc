// Replies in the Messages dialect (docs/SERVER.md, Messages).
#include <optional>
#include <utility>

#include "base/hash.h"
#include "server/anthropic_messages.h"
#include "server/error_body.h"
#include "server/sse.h"

namespace roost {

namespace {

// What clients send back with a thought; any value is accepted then.
std::string signature_of(const std::string& thought) {
  return "roost-" + sha256_hex(std::as_bytes(std::span(thought))).substr(0, 32);
}

json::Value typed(const char* type) {
  json::Value out = json::Value::object();
  out.set("type", json::Value::string(type));
  return out;
}

json::Value input_of(const std::string& arguments) {
  Result<json::Value> value = json::parse(arguments);
  return value && value->is_object() ? std::move(value).value() : json::Value::object();
}

class AnthropicCodec final : public ReplyCodec {
 public:
  AnthropicCodec(ReplyHead head, const ChatRequest& request)
      : head_(std::move(head)), fields_(request.generation) {}

  bool waits_for_start() const override { return true; }

  std::string first_events(int64_t n_cached) override {
    n_cached_ = n_cached;
    json::Value message = envelope();
    message.set("content", json::Value::array());
    message.set("stop_reason", json::Value());
    message.set("stop_sequence", json::Value());
    message.set("usage", usage(0));
    if (fields_.return_token_ids) message.set("prompt_token_ids", ids_value(head_.prompts[0]));
    json::Value event = typed("message_start");
    event.set("message", std::move(message));
    return print(event) + print(typed("ping"));
  }

  std::string alive_event(size_t, json::Value progress) override {
    json::Value event = typed("ping");
    if (!progress.is_null()) event.set("prompt_progress", std::move(progress));
    return print(event);
  }

  std::string piece_events(size_t, const ReplyPiece& piece, const ReplyMachine& machine) override {
    if (fields_.return_token_ids) queue_.add(piece.tokens);
    std::string out;
    for (const ReplyEvent& event : piece.events) {
      const bool is_thought = event.kind == ReplyEvent::Kind::kReasoning;
      const bool is_text = event.kind == ReplyEvent::Kind::kContent;
      if (is_thought) thought_ += event.text;
      if (is_thought || is_text) {
        const Open kind = is_thought ? Open::kThinking : Open::kText;
        if (open_ != kind) {
          out += close_block();
          out += open_block(kind, text_block(kind));
        }
        if (is_thought && !fields_.include_reasoning) continue;
        json::Value delta = typed(is_thought ? "thinking_delta" : "text_delta");
        delta.set(is_thought ? "thinking" : "text", json::Value::string(event.text));
        out +=
            delta_event(std::move(delta), is_thought ? TokenKind::kReasoning : TokenKind::kContent);
      } else if (event.kind == ReplyEvent::Kind::kCallStart) {
        json::Value block = call_block(machine.call(event.call_idx));
        block.set("input", json::Value::object());
        out += close_block();
        out += open_block(Open::kCall, std::move(block));
      } else if (event.kind == ReplyEvent::Kind::kCallArguments) {
        json::Value delta = typed("input_json_delta");
        delta.set("partial_json", json::Value::string(event.text));
        out += delta_event(std::move(delta), TokenKind::kCall);
      } else {
        out += close_block();
      }
    }
    return out;
  }

  std::string choice_end(size_t, const FinishedChoice&, bool) override { return close_block(); }

  std::string last_events(const std::vector<FinishedChoice>& choices) override {
    n_cached_ = counts_of(head_, choices).n_cached;
    const FinishedChoice& choice = choices.front();
    json::Value delta = json::Value::object();
    delta.set("stop_reason", json::Value::string(stop_reason(choice)));
    delta.set("stop_sequence", stop_sequence(choice));
    json::Value event = typed("message_delta");
    event.set("delta", std::move(delta));
    event.set("usage", usage(static_cast<int64_t>(choice.machine->token_ids().size())));
    if (fields_.return_token_ids) event.set("token_ids", ids_value(queue_.take_all()));
    set_extras(event, choices);
    return print(event) + print(typed("message_stop"));
  }

  std::string error_event(const Error& error) override {
    return sse::event("error", anthropic_error_body(error, "", head_.request_id));
  }

  std::string whole(const std::vector<FinishedChoice>& choices) override {
    n_cached_ = counts_of(head_, choices).n_cached;
    const FinishedChoice& choice = choices.front();
    json::Value blocks = json::Value::array();
    for (const ReplyItem& item : choice.machine->items()) {
      if (item.kind == ReplyItem::Kind::kCall) {
        json::Value block = call_block(item);
        block.set("input", input_of(item.text));
        blocks.push(std::move(block));
      } else {
        const bool is_thought = item.kind == ReplyItem::Kind::kReasoning;
        json::Value block = typed(is_thought ? "thinking" : "text");
        const bool is_hidden = is_thought && !fields_.include_reasoning;
        block.set(is_thought ? "thinking" : "text",
                  json::Value::string(is_hidden ? "" : item.text));
        if (is_thought) block.set("signature", json::Value::string(signature_of(item.text)));
        blocks.push(std::move(block));
      }
    }
    json::Value out = envelope();
    out.set("content", std::move(blocks));
    out.set("stop_reason", json::Value::string(stop_reason(choice)));
    out.set("stop_sequence", stop_sequence(choice));
    out.set("usage", usage(static_cast<int64_t>(choice.machine->token_ids().size())));
    if (fields_.return_token_ids) {
      out.set("prompt_token_ids", ids_value(head_.prompts[0]));
      out.set("token_ids", ids_value(choice.machine->token_ids()));
    }
    set_extras(out, choices);
    return json::write(out);
  }

 private:
  enum class Open { kNone, kThinking, kText, kCall };

  static std::string print(const json::Value& event) {
    return sse::event(event.find("type")->as_string(), json::write(event));
  }

  json::Value envelope() const {
    json::Value out = json::Value::object();
    out.set("id", json::Value::string(head_.id));
    out.set("type", json::Value::string("message"));
    out.set("role", json::Value::string("assistant"));
    out.set("model", json::Value::string(head_.model_id));
    return out;
  }

  // Tokens of the prompt are counted once: cached ones are not among the others.
  json::Value usage(int64_t n_output) const {
    json::Value out = json::Value::object();
    out.set("input_tokens", json::Value::integer(head_.n_prompt_tokens() - n_cached_));
    out.set("cache_read_input_tokens", json::Value::integer(n_cached_));
    out.set("cache_creation_input_tokens", json::Value::integer(0));
    out.set("output_tokens", json::Value::integer(n_output));
    return out;
  }

  void set_extras(json::Value& out, const std::vector<FinishedChoice>& choices) const {
    out.set("timings", timings_of(head_, choices));
    out.set("roost", extras_of(head_, choices));
  }

  static std::string stop_reason(const FinishedChoice& choice) {
    switch (choice.end.cause) {
      case FinishCause::kStopString:
        return "stop_sequence";
      case FinishCause::kMaxTokens:
        return "max_tokens";
      case FinishCause::kContext:
        return "model_context_window_exceeded";
      case FinishCause::kStopToken:
        return "end_turn";
      default:
        return choice.machine->has_calls() ? "tool_use" : "end_turn";
    }
  }

  static json::Value stop_sequence(const FinishedChoice& choice) {
    if (choice.end.cause != FinishCause::kStopString) return {};
    return json::Value::string(choice.end.stop_string);
  }

  static json::Value text_block(Open kind) {
    json::Value out = typed(kind == Open::kThinking ? "thinking" : "text");
    out.set(kind == Open::kThinking ? "thinking" : "text", json::Value::string(""));
    if (kind == Open::kThinking) out.set("signature", json::Value::string(""));
    return out;
  }

  static json::Value call_block(const ReplyItem& call) {
    json::Value out = typed("tool_use");
    out.set("id", json::Value::string(call.call_id));
    out.set("name", json::Value::string(call.name));
    return out;
  }

  std::string open_block(Open kind, json::Value block) {
    open_ = kind;
    json::Value event = typed("content_block_start");
    event.set("index", json::Value::integer(n_blocks_));
    event.set("content_block", std::move(block));
    return print(event);
  }

  // kind: of the tokens that the event tells of; of none without it.
  std::string delta_event(json::Value delta, std::optional<TokenKind> kind) {
    json::Value event = typed("content_block_delta");
    event.set("index", json::Value::integer(n_blocks_));
    event.set("delta", std::move(delta));
    if (fields_.return_token_ids && kind) event.set("token_ids", ids_value(queue_.take(*kind)));
    add_running_timings(event);
    return print(event);
  }

  std::string close_block() {
    if (open_ == Open::kNone) return "";
    std::string out;
    if (open_ == Open::kThinking) {
      json::Value delta = typed("signature_delta");
      delta.set("signature", json::Value::string(signature_of(thought_)));
      out += delta_event(std::move(delta), std::nullopt);
      thought_.clear();
    }
    json::Value event = typed("content_block_stop");
    event.set("index", json::Value::integer(n_blocks_++));
    open_ = Open::kNone;
    return out + print(event);
  }

  const ReplyHead head_;
  const GenerationFields fields_;
  int64_t n_cached_ = 0;
  Open open_ = Open::kNone;
  int64_t n_blocks_ = 0;
  std::string thought_;  // of the open block
  TokenQueue queue_;
};

}  // namespace

std::unique_ptr<ReplyCodec> make_anthropic_codec(ReplyHead head, const ChatRequest& request) {
  return std::make_unique<AnthropicCodec>(std::move(head), request);
}

}  // namespace roost
