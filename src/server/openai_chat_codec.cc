// Replies in the Chat dialect (docs/SERVER.md, Chat).
#include <span>
#include <utility>

#include "server/error_body.h"
#include "server/openai_chat.h"
#include "server/openai_common.h"
#include "server/sse.h"

namespace roost {

namespace {

class OpenAiChatCodec final : public ReplyCodec {
 public:
  OpenAiChatCodec(ReplyHead head, const ChatRequest& request)
      : head_(std::move(head)),
        fields_(request.generation),
        include_usage_(request.include_usage),
        has_running_usage_(request.has_running_usage),
        tells_tokens_(fields_.return_token_ids || fields_.n_logprobs),
        queues_(head_.seeds.size()),
        around_text_(head_.seeds.size()) {}

  std::string first_events(int64_t n_cached) override {
    running_.n_prompt = head_.n_prompt_tokens();
    running_.n_cached = n_cached;
    std::string out;
    for (size_t i = 0; i < head_.seeds.size(); ++i) {
      json::Value delta = json::Value::object();
      delta.set("role", json::Value::string("assistant"));
      delta.set("content", json::Value::string(""));
      json::Value event = chunk(i, std::move(delta));
      if (fields_.return_token_ids && i == 0)
        event.set("prompt_token_ids", ids_value(head_.prompts[0]));
      out += sse::data(json::write(event));
    }
    return out;
  }

  std::string alive_event(size_t i, json::Value progress) override {
    json::Value event = chunk(i, json::Value::object());
    if (!progress.is_null()) event.set("prompt_progress", std::move(progress));
    return sse::data(json::write(event));
  }

  std::string piece_events(size_t i, const ReplyPiece& piece,
                           const ReplyMachine& machine) override {
    if (tells_tokens_) queues_[i].add(piece.tokens);
    running_.n_reply += static_cast<int64_t>(piece.tokens.size());
    for (const ReplyToken& token : piece.tokens)
      running_.n_reasoning += token.kind == TokenKind::kReasoning;
    std::string out;
    for (const ReplyEvent& event : piece.events) {
      if (event.kind == ReplyEvent::Kind::kReasoning) {
        // Tokens of text that is not shown still belong to the reply: they ride on the next event.
        if (fields_.include_reasoning)
          add_text_event(i, TokenKind::kReasoning, reasoning_members(), event.text, out);
      } else if (event.kind == ReplyEvent::Kind::kContent) {
        add_text_event(i, TokenKind::kContent, kContentMember, event.text, out);
      } else if (event.kind != ReplyEvent::Kind::kCallEnd) {
        const bool is_start = event.kind == ReplyEvent::Kind::kCallStart;
        json::Value delta = json::Value::object();
        delta.set("tool_calls", json::Value::array({call_delta(event, machine, is_start)}));
        out += delta_event(i, std::move(delta), TokenKind::kCall);
      }
    }
    return out;
  }

  std::string choice_end(size_t i, const FinishedChoice& finished, bool is_last) override {
    json::Value event = chunk(i, json::Value::object());
    json::Value& choice = choice_of(event);
    choice.set("finish_reason",
               json::Value::string(openai_finish_reason(finished, head_.is_call_named)));
    choice.set("stop_reason", openai_stop_reason(finished.end));
    set_tokens(choice, queues_[i].take_all());
    if (!is_last) return sse::data(json::write(event));
    last_end_ = std::move(event);  // the extras of all choices ride on it
    return "";
  }

  std::string last_events(const std::vector<FinishedChoice>& choices) override {
    return openai_last_events(head_, kChunkObject, std::move(last_end_), include_usage_, choices);
  }

  std::string error_event(const Error& error) override {
    return sse::data(openai_error_body(error, ""));
  }

  std::string whole(const std::vector<FinishedChoice>& choices) override {
    json::Value list = json::Value::array();
    for (size_t i = 0; i < choices.size(); ++i) list.push(whole_choice(i, choices[i]));
    json::Value out = openai_envelope(head_, "chat.completion");
    out.set("choices", std::move(list));
    out.set("usage", openai_usage(head_, choices));
    if (fields_.return_token_ids) out.set("prompt_token_ids", ids_value(head_.prompts[0]));
    set_extras(out, head_, choices);
    return json::write(out);
  }

 private:
  static constexpr const char* kChunkObject = "chat.completion.chunk";

  // The choices stand behind the envelope.
  static json::Value& choice_of(json::Value& event) {
    return event.members()[kEnvelopeMembers].second.items()[0];
  }

  json::Value chunk(size_t i, json::Value delta) const {
    json::Value choice = json::Value::object();
    choice.set("index", json::Value::integer(static_cast<int64_t>(i)));
    choice.set("delta", std::move(delta));
    choice.set("logprobs", json::Value());
    choice.set("finish_reason", json::Value());
    json::Value out = openai_envelope(head_, kChunkObject);
    out.set("choices", json::Value::array({std::move(choice)}));
    if (has_running_usage_)
      out.set("usage", openai_usage(running_));
    else if (include_usage_)
      out.set("usage", json::Value());
    return out;
  }

  std::string delta_event(size_t i, json::Value delta, TokenKind kind) {
    json::Value event = chunk(i, std::move(delta));
    set_tokens(choice_of(event), queues_[i].take(kind));
    add_running_timings(event);
    return sse::data(json::write(event));
  }

  // Most events of a stream differ in their text alone: what stands around it is printed once.
  void add_text_event(size_t i, TokenKind kind, std::span<const char* const> members,
                      const std::string& text, std::string& out) {
    if (tells_tokens_ || has_running_usage_ || fields_.has_running_timings) {
      json::Value delta = json::Value::object();
      for (const char* member : members) delta.set(member, json::Value::string(text));
      out += delta_event(i, std::move(delta), kind);
      return;
    }
    auto& [before, behind] = around_text_[i];
    if (before.empty()) {
      const std::string event = sse::data(json::write(chunk(i, json::Value::object())));
      constexpr std::string_view kDelta = R"("delta":{)";  // no text has a quote like these
      const size_t at = event.find(kDelta) + kDelta.size();
      before = event.substr(0, at);
      behind = event.substr(at);
    }
    out += before;
    for (const char* member : members) {
      if (member != members.front()) out += ',';
      json::write_string(member, out);
      out += ':';
      json::write_string(text, out);
    }
    out += behind;
  }

  // Ids and probabilities of the tokens that an event tells; the lists add up to those of the whole
  // reply also where they are empty.
  void set_tokens(json::Value& choice, const std::vector<ReplyToken>& tokens) const {
    if (fields_.return_token_ids) choice.set("token_ids", ids_value(tokens));
    if (fields_.n_logprobs) choice.set("logprobs", logprobs_of(tokens));
  }

  json::Value logprobs_of(const std::vector<ReplyToken>& tokens) const {
    json::Value content = json::Value::array(), reasoning = content, calls = content;
    for (const ReplyToken& token : tokens) {
      json::Value& list = token.kind == TokenKind::kReasoning ? reasoning
                          : token.kind == TokenKind::kCall    ? calls
                                                              : content;
      list.push(logprob_entry(*head_.tokenizer, token));
    }
    json::Value out = json::Value::object();
    out.set("content", std::move(content));
    out.set("refusal", json::Value());
    out.set("reasoning_content", std::move(reasoning));
    out.set("tool_calls", std::move(calls));
    return out;
  }

  static constexpr const char* kContentMember[] = {"content"};
  static constexpr const char* kReasoningMembers[] = {"reasoning_content", "reasoning"};

  // The names under which reasoning leaves.
  std::span<const char* const> reasoning_members() const {
    const std::span<const char* const> both = kReasoningMembers;
    switch (fields_.reasoning_field) {
      case ReasoningField::kReasoningContent:
        return both.first(1);
      case ReasoningField::kReasoning:
        return both.last(1);
      case ReasoningField::kBoth:
        break;
    }
    return both;
  }

  static json::Value call_value(const ReplyItem& call, bool is_start, const std::string& text) {
    const char* kind = call.is_free_text ? "custom" : "function";
    json::Value body = json::Value::object();
    if (is_start) body.set("name", json::Value::string(call.name));
    body.set(call.is_free_text ? "input" : "arguments", json::Value::string(text));
    json::Value out = json::Value::object();
    if (is_start) {
      out.set("id", json::Value::string(call.call_id));
      out.set("type", json::Value::string(kind));
    }
    out.set(kind, std::move(body));
    return out;
  }

  static json::Value call_delta(const ReplyEvent& event, const ReplyMachine& machine,
                                bool is_start) {
    json::Value out = json::Value::object();
    out.set("index", json::Value::integer(event.call_idx));
    json::Value call =
        call_value(machine.call(event.call_idx), is_start, is_start ? "" : event.text);
    for (json::Member& member : call.members()) out.set(member.first, std::move(member.second));
    return out;
  }

  json::Value whole_choice(size_t i, const FinishedChoice& finished) const {
    const ReplyMachine& machine = *finished.machine;
    json::Value calls = json::Value::array();
    for (const ReplyItem& item : machine.items())
      if (item.kind == ReplyItem::Kind::kCall) calls.push(call_value(item, true, item.text));
    const std::string content = machine.content();
    json::Value message = json::Value::object();
    message.set("role", json::Value::string("assistant"));
    const bool has_nothing_to_say = content.empty() && machine.has_calls();
    message.set("content", has_nothing_to_say ? json::Value() : json::Value::string(content));
    if (machine.was_reasoning() && fields_.include_reasoning)
      for (const char* member : reasoning_members())
        message.set(member, json::Value::string(machine.reasoning()));
    if (machine.has_calls()) message.set("tool_calls", std::move(calls));
    message.set("refusal", json::Value());
    json::Value choice = json::Value::object();
    choice.set("index", json::Value::integer(static_cast<int64_t>(i)));
    choice.set("message", std::move(message));
    choice.set("logprobs", fields_.n_logprobs ? logprobs_of(machine.tokens()) : json::Value());
    choice.set("finish_reason",
               json::Value::string(openai_finish_reason(finished, head_.is_call_named)));
    choice.set("stop_reason", openai_stop_reason(finished.end));
    if (fields_.return_token_ids) choice.set("token_ids", ids_value(machine.token_ids()));
    return choice;
  }

  const ReplyHead head_;
  const GenerationFields fields_;
  const bool include_usage_, has_running_usage_;
  const bool tells_tokens_;                                       // ids or probabilities of them
  std::vector<TokenQueue> queues_;                                // of each choice
  std::vector<std::pair<std::string, std::string>> around_text_;  // in front and behind, of each
  ReplyCounts running_;
  json::Value last_end_;  // the finish event of the choice that ended last
};

}  // namespace

std::unique_ptr<ReplyCodec> make_openai_chat_codec(ReplyHead head, const ChatRequest& request) {
  return std::make_unique<OpenAiChatCodec>(std::move(head), request);
}

}  // namespace roost
