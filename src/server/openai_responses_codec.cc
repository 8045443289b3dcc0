// Replies in the Responses dialect (docs/SERVER.md, Responses).
#include <fmt/format.h>

#include <utility>

#include "server/error_body.h"
#include "server/openai_common.h"
#include "server/openai_responses.h"
#include "server/sse.h"
#include "server/tools.h"

namespace roost {

namespace {

json::Value typed(const std::string& type) {
  json::Value out = json::Value::object();
  out.set("type", json::Value::string(type));
  return out;
}

json::Value text_part(const char* type, const std::string& text) {
  json::Value out = typed(type);
  out.set("text", json::Value::string(text));
  return out;
}

class OpenAiResponsesCodec final : public ReplyCodec {
 public:
  OpenAiResponsesCodec(ReplyHead head, const ResponsesRequest& request,
                       ResponsesCodecOptions options)
      : head_(std::move(head)), request_(request), options_(std::move(options)) {}

  std::string first_events(int64_t) override {
    json::Value response = response_object("in_progress", json::Value::array());
    if (fields().return_token_ids) response.set("prompt_token_ids", ids_value(head_.prompts[0]));
    // One by one: the events are numbered as they are printed.
    std::string out = print_response("response.created", response);
    out += print_response("response.in_progress", response);
    return out;
  }

  std::string alive_event(size_t, json::Value progress) override {
    json::Value event = typed("response.in_progress");
    event.set("response", response_object("in_progress", json::Value::array()));
    if (!progress.is_null()) event.set("prompt_progress", std::move(progress));
    return print(std::move(event));
  }

  std::string piece_events(size_t, const ReplyPiece& piece, const ReplyMachine& machine) override {
    if (tells_tokens()) queue_.add(piece.tokens);
    std::string out;
    for (const ReplyEvent& event : piece.events) {
      switch (event.kind) {
        case ReplyEvent::Kind::kReasoning:
          if (!fields().include_reasoning) break;
          if (open_.kind != Open::kReasoning) {
            out += close_item(true);
            out += open_reasoning();
          }
          out += add_delta(event.text);
          break;
        case ReplyEvent::Kind::kContent:
          if (open_.kind != Open::kMessage) {
            out += close_item(true);
            out += open_message();
          }
          out += add_delta(event.text);
          break;
        case ReplyEvent::Kind::kCallStart:
          out += close_item(true);
          out += open_call(machine.call(event.call_idx));
          break;
        case ReplyEvent::Kind::kCallArguments:
          out += add_delta(event.text);
          break;
        case ReplyEvent::Kind::kCallEnd:
          out += close_item(true);
          break;
      }
    }
    return out;
  }

  std::string choice_end(size_t, const FinishedChoice& finished, bool) override {
    return close_item(!is_length(finished.end.cause));
  }

  std::string last_events(const std::vector<FinishedChoice>& choices) override {
    const bool is_cut = is_length(choices.front().end.cause);
    json::Value event = typed(is_cut ? "response.incomplete" : "response.completed");
    event.set("response", finished_object(std::move(output_), choices));
    if (fields().return_token_ids) event.set("token_ids", ids_value(queue_.take_all()));
    return print(std::move(event));
  }

  std::string error_event(const Error& error) override {
    json::Value event = typed("error");
    event.set("code", json::Value::string(std::string(openai_code_of(error.refusal))));
    event.set("message", json::Value::string(message_of(error)));
    event.set("param", json::Value());
    const bool is_cancelled = error.refusal == Refusal::RequestCancelled;
    json::Value response =
        response_object(is_cancelled ? "cancelled" : "failed", std::move(output_));
    json::Value why = json::Value::object();
    why.set("code", *event.find("code"));
    why.set("message", *event.find("message"));
    response.set("error", std::move(why));
    std::string out = print(std::move(event));
    out += print_response("response.failed", response);
    return out;
  }

  std::string whole(const std::vector<FinishedChoice>& choices) override {
    const ReplyMachine& machine = *choices.front().machine;
    const bool is_cut = is_length(choices.front().end.cause);
    json::Value output = items_of(machine, is_cut);
    return json::write(finished_object(std::move(output), choices));
  }

  json::Value cancelled(const ReplyMachine& machine) override {
    const bool is_stream = n_events_ > 0;  // its items have ids that the client knows
    json::Value output = is_stream ? output_ : items_of(machine, true);
    if (is_stream && open_.kind != Open::kNone) output.push(item_object(open_, "incomplete"));
    return response_object("cancelled", std::move(output));
  }

 private:
  enum class Open { kNone, kReasoning, kMessage, kCall };
  struct Item {
    Open kind = Open::kNone;
    std::string id;
    std::string text;  // so far
    ReplyItem call;    // kCall
    json::Value logprobs = json::Value::array();
  };

  // ---- Objects ------------------------------------------------------------------------------

  // Of a reply that was not streamed. is_cut: the last one is not complete.
  json::Value items_of(const ReplyMachine& machine, bool is_cut) {
    if (tells_tokens()) queue_.add(machine.tokens());
    json::Value output = json::Value::array();
    const std::vector<ReplyItem>& items = machine.items();
    for (size_t i = 0; i < items.size(); ++i) {
      const ReplyItem& item = items[i];
      Item one;
      if (item.kind == ReplyItem::Kind::kReasoning) {
        if (!fields().include_reasoning) continue;
        one = {Open::kReasoning, options_.new_id("rs_")};
      } else if (item.kind == ReplyItem::Kind::kContent) {
        one = {Open::kMessage, options_.new_id("msg_")};
        one.logprobs = logprobs_of(queue_.take(TokenKind::kContent));
      } else {
        one = {Open::kCall, options_.new_id(item.is_free_text ? "ctc_" : "fc_")};
        one.call = item;
      }
      one.text = item.text;
      output.push(item_object(one, is_cut && i + 1 == items.size() ? "incomplete" : "completed"));
    }
    return output;
  }

  json::Value response_object(const char* status, json::Value output) const {
    json::Value out = json::Value::object();
    out.set("id", json::Value::string(head_.id));
    out.set("object", json::Value::string("response"));
    out.set("created_at", json::Value::integer(head_.created));
    out.set("status", json::Value::string(status));
    out.set("error", json::Value());
    out.set("incomplete_details", json::Value());
    out.set("model", json::Value::string(head_.model_id));
    out.set("output", std::move(output));
    for (const json::Member& member : request_.echo.members()) out.set(member.first, member.second);
    out.set("usage", json::Value());
    return out;
  }

  json::Value finished_object(json::Value output, const std::vector<FinishedChoice>& choices) {
    const bool is_cut = is_length(choices.front().end.cause);
    json::Value out = response_object(is_cut ? "incomplete" : "completed", std::move(output));
    const double took_s =
        static_cast<double>(choices.front().end.finished.finished_ns - head_.arrived_ns) / 1e9;
    out.set("completed_at",
            json::Value::integer(head_.created + static_cast<int64_t>(std::max(took_s, 0.0))));
    if (is_cut) {
      json::Value details = json::Value::object();
      details.set("reason", json::Value::string("max_output_tokens"));
      out.set("incomplete_details", std::move(details));
    }
    const ReplyCounts counts = counts_of(head_, choices);
    json::Value input = json::Value::object(), reply = input, usage = input;
    input.set("cached_tokens", json::Value::integer(counts.n_cached));
    reply.set("reasoning_tokens", json::Value::integer(counts.n_reasoning));
    usage.set("input_tokens", json::Value::integer(counts.n_prompt));
    usage.set("input_tokens_details", std::move(input));
    usage.set("output_tokens", json::Value::integer(counts.n_reply));
    usage.set("output_tokens_details", std::move(reply));
    usage.set("total_tokens", json::Value::integer(counts.n_prompt + counts.n_reply));
    out.set("usage", std::move(usage));
    if (fields().return_token_ids) {
      out.set("prompt_token_ids", ids_value(head_.prompts[0]));
      out.set("token_ids", ids_value(choices.front().machine->token_ids()));
    }
    out.set("timings", timings_of(head_, choices));
    out.set("roost", extras_of(head_, choices));
    if (request_.is_stored && options_.on_complete) options_.on_complete(out);
    return out;
  }

  json::Value message_part(const Item& item) const {
    json::Value part = text_part("output_text", item.text);
    part.set("annotations", json::Value::array());
    part.set("logprobs", item.logprobs);
    return part;
  }

  json::Value item_object(const Item& item, const char* status) const {
    json::Value out;
    if (item.kind == Open::kReasoning) {
      out = typed("reasoning");
      out.set("id", json::Value::string(item.id));
      json::Value summary = json::Value::array(), content = summary;
      if (!item.text.empty() && request_.has_summary)
        summary.push(text_part("summary_text", item.text));
      if (!item.text.empty() && !request_.has_summary)
        content.push(text_part("reasoning_text", item.text));
      out.set("summary", std::move(summary));
      out.set("content", std::move(content));
      const bool is_sealed = request_.has_encrypted_reasoning && !item.text.empty();
      out.set("encrypted_content",
              is_sealed ? json::Value::string(seal_reasoning(item.text)) : json::Value());
    } else if (item.kind == Open::kMessage) {
      out = typed("message");
      out.set("id", json::Value::string(item.id));
      out.set("role", json::Value::string("assistant"));
      json::Value content = json::Value::array();
      if (!item.text.empty()) content.push(message_part(item));
      out.set("content", std::move(content));
    } else {
      out = typed(item.call.is_free_text ? "custom_tool_call" : "function_call");
      out.set("id", json::Value::string(item.id));
      out.set("call_id", json::Value::string(item.call.call_id));
      set_name(out, item.call.name);
      out.set(item.call.is_free_text ? "input" : "arguments", json::Value::string(item.text));
    }
    out.set("status", json::Value::string(status));
    return out;
  }

  // Tools of a namespace come back as they were given: its name and theirs apart.
  void set_name(json::Value& out, const std::string& name) const {
    const Tool* tool = find_tool(request_.chat.tools, name);
    const bool has_space = tool != nullptr && !tool->name_space.empty();
    out.set("name", json::Value::string(has_space ? tool->own_name : name));
    if (has_space) out.set("namespace", json::Value::string(tool->name_space));
  }

  // Those of the message; of other parts of the reply there is no place for them.
  json::Value logprobs_of(const std::vector<ReplyToken>& tokens) const {
    json::Value out = json::Value::array();
    if (!fields().n_logprobs) return out;
    for (const ReplyToken& token : tokens)
      if (token.kind == TokenKind::kContent) out.push(logprob_entry(*head_.tokenizer, token));
    return out;
  }

  const GenerationFields& fields() const { return request_.chat.generation; }
  bool tells_tokens() const { return fields().return_token_ids || fields().n_logprobs; }

  // ---- Events -------------------------------------------------------------------------------

  std::string print(json::Value event) {
    event.set("sequence_number", json::Value::integer(n_events_++));
    return sse::event(event.find("type")->as_string(), json::write(event));
  }
  std::string print_response(const char* type, const json::Value& response) {
    json::Value event = typed(type);
    event.set("response", response);
    return print(std::move(event));
  }

  json::Value item_event(const std::string& type) const {
    json::Value event = typed(type);
    event.set("item_id", json::Value::string(open_.id));
    event.set("output_index", json::Value::integer(static_cast<int64_t>(output_.items().size())));
    return event;
  }
  // Of a part: reasoning or a message has one.
  json::Value part_event(const std::string& type) const {
    json::Value event = item_event(type);
    const bool is_summary = open_.kind == Open::kReasoning && request_.has_summary;
    event.set(is_summary ? "summary_index" : "content_index", json::Value::integer(0));
    return event;
  }

  void open_item(Open kind, const char* prefix) {
    open_ = Item();
    open_.kind = kind;
    open_.id = options_.new_id(prefix);
  }
  std::string item_added() {
    json::Value event = typed("response.output_item.added");
    event.set("output_index", json::Value::integer(static_cast<int64_t>(output_.items().size())));
    event.set("item", item_object(open_, "in_progress"));
    return print(std::move(event));
  }

  std::string part_added(const char* type, json::Value part) {
    json::Value event = part_event(type);
    event.set("part", std::move(part));
    return print(std::move(event));
  }

  std::string open_reasoning() {
    open_item(Open::kReasoning, "rs_");
    const std::string added = item_added();
    if (request_.has_summary)
      return added +
             part_added("response.reasoning_summary_part.added", text_part("summary_text", ""));
    return added + part_added("response.content_part.added", text_part("reasoning_text", ""));
  }

  std::string open_message() {
    open_item(Open::kMessage, "msg_");
    const std::string added = item_added();
    json::Value part = text_part("output_text", "");
    part.set("annotations", json::Value::array());
    return added + part_added("response.content_part.added", std::move(part));
  }

  std::string open_call(const ReplyItem& call) {
    open_item(Open::kCall, call.is_free_text ? "ctc_" : "fc_");
    open_.call = call;
    open_.call.text.clear();
    return item_added();
  }

  // "response.output_text", …: what deltas of the open item are called.
  std::string stem() const {
    switch (open_.kind) {
      case Open::kReasoning:
        return request_.has_summary ? "response.reasoning_summary_text" : "response.reasoning_text";
      case Open::kMessage:
        return "response.output_text";
      default:
        return open_.call.is_free_text ? "response.custom_tool_call_input"
                                       : "response.function_call_arguments";
    }
  }

  std::string add_delta(const std::string& text) {
    open_.text += text;
    json::Value event =
        open_.kind == Open::kCall ? item_event(stem() + ".delta") : part_event(stem() + ".delta");
    event.set("delta", json::Value::string(text));
    const std::vector<ReplyToken> tokens =
        queue_.take(open_.kind == Open::kReasoning ? TokenKind::kReasoning
                    : open_.kind == Open::kMessage ? TokenKind::kContent
                                                   : TokenKind::kCall);
    if (fields().return_token_ids) event.set("token_ids", ids_value(tokens));
    if (open_.kind == Open::kMessage) {
      json::Value logprobs = logprobs_of(tokens);
      for (const json::Value& one : logprobs.items()) open_.logprobs.push(one);
      event.set("logprobs", std::move(logprobs));
    }
    add_running_timings(event);
    return print(std::move(event));
  }

  std::string close_item(bool is_complete) {
    if (open_.kind == Open::kNone) return "";
    std::string out;
    if (open_.kind == Open::kCall) {
      json::Value done = item_event(stem() + ".done");
      if (!open_.call.is_free_text) set_name(done, open_.call.name);
      done.set(open_.call.is_free_text ? "input" : "arguments", json::Value::string(open_.text));
      out += print(std::move(done));
    } else {
      json::Value done = part_event(stem() + ".done");
      done.set("text", json::Value::string(open_.text));
      if (open_.kind == Open::kMessage) done.set("logprobs", open_.logprobs);
      out += print(std::move(done));
      const bool is_summary = open_.kind == Open::kReasoning && request_.has_summary;
      json::Value part = is_summary                       ? text_part("summary_text", open_.text)
                         : open_.kind == Open::kReasoning ? text_part("reasoning_text", open_.text)
                                                          : message_part(open_);
      out += part_added(
          is_summary ? "response.reasoning_summary_part.done" : "response.content_part.done",
          std::move(part));
    }
    json::Value event = typed("response.output_item.done");
    event.set("output_index", json::Value::integer(static_cast<int64_t>(output_.items().size())));
    json::Value item = item_object(open_, is_complete ? "completed" : "incomplete");
    event.set("item", item);
    out += print(std::move(event));
    output_.push(std::move(item));
    open_ = Item();
    return out;
  }

  const ReplyHead head_;
  const ResponsesRequest request_;
  const ResponsesCodecOptions options_;
  Item open_;
  json::Value output_ = json::Value::array();  // complete items
  TokenQueue queue_;
  int64_t n_events_ = 0;
};

}  // namespace

std::unique_ptr<ReplyCodec> make_openai_responses_codec(ReplyHead head,
                                                        const ResponsesRequest& request,
                                                        ResponsesCodecOptions options) {
  return std::make_unique<OpenAiResponsesCodec>(std::move(head), request, std::move(options));
}

}  // namespace roost
