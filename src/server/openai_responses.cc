// Reading a Responses body (docs/SERVER.md, Responses).
#include "server/openai_responses.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/hash.h"
#include "base/limits.h"
#include "server/chat_messages.h"
#include "server/generation_fields.h"
#include "server/tools.h"

namespace roost {

namespace {

constexpr std::string_view kSeal = "roost1.";
constexpr std::string_view kHexDigits = "0123456789abcdef";

Result<std::string> string_member(Fields& fields, const char* key) {
  ROOST_TRY(const json::Value* value, fields.require(key));
  if (!value->is_string())
    return fields.refuse(Refusal::FieldType, key,
                         fmt::format("have {}, want a string", value_short(*value)));
  return value->as_string();
}

// Calls of tools that the protocol's owner runs, and what they gave.
bool is_hosted_item(const std::string& type) {
  return type.ends_with("_call") || type.ends_with("_call_output") || type.starts_with("mcp_") ||
         type.starts_with("tool_search") || type == "compaction";
}

// Items to turns: reasoning, messages and calls of the assistant behind each other are one turn.
class ItemReader {
 public:
  ItemReader(ParseNotes& notes, const StoredReplies& stored, std::vector<Message>& out)
      : notes_(notes), stored_(stored), out_(out) {}

  Result<void> read(const json::Value& value, const std::string& pointer) {
    ROOST_TRY(Fields item, Fields::open(value, pointer, notes_));
    ROOST_TRY(const std::optional<std::string> given, item.string("type", limits::kLabelBytesMax));
    const std::string type = given.value_or("message");
    for (const char* key : {"id", "status"}) item.take(key);
    if (type == "message") return read_message(item);
    if (type == "function_call" || type == "custom_tool_call") {
      read_call(item, type);
      return {};
    }
    if (type == "function_call_output" || type == "custom_tool_call_output")
      return read_output(item);
    if (type == "reasoning") return read_reasoning(item);
    if (type == "item_reference") return read_reference(item);
    if (is_hosted_item(type)) {
      notes_.ignored.push_back(pointer);
      return {};
    }
    return refuse_at(notes_, Refusal::UnsupportedContent, pointer,
                     fmt::format("the item has type {}; message, function_call, "
                                 "function_call_output, custom_tool_call, "
                                 "custom_tool_call_output and reasoning are read",
                                 quoted_short(type)));
  }

 private:
  Message& assistant() {
    if (out_.empty() || out_.back().role != Role::kAssistant) {
      out_.emplace_back();
      out_.back().role = Role::kAssistant;
    }
    return out_.back();
  }

  Result<void> read_parts(Fields& holder, const char* key, Message& out) {
    const json::Value* content = holder.take(key);
    if (content == nullptr) return {};
    if (content->is_string()) {
      out.text += content->as_string();
      return {};
    }
    ROOST_TRY(content, holder.array(key, limits::kPartsMax));
    size_t idx = 0;
    for (const json::Value& part : content->items()) {
      const std::string at = fmt::format("{}/{}", holder.pointer_of(key), idx++);
      const json::Value* type = part.find("type");
      const bool is_refusal =
          type != nullptr && type->is_string() && type->as_string() == "refusal";
      const json::Value* words = part.find("refusal");
      if (is_refusal && words != nullptr && words->is_string())
        out.text += words->as_string();
      else
        ROOST_TRY_DO(read_chat_part(part, at, notes_, out));
    }
    return {};
  }

  Result<void> read_message(Fields& item) {
    ROOST_TRY(const std::string role, string_member(item, "role"));
    if (role == "assistant") {
      Message& turn = assistant();
      ROOST_TRY_DO(read_parts(item, "content", turn));
      if (turn.reasoning.empty()) turn.reasoning = take_inline_reasoning(turn.text);
    } else if (role == "user" || role == "system" || role == "developer") {
      out_.emplace_back();
      out_.back().role = role == "user" ? Role::kUser : Role::kSystem;
      ROOST_TRY_DO(read_parts(item, "content", out_.back()));
    } else {
      return item.refuse(
          Refusal::FieldValue, "role",
          fmt::format("have {}, want user, assistant, system or developer", quoted_short(role)));
    }
    item.take("phase");
    item.ignore_rest();
    return {};
  }

  void read_call(Fields& item, const std::string& type) {
    PastCall call;
    call.id = past_label(item.take("call_id"));
    call.name = past_label(item.take("name"));
    const std::string name_space = past_label(item.take("namespace"));
    if (!name_space.empty()) call.name = name_space + "__" + call.name;
    if (type == "custom_tool_call") {
      call.arguments = json::Value::object();
      call.arguments.set("input", json::Value::string(past_label(item.take("input"))));
    } else {
      call.arguments = past_arguments(item.take("arguments"));
    }
    item.ignore_rest();
    assistant().calls.push_back(std::move(call));
  }

  Result<void> read_output(Fields& item) {
    Message result;
    result.role = Role::kTool;
    result.call_id = past_label(item.take("call_id"));
    ROOST_TRY_DO(read_parts(item, "output", result));
    item.ignore_rest();
    out_.push_back(std::move(result));
    return {};
  }

  Result<void> read_reasoning(Fields& item) {
    std::string text;
    for (const char* key : {"content", "summary"}) {
      const json::Value* parts = item.take(key);
      if (parts == nullptr || !parts->is_array() || !text.empty()) continue;
      for (const json::Value& part : parts->items()) {
        const json::Value* words = part.find("text");
        if (words != nullptr && words->is_string()) text += words->as_string();
      }
    }
    const json::Value* sealed = item.take("encrypted_content");
    if (text.empty() && sealed != nullptr && sealed->is_string())
      text = open_sealed_reasoning(sealed->as_string());
    item.ignore_rest();
    // A turn that says nothing is no turn: reasoning of others cannot be read.
    if (!text.empty()) assistant().reasoning += text;
    return {};
  }

  Result<void> read_reference(Fields& item) {
    ROOST_TRY(const std::optional<std::string> id, item.string("id", limits::kLabelBytesMax));
    const std::optional<json::Value> known =
        id && stored_.find_item ? stored_.find_item(*id) : std::nullopt;
    if (known) return read(*known, item.pointer());
    return refuse_at(notes_, Refusal::UnknownResponse, item.pointer(),
                     "no item of a stored reply has this id");
  }

  ParseNotes& notes_;
  const StoredReplies& stored_;
  std::vector<Message>& out_;
};

// The conversation of a stored reply: its input, then its output.
Result<std::vector<json::Value>> previous_items(Fields& body, const StoredReplies& stored,
                                                ResponsesRequest& out) {
  ROOST_TRY(const std::optional<std::string> id,
            body.string("previous_response_id", limits::kLabelBytesMax));
  out.echo.set("previous_response_id", id ? json::Value::string(*id) : json::Value());
  if (!id) return std::vector<json::Value>();
  const std::optional<StoredResponse> reply = stored.find ? stored.find(*id) : std::nullopt;
  if (!reply)
    return body.refuse(Refusal::UnknownResponse, "previous_response_id",
                       fmt::format("have {}", quoted_short(*id)));
  std::vector<json::Value> items = reply->input;
  const json::Value* output = reply->response.find("output");
  if (output != nullptr) items.insert(items.end(), output->items().begin(), output->items().end());
  return items;
}

Result<void> read_input(Fields& body, const StoredReplies& stored, ResponsesRequest& out) {
  ROOST_TRY(const std::optional<std::string> instructions, body.string("instructions", SIZE_MAX));
  out.echo.set("instructions", instructions ? json::Value::string(*instructions) : json::Value());
  if (instructions && !instructions->empty()) {
    out.chat.messages.emplace_back();
    out.chat.messages.back().role = Role::kSystem;
    out.chat.messages.back().text = *instructions;
  }
  ROOST_TRY(const std::vector<json::Value> previous, previous_items(body, stored, out));
  ItemReader reader(body.notes(), stored, out.chat.messages);
  for (size_t i = 0; i < previous.size(); ++i)
    ROOST_TRY_DO(reader.read(previous[i], fmt::format("/previous_response_id/{}", i)));
  out.input = previous;

  const json::Value* input = body.take("input");
  if (input == nullptr && previous.empty())
    return body.refuse(Refusal::MissingField, "input", "must be given");
  if (input == nullptr) return {};
  if (input->is_string()) {
    json::Value item = json::Value::object();
    item.set("type", json::Value::string("message"));
    item.set("role", json::Value::string("user"));
    item.set("content", *input);
    ROOST_TRY_DO(reader.read(item, "/input"));
    out.input.push_back(std::move(item));
    return {};
  }
  ROOST_TRY(input, body.array("input", limits::kMessagesMax));
  if (input->items().empty() && previous.empty())
    return body.refuse(Refusal::MissingField, "input", "at least one item must be given");
  size_t idx = 0;
  for (const json::Value& item : input->items()) {
    ROOST_TRY_DO(reader.read(item, fmt::format("/input/{}", idx++)));
    out.input.push_back(item);
  }
  if (out.chat.messages.empty())
    return body.refuse(Refusal::MissingField, "input", "no item of it is part of a prompt");
  return {};
}

Result<void> read_text(Fields& body, ResponsesRequest& out) {
  ROOST_TRY(const json::Value* text, body.object("text"));
  json::Value format = json::Value::object();
  format.set("type", json::Value::string("text"));
  json::Value echo = json::Value::object();
  echo.set("format", std::move(format));
  out.echo.set("text", std::move(echo));
  if (text == nullptr) return {};
  ROOST_TRY(Fields fields, Fields::open(*text, body.pointer_of("text"), body.notes()));
  ROOST_TRY_DO(read_text_format(fields, out.chat.generation.output));
  if (const json::Value* form = text->find("format")) {
    json::Value given = json::Value::object();
    given.set("format", *form);
    out.echo.set("text", std::move(given));
  }
  fields.ignore_rest();
  return {};
}

Result<void> read_reasoning_options(Fields& body, ResponsesRequest& out) {
  json::Value echo = json::Value::object();
  echo.set("effort", json::Value());
  echo.set("summary", json::Value());
  const json::Value* reasoning = body.value().find("reasoning");
  if (reasoning != nullptr && reasoning->is_object()) {
    const json::Value* summary = reasoning->find("summary");
    if (summary != nullptr && summary->is_string()) {
      const std::string& word = summary->as_string();
      if (word != "auto" && word != "concise" && word != "detailed")
        return refuse_at(
            body.notes(), Refusal::FieldValue, "/reasoning/summary",
            fmt::format("have {}, want auto, concise or detailed", quoted_short(word)));
      out.has_summary = true;
      echo.set("summary", *summary);
    }
    if (const json::Value* effort = reasoning->find("effort")) echo.set("effort", *effort);
  }
  out.echo.set("reasoning", std::move(echo));
  return {};
}

Result<void> refuse_what_is_absent(Fields& body) {
  ROOST_TRY(const std::optional<bool> background, body.boolean("background"));
  if (background.value_or(false))
    return body.refuse(Refusal::UnsupportedField, "background",
                       "have true; replies are made while their client waits");
  for (const char* key : {"conversation", "prompt"})
    if (body.take(key) != nullptr)
      return body.refuse(Refusal::UnsupportedField, key, "use input and previous_response_id");
  ROOST_TRY(const std::optional<std::string> truncation,
            body.string("truncation", limits::kLabelBytesMax));
  if (truncation && *truncation != "disabled")
    return body.refuse(
        Refusal::UnsupportedField, "truncation",
        fmt::format("have {}; history is never dropped in silence", quoted_short(*truncation)));
  return {};
}

Result<void> read_include(Fields& body, ResponsesRequest& out, bool& has_logprobs) {
  ROOST_TRY(const json::Value* include, body.array("include", limits::kPartsMax));
  if (include == nullptr) return {};
  size_t idx = 0;
  for (const json::Value& one : include->items()) {
    const std::string pointer = fmt::format("/include/{}", idx++);
    const std::string word = one.is_string() ? one.as_string() : "";
    if (word == "reasoning.encrypted_content")
      out.has_encrypted_reasoning = true;
    else if (word == "message.output_text.logprobs")
      has_logprobs = true;
    else
      body.notes().ignored.push_back(pointer);
  }
  return {};
}

// Members of the reply object that say what the request asked for.
void fill_echo(const json::Value& body, ResponsesRequest& out) {
  const auto echo = [&](const char* key, json::Value otherwise) {
    const json::Value* given = body.find(key);
    out.echo.set(key, given != nullptr && !given->is_null() ? *given : std::move(otherwise));
  };
  echo("max_output_tokens", json::Value());
  echo("parallel_tool_calls", json::Value::boolean(true));
  out.echo.set("store", json::Value::boolean(out.is_stored));
  echo("temperature", json::Value());
  echo("tool_choice", json::Value::string("auto"));
  echo("tools", json::Value::array());
  echo("top_p", json::Value());
  echo("top_logprobs", json::Value::integer(0));
  echo("truncation", json::Value::string("disabled"));
  echo("user", json::Value());
  echo("metadata", json::Value::object());
}

}  // namespace

std::string seal_reasoning(const std::string& text) {
  std::string out(kSeal);
  out += sha256_hex(std::as_bytes(std::span(text))).substr(0, 16) + ".";
  for (const char c : text) {
    out += kHexDigits[static_cast<unsigned char>(c) >> 4];
    out += kHexDigits[static_cast<unsigned char>(c) & 15];
  }
  return out;
}

std::string open_sealed_reasoning(const std::string& sealed) {
  const size_t begin = kSeal.size() + 17;
  if (!sealed.starts_with(kSeal) || sealed.size() < begin || (sealed.size() - begin) % 2 != 0)
    return "";
  std::string text;
  for (size_t i = begin; i < sealed.size(); i += 2) {
    const size_t high = kHexDigits.find(sealed[i]), low = kHexDigits.find(sealed[i + 1]);
    if (high == std::string_view::npos || low == std::string_view::npos) return "";
    text += static_cast<char>(high * 16 + low);
  }
  return seal_reasoning(text) == sealed ? text : "";
}

Result<ResponsesRequest> parse_openai_responses(std::string_view body, const RequestRules& rules,
                                                const StoredReplies& stored, ParseNotes& notes) {
  ROOST_TRY(const json::Value value, json::parse(body));
  ROOST_TRY(Fields fields, Fields::open(value, "", notes));
  ResponsesRequest out;
  out.echo = json::Value::object();
  ROOST_TRY(out.chat.model, read_model_name(fields, rules));
  ROOST_TRY_DO(refuse_what_is_absent(fields));
  ROOST_TRY_DO(read_input(fields, stored, out));
  ROOST_TRY_DO(settle_pictures(fields, out.chat.messages));
  ROOST_TRY(const json::Value* tools, fields.array("tools", limits::kToolsMax));
  ToolReader reader(notes);
  size_t idx = 0;
  for (const json::Value& tool : tools == nullptr ? std::vector<json::Value>() : tools->items())
    ROOST_TRY_DO(reader.read_responses(tool, fmt::format("/tools/{}", idx++)));
  out.chat.tools = reader.take();
  ROOST_TRY(const ToolChoice choice, read_tool_choice(fields));
  ROOST_TRY_DO(apply_tool_choice(fields, choice, out.chat));
  ROOST_TRY(const std::optional<bool> parallel, fields.boolean("parallel_tool_calls"));
  out.chat.ends_at_first_call |= !parallel.value_or(true);
  ROOST_TRY(const std::optional<bool> stream, fields.boolean("stream"));
  out.chat.is_stream = stream.value_or(false);
  ROOST_TRY(const std::optional<bool> store, fields.boolean("store"));
  out.is_stored = store.value_or(true);
  ROOST_TRY_DO(read_reasoning_options(fields, out));
  bool has_logprobs = false;
  ROOST_TRY_DO(read_include(fields, out, has_logprobs));
  ROOST_TRY(const std::optional<int64_t> n_top,
            fields.integer("top_logprobs", 0, limits::kTopLogprobsMax));
  ROOST_TRY_DO(read_continuation(fields, out.chat));
  FieldNames names;
  names.max_tokens = "max_output_tokens";
  ROOST_TRY(out.chat.generation, read_generation(fields, rules, names));
  ROOST_TRY_DO(read_text(fields, out));
  if (has_logprobs) out.chat.generation.n_logprobs = n_top.value_or(0);
  fill_echo(value, out);
  fields.ignore_rest();
  return out;
}

}  // namespace roost
