// Reading messages, parts, past calls and tools (docs/SERVER.md, messages to prompt).
#include "server/chat_messages.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <unordered_map>

#include "base/limits.h"

namespace roost {

namespace {

constexpr size_t kNoLimit = SIZE_MAX;  // the body's own limit bounds the string

constexpr std::string_view kPictureParts[] = {"image_url", "image", "input_image"};
constexpr std::string_view kVideoParts[] = {"video_url", "video", "input_video"};

template <class List>
bool is_in(const List& list, std::string_view word) {
  return std::find(std::begin(list), std::end(list), word) != std::end(list);
}

Result<void> read_part(const json::Value& value, std::string pointer, ParseNotes& notes,
                       Message& out) {
  ROOST_TRY(Fields part, Fields::open(value, std::move(pointer), notes));
  ROOST_TRY(const json::Value* type_value, part.require("type"));
  if (!type_value->is_string())
    return part.refuse(Refusal::FieldType, "type",
                       fmt::format("have {}, want a string", value_short(*type_value)));
  const std::string& type = type_value->as_string();
  const bool takes_pictures = out.role == Role::kUser || out.role == Role::kTool;
  const bool is_video = is_in(kVideoParts, type);
  if (takes_pictures && (is_in(kPictureParts, type) || is_video))
    return refuse_at(
        notes, is_video ? Refusal::VideoNotOffered : Refusal::ImageNotOffered, part.pointer(),
        fmt::format("the part has type {}, this server reads text", quoted_short(type)));
  const bool is_thought = type == "thinking" || type == "reasoning";
  if (is_thought && out.role == Role::kAssistant) {
    ROOST_TRY(const std::optional<std::string> thought,
              part.string(type == "thinking" ? "thinking" : "text", kNoLimit));
    out.reasoning += thought.value_or("");
  } else if (type == "text" || type == "input_text" || type == "output_text") {
    ROOST_TRY(const json::Value* text, part.require("text"));
    if (!text->is_string())
      return part.refuse(Refusal::FieldType, "text",
                         fmt::format("have {}, want a string", value_short(*text)));
    out.text += text->as_string();
  } else {
    return refuse_at(notes, Refusal::UnsupportedContent, part.pointer(),
                     fmt::format("the part has type {}; text, input_text and output_text are read",
                                 quoted_short(type)));
  }
  part.ignore_rest();
  return {};
}

// Content in one piece: parts are joined with nothing between them. Thoughts among the parts go to
// out.reasoning.
Result<void> read_content(Fields& message, Message& out) {
  const json::Value* content = message.take("content");
  if (content == nullptr) return {};
  if (content->is_string()) {
    out.text = content->as_string();
    return {};
  }
  if (!content->is_array())
    return message.refuse(
        Refusal::FieldType, "content",
        fmt::format("have {}, want a string or an array of parts", value_short(*content)));
  if (content->items().size() > limits::kPartsMax)
    return message.refuse(
        Refusal::TooManyItems, "content",
        fmt::format("have {} parts, at most {}", content->items().size(), limits::kPartsMax));
  size_t idx = 0;
  for (const json::Value& part : content->items()) {
    const std::string pointer = fmt::format("{}/{}", message.pointer_of("content"), idx++);
    ROOST_TRY_DO(read_part(part, pointer, message.notes(), out));
  }
  return {};
}

// The first spelling of earlier reasoning that says something (docs/SERVER.md, reasoning in
// history); thoughts among the parts are in out.reasoning already.
Result<void> read_reasoning(Fields& message, Message& out) {
  const std::string from_parts = std::move(out.reasoning);
  out.reasoning.clear();
  for (const char* key : {"reasoning_content", "reasoning", "thinking"}) {
    ROOST_TRY(const std::optional<std::string> text, message.string(key, kNoLimit));
    if (text && out.reasoning.empty()) out.reasoning = *text;
  }
  ROOST_TRY(const json::Value* details, message.array("reasoning_details", limits::kPartsMax));
  if (details != nullptr && out.reasoning.empty()) {
    for (const json::Value& detail : details->items()) {
      const json::Value* text = detail.find("text");
      if (text != nullptr && text->is_string()) out.reasoning += text->as_string();
    }
  }
  if (out.reasoning.empty()) out.reasoning = from_parts;
  if (out.reasoning.empty()) out.reasoning = take_inline_reasoning(out.text);
  return {};
}

Result<PastCall> read_past_call(const json::Value& value, std::string pointer, ParseNotes& notes) {
  ROOST_TRY(Fields call, Fields::open(value, std::move(pointer), notes));
  PastCall out;
  ROOST_TRY(const std::optional<std::string> id, call.string("id", kNoLimit));
  out.id = id.value_or("");
  ROOST_TRY(const std::optional<std::string> type, call.string("type", limits::kLabelBytesMax));
  const bool is_custom = type.value_or("function") == "custom";
  const std::string key = is_custom ? "custom" : "function";
  ROOST_TRY(const json::Value* body, call.require(key));
  ROOST_TRY(Fields fields, Fields::open(*body, call.pointer_of(key), notes));
  ROOST_TRY(const json::Value* name, fields.require("name"));
  if (!name->is_string())
    return fields.refuse(Refusal::FieldType, "name",
                         fmt::format("have {}, want a string", value_short(*name)));
  out.name = name->as_string();
  if (is_custom) {
    ROOST_TRY(const std::optional<std::string> input, fields.string("input", kNoLimit));
    out.arguments = json::Value::object();
    out.arguments.set("input", json::Value::string(input.value_or("")));
  } else {
    out.arguments = past_arguments(fields.take("arguments"));
  }
  fields.ignore_rest();
  call.ignore("index");
  call.ignore_rest();
  return out;
}

Result<void> read_past_calls(Fields& message, Message& out) {
  ROOST_TRY(const json::Value* calls, message.array("tool_calls", limits::kPartsMax));
  if (calls != nullptr) {
    size_t idx = 0;
    for (const json::Value& call : calls->items()) {
      const std::string pointer = fmt::format("{}/{}", message.pointer_of("tool_calls"), idx++);
      ROOST_TRY(PastCall past, read_past_call(call, pointer, message.notes()));
      out.calls.push_back(std::move(past));
    }
  }
  if (message.take("function_call") != nullptr)
    return message.refuse(Refusal::UnsupportedField, "function_call", "use tool_calls");
  return {};
}

Result<Message> read_message(const json::Value& value, std::string pointer, ParseNotes& notes) {
  ROOST_TRY(Fields fields, Fields::open(value, std::move(pointer), notes));
  ROOST_TRY(const json::Value* role_value, fields.require("role"));
  if (!role_value->is_string())
    return fields.refuse(Refusal::FieldType, "role",
                         fmt::format("have {}, want a string", value_short(*role_value)));
  const std::string& role = role_value->as_string();
  Message out;
  if (role == "system" || role == "developer")
    out.role = Role::kSystem;
  else if (role == "user")
    out.role = Role::kUser;
  else if (role == "assistant")
    out.role = Role::kAssistant;
  else if (role == "tool")
    out.role = Role::kTool;
  else
    return fields.refuse(Refusal::FieldValue, "role",
                         fmt::format("have {}, want system, developer, user, assistant or tool",
                                     quoted_short(role)));
  ROOST_TRY_DO(read_content(fields, out));
  if (out.role == Role::kAssistant) {
    ROOST_TRY_DO(read_reasoning(fields, out));
    ROOST_TRY_DO(read_past_calls(fields, out));
  } else if (out.role == Role::kTool) {
    ROOST_TRY(const std::optional<std::string> id, fields.string("tool_call_id", kNoLimit));
    out.call_id = id.value_or("");
  }
  fields.ignore_rest();
  return out;
}

// Takes cache_control out wherever it stands in a tool: a hint of billing, never text of a prompt.
void drop_cache_control(json::Value& value, const std::string& pointer, ParseNotes& notes) {
  if (!value.is_object()) return;
  std::vector<json::Member>& members = value.members();
  const auto is_hint = [](const json::Member& m) { return m.first == "cache_control"; };
  if (std::none_of(members.begin(), members.end(), is_hint)) return;
  std::erase_if(members, is_hint);
  notes.ignored.push_back(pointer + "/cache_control");
}

Result<std::string> read_tool_name(Fields& fields, std::set<std::string>& names) {
  ROOST_TRY(const json::Value* value, fields.require("name"));
  if (!value->is_string())
    return fields.refuse(Refusal::FieldType, "name",
                         fmt::format("have {}, want a string", value_short(*value)));
  const std::string& name = value->as_string();
  const bool has_bad_byte = std::any_of(name.begin(), name.end(), [](char c) {
    return c == '<' || c == '>' || static_cast<unsigned char>(c) < 0x20 || c == 0x7F;
  });
  if (name.empty() || name.size() > limits::kLabelBytesMax || has_bad_byte)
    return fields.refuse(Refusal::FieldValue, "name",
                         fmt::format("have {}, want 1 to {} bytes without < > and controls",
                                     quoted_short(name), limits::kLabelBytesMax));
  if (!names.insert(name).second)
    return fields.refuse(Refusal::FieldValue, "name",
                         fmt::format("two tools are named {}", quoted_short(name)));
  return name;
}

// A tool of free text is shown to the model as a function with one string.
json::Value custom_as_function(const std::string& name, const std::string& description) {
  json::Value input = json::Value::object();
  input.set("type", json::Value::string("string"));
  json::Value properties = json::Value::object();
  properties.set("input", std::move(input));
  json::Value parameters = json::Value::object();
  parameters.set("type", json::Value::string("object"));
  parameters.set("properties", std::move(properties));
  parameters.set("required", json::Value::array({json::Value::string("input")}));
  json::Value function = json::Value::object();
  function.set("name", json::Value::string(name));
  if (!description.empty()) function.set("description", json::Value::string(description));
  function.set("parameters", std::move(parameters));
  json::Value tool = json::Value::object();
  tool.set("type", json::Value::string("function"));
  tool.set("function", std::move(function));
  return tool;
}

// One entry of `tools`; nothing for a kind that is left out.
Result<std::optional<json::Value>> read_tool(const json::Value& value, const std::string& pointer,
                                             ParseNotes& notes, std::set<std::string>& names) {
  ROOST_TRY(Fields tool, Fields::open(value, pointer, notes));
  ROOST_TRY(const json::Value* type_value, tool.require("type"));
  if (!type_value->is_string())
    return tool.refuse(Refusal::FieldType, "type",
                       fmt::format("have {}, want a string", value_short(*type_value)));
  const std::string& type = type_value->as_string();
  if (type != "function" && type != "custom") {
    notes.ignored.push_back(pointer);
    return std::optional<json::Value>();
  }
  if (const std::optional<std::string> twice = json::find_duplicate_key(value))
    return refuse_at(notes, Refusal::JsonDuplicateKey, pointer + *twice,
                     "a key stands twice in the object");
  ROOST_TRY(const json::Value* body, tool.require(type));
  ROOST_TRY(Fields fields, Fields::open(*body, pointer + "/" + type, notes));
  ROOST_TRY(const std::string name, read_tool_name(fields, names));
  ROOST_TRY(const std::optional<std::string> description, fields.string("description", kNoLimit));
  if (type == "custom") {
    if (fields.take("format") != nullptr)
      return fields.refuse(Refusal::UnsupportedField, "format",
                           "the form of a custom tool's input is not enforced");
    return std::optional<json::Value>(custom_as_function(name, description.value_or("")));
  }
  ROOST_TRY_DO(fields.object("parameters"));
  ROOST_TRY(const std::optional<bool> strict, fields.boolean("strict"));
  if (strict.value_or(false))
    return fields.refuse(Refusal::UnsupportedField, "strict",
                         "arguments are not constrained; leave it out or say false");
  json::Value printed = value;
  drop_cache_control(printed, pointer, notes);
  for (json::Member& member : printed.members())
    if (member.first == type) drop_cache_control(member.second, pointer + "/" + type, notes);
  return std::optional<json::Value>(std::move(printed));
}

}  // namespace

json::Value past_arguments(const json::Value* arguments) {
  json::Value out = json::Value::object();
  if (arguments == nullptr) return out;
  json::Value parsed;
  std::string text;
  if (arguments->is_string()) {
    text = arguments->as_string();
    if (text.find_first_not_of(" \t\r\n") == std::string::npos) return out;
    Result<json::Value> result = json::parse(text);
    if (result) parsed = std::move(result).value();
    if (result && parsed.is_null()) return out;
  } else {
    parsed = *arguments;
    if (!parsed.is_object()) text = json::write(parsed);
  }
  if (!parsed.is_object()) {
    out.set("arguments", json::Value::string(text));
    return out;
  }
  // Of a repeated key: the last value at the first place, as reading into a dictionary gives.
  std::unordered_map<std::string, size_t> places;
  std::vector<json::Member>& members = out.members();
  for (json::Member& member : parsed.members()) {
    const auto [place, is_first] = places.try_emplace(member.first, members.size());
    if (is_first)
      members.push_back(std::move(member));
    else
      members[place->second].second = std::move(member.second);
  }
  return out;
}

std::string take_inline_reasoning(std::string& text) {
  constexpr std::string_view kOpen = "<think>";
  constexpr std::string_view kClose = "</think>";
  const size_t close = text.find(kClose);
  if (close == std::string::npos) return "";
  std::string reasoning = text.substr(0, close);
  const size_t open = reasoning.find_first_not_of(" \t\r\n");
  if (open != std::string::npos && reasoning.compare(open, kOpen.size(), kOpen) == 0)
    reasoning.erase(0, open + kOpen.size());
  const size_t first = std::min(reasoning.find_first_not_of('\n'), reasoning.size());
  reasoning.erase(0, first);
  reasoning.erase(reasoning.find_last_not_of('\n') + 1);
  text.erase(0, close + kClose.size());
  text.erase(0, std::min(text.find_first_not_of('\n'), text.size()));
  return reasoning;
}

Result<std::vector<Message>> read_messages(Fields& body) {
  ROOST_TRY(const json::Value* messages, body.array("messages", limits::kMessagesMax));
  if (messages == nullptr || messages->items().empty())
    return body.refuse(Refusal::MissingField, "messages", "at least one message must be given");
  std::vector<Message> out;
  out.reserve(messages->items().size());
  for (const json::Value& value : messages->items()) {
    const std::string pointer = fmt::format("{}/{}", body.pointer_of("messages"), out.size());
    ROOST_TRY(Message message, read_message(value, pointer, body.notes()));
    out.push_back(std::move(message));
  }
  return out;
}

Result<std::vector<json::Value>> read_tools(Fields& body) {
  std::vector<json::Value> out;
  ROOST_TRY(const json::Value* tools, body.array("tools", limits::kToolsMax));
  if (tools == nullptr) return out;
  std::set<std::string> names;
  size_t idx = 0;
  for (const json::Value& value : tools->items()) {
    const std::string pointer = fmt::format("{}/{}", body.pointer_of("tools"), idx++);
    ROOST_TRY(std::optional<json::Value> tool, read_tool(value, pointer, body.notes(), names));
    if (tool) out.push_back(std::move(*tool));
  }
  return out;
}

}  // namespace roost
