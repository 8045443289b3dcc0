// The four dialects as one: a request in each, and what each says of one and the same reply.
#pragma once

#include <string>
#include <vector>

#include "base/check.h"
#include "base/json.h"

namespace roost {

enum class Dialect { kChat, kCompletions, kResponses, kMessages };

inline const char* name_of(Dialect dialect) {
  constexpr const char* kNames[] = {"chat", "completions", "responses", "messages"};
  return kNames[static_cast<size_t>(dialect)];
}

inline const char* path_of(Dialect dialect) {
  constexpr const char* kPaths[] = {"/v1/chat/completions", "/v1/completions", "/v1/responses",
                                    "/v1/messages"};
  return kPaths[static_cast<size_t>(dialect)];
}

// A question to the model, with further members of the body.
inline std::string body_of(Dialect dialect, const std::string& members = "") {
  constexpr const char* kQuestions[] = {R"("messages":[{"role":"user","content":"Hi"}])",
                                        R"("prompt":"Hi")", R"("input":"Hi")",
                                        R"("messages":[{"role":"user","content":"Hi"}])"};
  return std::string("{") + kQuestions[static_cast<size_t>(dialect)] +
         (members.empty() ? "" : "," + members) + "}";
}

// One tool, spelled as the dialect does.
inline std::string tool_of(Dialect dialect, const std::string& name, const std::string& schema,
                           bool is_strict = false) {
  const std::string named = R"("name":")" + name + "\"," + (is_strict ? R"("strict":true,)" : "");
  if (dialect == Dialect::kMessages) return "{" + named + R"("input_schema":)" + schema + "}";
  const std::string function = named + R"("parameters":)" + schema;
  if (dialect == Dialect::kResponses) return R"({"type":"function",)" + function + "}";
  return R"({"type":"function","function":{)" + function + "}}";
}

// A question, a reply with one call, and what the call gave; further members of the body.
inline std::string called_body_of(Dialect dialect, const std::string& reasoning,
                                  const std::string& content, const std::string& name,
                                  const std::string& arguments, const std::string& members) {
  const auto text = [](const std::string& s) {
    std::string out;
    json::write_string(s, out);
    return out;
  };
  std::string turns;
  switch (dialect) {
    case Dialect::kCompletions:
      ROOST_CHECK(false);  // raw text has no turns
      break;
    case Dialect::kChat:
      turns = R"("messages":[{"role":"user","content":"Hi"},{"role":"assistant","content":)" +
              text(content) + R"(,"reasoning_content":)" + text(reasoning) +
              R"(,"tool_calls":[{"id":"c1","type":"function","function":{"name":)" + text(name) +
              R"(,"arguments":)" + text(arguments) +
              R"(}}]},{"role":"tool","tool_call_id":"c1","content":"sun"}])";
      break;
    case Dialect::kResponses:
      turns =
          R"("input":[{"role":"user","content":"Hi"},{"type":"reasoning","summary":[],)"
          R"("content":[{"type":"reasoning_text","text":)" +
          text(reasoning) +
          R"(}]},{"type":"message","role":"assistant","content":[{"type":"output_text","text":)" +
          text(content) + R"(}]},{"type":"function_call","call_id":"c1","name":)" + text(name) +
          R"(,"arguments":)" + text(arguments) +
          R"(},{"type":"function_call_output","call_id":"c1","output":"sun"}])";
      break;
    case Dialect::kMessages:
      turns = R"("messages":[{"role":"user","content":"Hi"},{"role":"assistant","content":[)"
              R"({"type":"thinking","thinking":)" +
              text(reasoning) + R"(,"signature":"x"},{"type":"text","text":)" + text(content) +
              R"(},{"type":"tool_use","id":"c1","name":)" + text(name) + R"(,"input":)" +
              arguments +
              R"(}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"c1",)"
              R"("content":"sun"}]}])";
      break;
  }
  return "{" + turns + (members.empty() ? "" : "," + members) + "}";
}

// tool_choice: a call must come, of any tool or of the one named.
inline std::string must_call_member(Dialect dialect, const std::string& name = "") {
  const bool is_messages = dialect == Dialect::kMessages;
  if (name.empty())
    return is_messages ? R"("tool_choice":{"type":"any"})" : R"("tool_choice":"required")";
  const std::string named = R"("name":")" + name + "\"";
  if (is_messages) return R"("tool_choice":{"type":"tool",)" + named + "}";
  if (dialect == Dialect::kResponses) return R"("tool_choice":{"type":"function",)" + named + "}";
  return R"("tool_choice":{"type":"function","function":{)" + named + "}}";
}

// A schema for the reply, as the dialect spells it.
inline std::string schema_member(Dialect dialect, const std::string& schema) {
  switch (dialect) {
    case Dialect::kChat:
      return R"("response_format":{"type":"json_schema","json_schema":{"name":"x","schema":)" +
             schema + "}}";
    case Dialect::kResponses:
      return R"("text":{"format":{"type":"json_schema","name":"x","schema":)" + schema + "}}";
    case Dialect::kMessages:
      return R"("output_config":{"format":{"type":"json_schema","schema":)" + schema + "}}";
    case Dialect::kCompletions:
      break;
  }
  return R"("structured_outputs":{"json":)" + schema + "}";
}

inline std::string max_tokens_member(Dialect dialect, int n) {
  const char* key = dialect == Dialect::kResponses ? R"("max_output_tokens":)" : R"("max_tokens":)";
  return key + std::to_string(n);
}
inline std::string stop_member(Dialect dialect, const std::string& text) {
  const char* key = dialect == Dialect::kMessages ? R"("stop_sequences":[")" : R"("stop":[")";
  return key + text + "\"]";
}

// A reply as a client puts it together.
struct ToldReply {
  std::string reasoning, content, finish;
  std::vector<std::string> calls;  // "name arguments"
  int64_t n_prompt = -1, n_reply = -1, n_reasoning = -1;
  std::string token_sha256;
  friend bool operator==(const ToldReply&, const ToldReply&) = default;
};

namespace told {

inline std::string text_at(const json::Value& value, const char* key) {
  const json::Value* found = value.find(key);
  return found != nullptr && found->is_string() ? found->as_string() : "";
}
inline int64_t count_at(const json::Value* value, const char* key) {
  const json::Value* found = value == nullptr ? nullptr : value->find(key);
  return found == nullptr ? -1 : found->as_int64().value_or(-1);
}

inline void read_openai_usage(const json::Value& body, ToldReply& out) {
  const json::Value* usage = body.find("usage");
  if (usage != nullptr && usage->is_object()) {
    out.n_prompt = count_at(usage, "prompt_tokens");
    out.n_reply = count_at(usage, "completion_tokens");
    out.n_reasoning = count_at(usage->find("completion_tokens_details"), "reasoning_tokens");
  }
  if (const json::Value* extras = body.find("roost"))
    out.token_sha256 = text_at(*extras, "token_sha256");
}

inline std::string arguments_at(const json::Value& call) {
  const json::Value* function = call.find("function");
  return function == nullptr ? "" : text_at(*function, "arguments");
}

// Calls by their index: name once, then arguments.
inline void add_call_deltas(const json::Value& delta, ToldReply& out) {
  const json::Value* calls = delta.find("tool_calls");
  if (calls == nullptr) return;
  for (const json::Value& call : calls->items()) {
    const auto idx = static_cast<size_t>(count_at(&call, "index"));
    if (call.find("id") != nullptr) {
      ROOST_CHECK(idx == out.calls.size());
      out.calls.push_back(text_at(*call.find("function"), "name") + " ");
    }
    out.calls[idx] += arguments_at(call);
  }
}

inline void read_chat(const json::Value& body, ToldReply& out) {
  read_openai_usage(body, out);
  const json::Value* choices = body.find("choices");
  if (choices == nullptr || choices->items().empty()) return;
  const json::Value& choice = choices->items()[0];
  const json::Value* message = choice.find("message");
  const json::Value& said = message != nullptr ? *message : *choice.find("delta");
  out.reasoning += text_at(said, "reasoning_content");
  out.content += text_at(said, "content");
  if (message == nullptr) {
    add_call_deltas(said, out);
  } else if (const json::Value* calls = said.find("tool_calls")) {
    for (const json::Value& call : calls->items())
      out.calls.push_back(text_at(*call.find("function"), "name") + " " + arguments_at(call));
  }
  if (!text_at(choice, "finish_reason").empty()) out.finish = text_at(choice, "finish_reason");
}

inline void read_completion(const json::Value& body, ToldReply& out) {
  read_openai_usage(body, out);
  const json::Value* choices = body.find("choices");
  if (choices == nullptr || choices->items().empty()) return;
  out.content += text_at(choices->items()[0], "text");
  if (!text_at(choices->items()[0], "finish_reason").empty())
    out.finish = text_at(choices->items()[0], "finish_reason");
}

inline void read_response_object(const json::Value& response, bool takes_text, ToldReply& out) {
  out.finish = text_at(response, "status");
  const json::Value* usage = response.find("usage");
  out.n_prompt = count_at(usage, "input_tokens");
  out.n_reply = count_at(usage, "output_tokens");
  if (usage != nullptr)
    out.n_reasoning = count_at(usage->find("output_tokens_details"), "reasoning_tokens");
  if (const json::Value* extras = response.find("roost"))
    out.token_sha256 = text_at(*extras, "token_sha256");
  if (!takes_text) return;
  for (const json::Value& item : response.find("output")->items()) {
    const std::string type = text_at(item, "type");
    if (type == "function_call")
      out.calls.push_back(text_at(item, "name") + " " + text_at(item, "arguments"));
    if (type == "function_call") continue;
    for (const json::Value& part : item.find("content")->items())
      (type == "reasoning" ? out.reasoning : out.content) += text_at(part, "text");
  }
}

inline void read_responses_event(const json::Value& event, ToldReply& out) {
  const std::string type = text_at(event, "type");
  if (type == "response.reasoning_text.delta") out.reasoning += text_at(event, "delta");
  if (type == "response.output_text.delta") out.content += text_at(event, "delta");
  if (type == "response.function_call_arguments.delta") out.calls.back() += text_at(event, "delta");
  if (type == "response.output_item.added" &&
      text_at(*event.find("item"), "type") == "function_call")
    out.calls.push_back(text_at(*event.find("item"), "name") + " ");
  if (type == "response.completed" || type == "response.incomplete")
    read_response_object(*event.find("response"), false, out);
}

inline void read_messages_usage(const json::Value& body, ToldReply& out) {
  const json::Value* usage = body.find("usage");
  if (usage != nullptr) {
    out.n_prompt = count_at(usage, "input_tokens") + count_at(usage, "cache_read_input_tokens") +
                   count_at(usage, "cache_creation_input_tokens");
    out.n_reply = count_at(usage, "output_tokens");
  }
  if (const json::Value* extras = body.find("roost"))
    out.token_sha256 = text_at(*extras, "token_sha256");
}

inline void read_messages(const json::Value& body, ToldReply& out) {
  read_messages_usage(body, out);
  out.finish = text_at(body, "stop_reason");
  for (const json::Value& block : body.find("content")->items()) {
    const std::string type = text_at(block, "type");
    if (type == "thinking") out.reasoning += text_at(block, "thinking");
    if (type == "text") out.content += text_at(block, "text");
    if (type == "tool_use")
      out.calls.push_back(text_at(block, "name") + " " + json::write(*block.find("input")));
  }
}

inline void read_messages_event(const json::Value& event, ToldReply& out) {
  const std::string type = text_at(event, "type");
  const json::Value* delta = event.find("delta");
  if (type == "content_block_start" && text_at(*event.find("content_block"), "type") == "tool_use")
    out.calls.push_back(text_at(*event.find("content_block"), "name") + " ");
  if (type == "content_block_delta") {
    out.reasoning += text_at(*delta, "thinking");
    out.content += text_at(*delta, "text");
    if (!out.calls.empty()) out.calls.back() += text_at(*delta, "partial_json");
  }
  if (type != "message_delta") return;
  out.finish = text_at(*delta, "stop_reason");
  read_messages_usage(event, out);
}

}  // namespace told

// The JSON of every event of a stream, in order; the word [DONE] is left out.
inline std::vector<json::Value> stream_events(const std::string& bytes) {
  std::vector<json::Value> out;
  for (size_t at = 0; at < bytes.size();) {
    const size_t end = std::min(bytes.find("\n\n", at), bytes.size());
    const std::string record = bytes.substr(at, end - at);
    at = end + 2;
    const size_t line = record.starts_with("data: ") ? 0 : record.find("\ndata: ");
    if (line == std::string::npos) continue;
    const std::string data = record.substr(record.find("data: ", line) + 6);
    if (data == "[DONE]") continue;
    Result<json::Value> value = json::parse(data);
    ROOST_CHECK(bool(value));
    out.push_back(std::move(value).value());
  }
  return out;
}

inline ToldReply told_whole(Dialect dialect, const std::string& body) {
  Result<json::Value> value = json::parse(body);
  ROOST_CHECK(bool(value));
  ToldReply out;
  if (dialect == Dialect::kChat) told::read_chat(*value, out);
  if (dialect == Dialect::kCompletions) told::read_completion(*value, out);
  if (dialect == Dialect::kResponses) told::read_response_object(*value, true, out);
  if (dialect == Dialect::kMessages) told::read_messages(*value, out);
  return out;
}

inline ToldReply told_stream(Dialect dialect, const std::string& bytes) {
  ToldReply out;
  for (const json::Value& event : stream_events(bytes)) {
    if (dialect == Dialect::kChat) told::read_chat(event, out);
    if (dialect == Dialect::kCompletions) told::read_completion(event, out);
    if (dialect == Dialect::kResponses) told::read_responses_event(event, out);
    if (dialect == Dialect::kMessages) told::read_messages_event(event, out);
  }
  return out;
}

}  // namespace roost
