// Reading messages, parts, past calls and tools (docs/SERVER.md, messages to prompt).
#include "server/chat_messages.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>

#include "base/limits.h"
#include "server/tools.h"

namespace roost {

namespace {

constexpr size_t kNoLimit = SIZE_MAX;  // the body's own limit bounds the string

constexpr std::string_view kPictureParts[] = {"image_url", "image", "input_image"};
constexpr std::string_view kVideoParts[] = {"video_url", "video", "input_video"};

template <class List>
bool is_in(const List& list, std::string_view word) {
  return std::find(std::begin(list), std::end(list), word) != std::end(list);
}

}  // namespace

Result<void> read_chat_part(const json::Value& value, std::string pointer, ParseNotes& notes,
                            Message& out) {
  ROOST_TRY(Fields part, Fields::open(value, std::move(pointer), notes));
  ROOST_TRY(const json::Value* type_value, part.require("type"));
  if (!type_value->is_string())
    return part.refuse(Refusal::FieldType, "type",
                       fmt::format("have {}, want a string", value_short(*type_value)));
  const std::string& type = type_value->as_string();
  const bool takes_pictures = out.role == Role::kUser || out.role == Role::kTool;
  if (takes_pictures && is_in(kVideoParts, type))
    return refuse_at(
        notes, Refusal::VideoNotOffered, part.pointer(),
        fmt::format("the part has type {}, this server reads text", quoted_short(type)));
  if (takes_pictures && is_in(kPictureParts, type)) {
    note_picture(part.pointer(), type, out);
    return {};
  }
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

void note_picture(std::string pointer, std::string_view type, Message& out) {
  out.text += fmt::format("[image omitted: {}]", code_of(Refusal::ImageNotOffered));
  if (out.refused_picture) return;
  out.refused_picture = RefusedPicture{
      std::move(pointer),
      fmt::format("the part has type {}, this server reads text", quoted_short(type))};
}

Result<void> settle_pictures(Fields& body, std::vector<Message>& messages) {
  ROOST_TRY(const std::optional<std::string> choice,
            body.string("on_bad_image", limits::kLabelBytesMax));
  if (choice && *choice != "refuse" && *choice != "placeholder")
    return body.refuse(Refusal::FieldValue, "on_bad_image",
                       fmt::format("have {}, want refuse or placeholder", quoted_short(*choice)));
  const auto question = std::find_if(messages.rbegin(), messages.rend(),
                                     [](const Message& m) { return m.role == Role::kUser; });
  const auto n_past = choice == "placeholder" ? messages.rend() - question - 1 : 0;
  for (size_t i = 0; i < messages.size(); ++i) {
    std::optional<RefusedPicture>& picture = messages[i].refused_picture;
    if (picture && static_cast<ptrdiff_t>(i) >= n_past)
      return refuse_at(body.notes(), Refusal::ImageNotOffered, picture->pointer, picture->detail);
    picture.reset();
  }
  return {};
}

namespace {

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
    ROOST_TRY_DO(read_chat_part(part, pointer, message.notes(), out));
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

// Nothing where that would be refused; then the notes blame nobody.
std::optional<Fields> open_past(const json::Value* value, std::string pointer, ParseNotes& notes) {
  if (value == nullptr) return std::nullopt;
  Result<Fields> fields = Fields::open(*value, std::move(pointer), notes);
  if (fields) return std::move(fields).value();
  notes.param.clear();
  return std::nullopt;
}

// Whatever a client's past holds is read: it cannot be mended any more.
PastCall read_past_call(const json::Value& value, std::string pointer, ParseNotes& notes) {
  PastCall out;
  std::optional<Fields> outer = open_past(&value, std::move(pointer), notes);
  if (!outer) {
    out.arguments = past_arguments(&value);
    return out;
  }
  Fields& call = *outer;
  out.id = past_label(call.take("id"));
  const bool is_custom = past_label(call.take("type")) == "custom";
  const std::string key = is_custom ? "custom" : "function";
  std::optional<Fields> inner = open_past(call.take(key), call.pointer_of(key), notes);
  Fields& fields = inner ? *inner : call;  // what should be inside may stand one level higher
  out.name = past_label(fields.take("name"));
  if (is_custom) {
    out.arguments = json::Value::object();
    out.arguments.set("input", json::Value::string(past_label(fields.take("input"))));
  } else {
    out.arguments = past_arguments(fields.take("arguments"));
  }
  fields.ignore_rest();
  if (inner) call.ignore_rest();
  return out;
}

Result<void> read_past_calls(Fields& message, Message& out) {
  ROOST_TRY(const json::Value* calls, message.array("tool_calls", limits::kPartsMax));
  if (calls != nullptr) {
    size_t idx = 0;
    for (const json::Value& call : calls->items()) {
      const std::string pointer = fmt::format("{}/{}", message.pointer_of("tool_calls"), idx++);
      out.calls.push_back(read_past_call(call, pointer, message.notes()));
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
    out.call_id = past_label(fields.take("tool_call_id"));
  }
  fields.ignore_rest();
  return out;
}

}  // namespace

std::string past_label(const json::Value* value) {
  if (value == nullptr || value->is_null()) return "";
  return value->is_string() ? value->as_string() : json::write(*value);
}

json::Value past_arguments(const json::Value* arguments) {
  json::Value out = json::Value::object();
  if (arguments == nullptr || arguments->is_null()) return out;
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
  ROOST_TRY_DO(settle_pictures(body, out));
  return out;
}

Result<void> read_continuation(Fields& body, ChatRequest& out) {
  ROOST_TRY(const std::optional<bool> resume, body.boolean("continue_final_message"));
  ROOST_TRY(const std::optional<bool> header, body.boolean("add_generation_prompt"));
  if (resume.value_or(false) && header.value_or(false))
    return body.refuse(Refusal::FieldConflict, "continue_final_message",
                       "continue_final_message and add_generation_prompt are both true");
  const bool is_assistant = out.messages.back().role == Role::kAssistant;
  if (resume.value_or(false) && !is_assistant)
    return body.refuse(Refusal::FieldConflict, "continue_final_message",
                       "the last message is not the assistant's");
  out.continues_last = is_assistant && resume.value_or(!header.value_or(false));
  if (!header.value_or(true) && !out.continues_last)
    return body.refuse(Refusal::FieldValue, "add_generation_prompt",
                       "have false; a reply needs its header");
  return {};
}

Result<std::vector<Tool>> read_chat_tools(Fields& body) {
  ToolReader reader(body.notes());
  ROOST_TRY(const json::Value* tools, body.array("tools", limits::kToolsMax));
  if (tools == nullptr) return reader.take();
  size_t idx = 0;
  for (const json::Value& value : tools->items())
    ROOST_TRY_DO(reader.read_chat(value, fmt::format("{}/{}", body.pointer_of("tools"), idx++)));
  return reader.take();
}

}  // namespace roost
