// Reading tools (docs/SERVER.md, tools).
#include "server/tools.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/limits.h"

namespace roost {

namespace {

// Takes cache_control out of a tool: a hint of billing, never text of a prompt.
void drop_cache_control(json::Value& value, const std::string& pointer, ParseNotes& notes) {
  if (!value.is_object()) return;
  std::vector<json::Member>& members = value.members();
  const auto is_hint = [](const json::Member& m) { return m.first == "cache_control"; };
  if (std::none_of(members.begin(), members.end(), is_hint)) return;
  std::erase_if(members, is_hint);
  notes.ignored.push_back(pointer + "/cache_control");
}

json::Value function_form(const std::string& name, const json::Value* description,
                          const json::Value& parameters) {
  json::Value function = json::Value::object();
  function.set("name", json::Value::string(name));
  if (description != nullptr) function.set("description", *description);
  if (!parameters.is_null()) function.set("parameters", parameters);
  json::Value tool = json::Value::object();
  tool.set("type", json::Value::string("function"));
  tool.set("function", std::move(function));
  return tool;
}

// A tool of free text is shown to the model as a function with one string.
json::Value free_text_parameters() {
  json::Value input = json::Value::object();
  input.set("type", json::Value::string("string"));
  json::Value properties = json::Value::object();
  properties.set("input", std::move(input));
  json::Value out = json::Value::object();
  out.set("type", json::Value::string("object"));
  out.set("properties", std::move(properties));
  out.set("required", json::Value::array({json::Value::string("input")}));
  return out;
}

Result<std::string> read_type(Fields& tool) {
  ROOST_TRY(const json::Value* value, tool.require("type"));
  if (!value->is_string())
    return tool.refuse(Refusal::FieldType, "type",
                       fmt::format("have {}, want a string", value_short(*value)));
  return value->as_string();
}

Result<void> check_keys(const json::Value& value, const std::string& pointer, ParseNotes& notes) {
  if (const std::optional<std::string> twice = json::find_duplicate_key(value))
    return refuse_at(notes, Refusal::JsonDuplicateKey, pointer + *twice,
                     "a key stands twice in the object");
  return {};
}

}  // namespace

Result<std::string> ToolReader::read_name(Fields& fields, const std::string& prefix) {
  ROOST_TRY(const json::Value* value, fields.require("name"));
  if (!value->is_string())
    return fields.refuse(Refusal::FieldType, "name",
                         fmt::format("have {}, want a string", value_short(*value)));
  const std::string name = prefix + value->as_string();
  const bool has_bad_byte = std::any_of(name.begin(), name.end(), [](char c) {
    return c == '<' || c == '>' || static_cast<unsigned char>(c) < 0x20 || c == 0x7F;
  });
  if (value->as_string().empty() || name.size() > limits::kLabelBytesMax || has_bad_byte)
    return fields.refuse(Refusal::FieldValue, "name",
                         fmt::format("have {}, want 1 to {} bytes without < > and controls",
                                     quoted_short(name), limits::kLabelBytesMax));
  if (!names_.insert(name).second)
    return fields.refuse(Refusal::FieldValue, "name",
                         fmt::format("two tools are named {}", quoted_short(name)));
  if (names_.size() > limits::kToolsMax)
    return fields.refuse(Refusal::TooManyItems, "name",
                         fmt::format("have more than {} tools", limits::kToolsMax));
  return name;
}

// The form of the input is told to the model and not enforced.
Result<void> ToolReader::add_free_text(Fields& fields, const std::string& name, Tool tool) {
  ROOST_TRY(const std::optional<std::string> description, fields.string("description", SIZE_MAX));
  std::string text = description.value_or("");
  ROOST_TRY(const json::Value* format, fields.object("format"));
  const json::Value* definition = format == nullptr ? nullptr : format->find("definition");
  if (definition == nullptr && format != nullptr && format->find("grammar") != nullptr)
    definition = format->find("grammar")->find("definition");
  if (definition != nullptr && definition->is_string()) {
    if (!text.empty()) text += "\n\n";
    text += "The input has this form:\n" + definition->as_string();
    notes_.ignored.push_back(fields.pointer_of("format"));
  }
  tool.name = name;
  tool.is_free_text = true;
  tool.parameters = free_text_parameters();
  tool.parameters_pointer = fields.pointer();
  const json::Value shown = json::Value::string(text);
  tool.printed = function_form(name, text.empty() ? nullptr : &shown, tool.parameters);
  tools_.push_back(std::move(tool));
  return {};
}

Result<void> ToolReader::read_chat(const json::Value& value, const std::string& pointer) {
  ROOST_TRY(Fields tool, Fields::open(value, pointer, notes_));
  ROOST_TRY(const std::string type, read_type(tool));
  if (type != "function" && type != "custom") {
    notes_.ignored.push_back(pointer);
    return {};
  }
  ROOST_TRY_DO(check_keys(value, pointer, notes_));
  ROOST_TRY(const json::Value* body, tool.require(type));
  ROOST_TRY(Fields fields, Fields::open(*body, pointer + "/" + type, notes_));
  ROOST_TRY(const std::string name, read_name(fields, ""));
  Tool out;
  out.own_name = name;
  if (type == "custom") return add_free_text(fields, name, std::move(out));
  ROOST_TRY_DO(fields.string("description", SIZE_MAX));
  ROOST_TRY(const json::Value* parameters, fields.object("parameters"));
  ROOST_TRY(const std::optional<bool> strict, fields.boolean("strict"));
  out.is_strict = strict.value_or(false);
  out.name = name;
  if (parameters != nullptr) out.parameters = *parameters;
  out.parameters_pointer = fields.pointer_of("parameters");
  out.printed = value;
  drop_cache_control(out.printed, pointer, notes_);
  for (json::Member& member : out.printed.members())
    if (member.first == type) drop_cache_control(member.second, pointer + "/" + type, notes_);
  tools_.push_back(std::move(out));
  return {};
}

Result<void> ToolReader::read_flat(Fields& fields, const std::string& type,
                                   const std::string& name_space) {
  ROOST_TRY_DO(check_keys(fields.value(), fields.pointer(), notes_));
  Tool out;
  out.name_space = name_space;
  ROOST_TRY(const std::string name, read_name(fields, name_space.empty() ? "" : name_space + "__"));
  out.own_name = name.substr(name_space.empty() ? 0 : name_space.size() + 2);
  if (type == "custom") return add_free_text(fields, name, std::move(out));
  ROOST_TRY(const json::Value* parameters, fields.object("parameters"));
  ROOST_TRY_DO(fields.string("description", SIZE_MAX));
  ROOST_TRY(const std::optional<bool> strict, fields.boolean("strict"));
  out.is_strict = strict.value_or(false);
  out.name = name;
  if (parameters != nullptr) out.parameters = *parameters;
  out.parameters_pointer = fields.pointer_of("parameters");
  out.printed = function_form(name, fields.take("description"), out.parameters);
  fields.ignore_rest();
  tools_.push_back(std::move(out));
  return {};
}

Result<void> ToolReader::read_responses(const json::Value& value, const std::string& pointer) {
  ROOST_TRY(Fields tool, Fields::open(value, pointer, notes_));
  ROOST_TRY(const std::string type, read_type(tool));
  if (type == "function" || type == "custom") return read_flat(tool, type, "");
  if (type != "namespace") {
    notes_.ignored.push_back(pointer);
    return {};
  }
  ROOST_TRY(const std::optional<std::string> name, tool.string("name", limits::kLabelBytesMax));
  if (!name) return tool.refuse(Refusal::MissingField, "name", "must be given");
  ROOST_TRY(const json::Value* inner, tool.array("tools", limits::kToolsMax));
  if (inner == nullptr) return {};
  size_t idx = 0;
  for (const json::Value& one : inner->items()) {
    const std::string at = fmt::format("{}/{}", tool.pointer_of("tools"), idx++);
    ROOST_TRY(Fields fields, Fields::open(one, at, notes_));
    ROOST_TRY(const std::string kind, read_type(fields));
    if (kind == "function" || kind == "custom")
      ROOST_TRY_DO(read_flat(fields, kind, *name));
    else
      notes_.ignored.push_back(at);
  }
  return {};
}

Result<void> ToolReader::read_messages(const json::Value& value, const std::string& pointer) {
  ROOST_TRY(Fields tool, Fields::open(value, pointer, notes_));
  ROOST_TRY(const std::optional<std::string> type, tool.string("type", limits::kLabelBytesMax));
  const json::Value* schema = tool.take("input_schema");
  if (type.value_or("custom") != "custom" || schema == nullptr) {
    notes_.ignored.push_back(pointer);
    return {};
  }
  ROOST_TRY_DO(check_keys(value, pointer, notes_));
  ROOST_TRY_DO(tool.object("input_schema"));
  ROOST_TRY(const std::string name, read_name(tool, ""));
  ROOST_TRY_DO(tool.string("description", SIZE_MAX));
  ROOST_TRY(const std::optional<bool> strict, tool.boolean("strict"));
  Tool out;
  out.is_strict = strict.value_or(false);
  out.parameters_pointer = tool.pointer_of("input_schema");
  out.name = out.own_name = name;
  out.parameters = *schema;
  out.printed = function_form(name, tool.take("description"), out.parameters);
  tool.ignore_rest();
  tools_.push_back(std::move(out));
  return {};
}

const Tool* find_tool(const std::vector<Tool>& tools, std::string_view name) {
  for (const Tool& tool : tools)
    if (tool.name == name) return &tool;
  return nullptr;
}

// ---- The choice ---------------------------------------------------------------------------------

namespace {

// The name in {"type":"function","name"} or {"type":"function","function":{"name"}}.
Result<std::string> read_choice_name(Fields& choice, const std::string& type) {
  const json::Value* name = choice.take("name");
  const json::Value* inner = choice.take(type);
  if (name == nullptr && inner != nullptr) name = inner->find("name");
  if (name == nullptr || !name->is_string())
    return choice.refuse(Refusal::MissingField, "name", "must be given");
  const json::Value* name_space = choice.take("namespace");
  if (name_space != nullptr && name_space->is_string())
    return name_space->as_string() + "__" + name->as_string();
  return name->as_string();
}

Result<ToolChoice> read_allowed_tools(Fields& choice) {
  // Chat puts mode and tools one level deeper than Responses.
  const json::Value* inner = choice.take("allowed_tools");
  const json::Value& holder = inner != nullptr && inner->is_object() ? *inner : choice.value();
  const json::Value* mode = holder.find("mode");
  const json::Value* list = holder.find("tools");
  const std::string word = mode != nullptr && mode->is_string() ? mode->as_string() : "";
  if (word != "auto" && word != "required")
    return choice.refuse(Refusal::FieldValue, "mode", "want auto or required");
  ToolChoice out;
  out.kind = word == "auto" ? ToolChoice::Kind::kAuto : ToolChoice::Kind::kRequired;
  if (list == nullptr || !list->is_array())
    return choice.refuse(Refusal::MissingField, "tools", "must be given");
  for (const json::Value& one : list->items()) {
    ROOST_TRY(Fields fields, Fields::open(one, choice.pointer_of("tools"), choice.notes()));
    ROOST_TRY(const std::string type, read_type(fields));
    ROOST_TRY(std::string name, read_choice_name(fields, type));
    out.names.push_back(std::move(name));
  }
  return out;
}

}  // namespace

Result<ToolChoice> read_tool_choice(Fields& body) {
  ToolChoice out;
  const json::Value* value = body.take("tool_choice");
  if (value == nullptr) return out;
  if (value->is_string()) {
    const std::string& word = value->as_string();
    if (word == "none")
      out.kind = ToolChoice::Kind::kNone;
    else if (word == "required")
      out.kind = ToolChoice::Kind::kRequired;
    else if (word != "auto")
      return body.refuse(
          Refusal::FieldValue, "tool_choice",
          fmt::format("have {}, want auto, none, required or a tool", quoted_short(word)));
    return out;
  }
  if (!value->is_object())
    return body.refuse(Refusal::FieldType, "tool_choice",
                       fmt::format("have {}, want a string or an object", value_short(*value)));
  ROOST_TRY(Fields choice, Fields::open(*value, body.pointer_of("tool_choice"), body.notes()));
  ROOST_TRY(const std::string type, read_type(choice));
  if (type == "allowed_tools") return read_allowed_tools(choice);
  out.kind = ToolChoice::Kind::kNamed;
  if (type != "function" && type != "custom") {
    out.names = {type};  // a hosted tool: never offered
    return out;
  }
  ROOST_TRY(std::string name, read_choice_name(choice, type));
  out.names = {std::move(name)};
  return out;
}

Result<void> apply_tool_choice(Fields& body, const ToolChoice& choice, ChatRequest& out) {
  for (const std::string& name : choice.names)
    if (find_tool(out.tools, name) == nullptr)
      return body.refuse(Refusal::UnknownTool, "tool_choice",
                         fmt::format("no tool is named {}", quoted_short(name)));
  const bool is_named = choice.kind == ToolChoice::Kind::kNamed;
  const bool is_forced = is_named || choice.kind == ToolChoice::Kind::kRequired;
  if (is_forced && out.tools.empty())
    return body.refuse(Refusal::UnknownTool, "tool_choice", "a call is asked for without tools");
  out.looks_for_calls = !out.tools.empty() && choice.kind != ToolChoice::Kind::kNone;
  out.must_call = is_forced;
  out.is_call_named = is_named;
  out.callable = choice.names;
  out.ends_at_first_call = out.ends_at_first_call || is_named;
  return {};
}

std::vector<const Tool*> callable_tools(const ChatRequest& request) {
  std::vector<const Tool*> out;
  if (!request.looks_for_calls) return out;
  for (const Tool& tool : request.tools) {
    const bool is_chosen = request.callable.empty() ||
                           std::find(request.callable.begin(), request.callable.end(), tool.name) !=
                               request.callable.end();
    if (is_chosen) out.push_back(&tool);
  }
  return out;
}

std::shared_ptr<const ToolTable> tool_table_of(const ChatRequest& request) {
  if (!request.looks_for_calls || request.tools.empty()) return nullptr;
  std::vector<OfferedTool> out;
  for (const Tool& tool : request.tools)
    out.push_back({tool.name, tool.parameters, tool.is_free_text});
  return std::make_shared<const ToolTable>(std::move(out));
}

}  // namespace roost
