// Reading a Messages body (docs/SERVER.md, Messages).
#include "server/anthropic_messages.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/json.h"
#include "base/limits.h"
#include "server/chat_messages.h"
#include "server/generation_fields.h"
#include "server/tools.h"

namespace roost {

namespace {

constexpr std::string_view kBillingNote = "x-anthropic-billing-header:";

// Blocks of tools that the protocol's owner runs: nothing of them is text of a prompt.
bool is_hosted(const std::string& type) {
  return type == "server_tool_use" || type == "redacted_thinking" ||
         (type.ends_with("_tool_result") && type != "tool_result") || type == "mcp_tool_use";
}

Result<std::string> type_of(Fields& block) {
  ROOST_TRY(const json::Value* value, block.require("type"));
  if (!value->is_string())
    return block.refuse(Refusal::FieldType, "type",
                        fmt::format("have {}, want a string", value_short(*value)));
  return value->as_string();
}

Result<std::string> text_of(Fields& block, const char* key) {
  ROOST_TRY(const json::Value* value, block.require(key));
  if (!value->is_string())
    return block.refuse(Refusal::FieldType, key,
                        fmt::format("have {}, want a string", value_short(*value)));
  return value->as_string();
}

// Blocks of a list, or a string as one block of text.
Result<const json::Value*> blocks_of(Fields& message, const char* key, std::string& text) {
  const json::Value* content = message.take(key);
  if (content == nullptr) return content;
  if (content->is_string()) {
    text = content->as_string();
    return static_cast<const json::Value*>(nullptr);
  }
  ROOST_TRY(content, message.array(key, limits::kPartsMax));
  return content;
}

// Reads the blocks of one message into turns: results of tools become turns of their own.
class BlockReader {
 public:
  BlockReader(Role role, ParseNotes& notes, std::vector<Message>& out)
      : role_(role), notes_(notes), out_(out) {}

  Result<void> read(const json::Value& value, const std::string& pointer) {
    ROOST_TRY(Fields block, Fields::open(value, pointer, notes_));
    ROOST_TRY(const std::string type, type_of(block));
    if (type == "tool_result" && role_ == Role::kUser) return read_result(block);
    if (type == "tool_use" && role_ == Role::kAssistant) {
      read_call(block);
      return {};
    }
    if (type == "thinking" && role_ == Role::kAssistant) {
      ROOST_TRY(const std::string thought, text_of(block, "thinking"));
      turn().reasoning += thought;
      return {};
    }
    if (is_hosted(type)) {
      notes_.ignored.push_back(pointer);
      return {};
    }
    if (type == "text") {
      ROOST_TRY(const std::string text, text_of(block, "text"));
      turn().text += text;
      block.ignore_rest();
      return {};
    }
    if (type == "image" && role_ == Role::kUser) {
      note_picture(pointer, type, turn());
      return {};
    }
    return refuse_at(notes_, Refusal::UnsupportedContent, pointer,
                     fmt::format("the block has type {}; text, thinking, tool_use and tool_result "
                                 "are read where they belong",
                                 quoted_short(type)));
  }

  void add_text(const std::string& text) { turn().text += text; }
  // A message without blocks is a turn all the same.
  void finish() {
    if (!has_any_) turn();
  }

 private:
  Message& turn() {
    if (!is_open_) {
      out_.emplace_back();
      out_.back().role = role_;
    }
    is_open_ = has_any_ = true;
    return out_.back();
  }

  void read_call(Fields& block) {
    PastCall call;
    call.id = past_label(block.take("id"));
    call.name = past_label(block.take("name"));
    call.arguments = past_arguments(block.take("input"));
    turn().calls.push_back(std::move(call));
    block.ignore_rest();
  }

  Result<void> read_result(Fields& block) {
    Message result;
    result.role = Role::kTool;
    result.call_id = past_label(block.take("tool_use_id"));
    ROOST_TRY(const json::Value* blocks, blocks_of(block, "content", result.text));
    size_t idx = 0;
    for (const json::Value& one :
         blocks == nullptr ? std::vector<json::Value>() : blocks->items()) {
      const std::string at = fmt::format("{}/{}", block.pointer_of("content"), idx++);
      ROOST_TRY(Fields inner, Fields::open(one, at, notes_));
      ROOST_TRY(const std::string type, type_of(inner));
      if (type == "image") {
        note_picture(at, type, result);
        continue;
      }
      if (type != "text")
        return refuse_at(notes_, Refusal::UnsupportedContent, at,
                         fmt::format("the block has type {}; text is read", quoted_short(type)));
      ROOST_TRY(const std::string text, text_of(inner, "text"));
      result.text += text;
      inner.ignore_rest();
    }
    block.take("is_error");
    block.ignore_rest();
    out_.push_back(std::move(result));
    is_open_ = false;
    has_any_ = true;
    return {};
  }

  const Role role_;
  ParseNotes& notes_;
  std::vector<Message>& out_;
  bool is_open_ = false;  // the last turn takes further text
  bool has_any_ = false;
};

Result<void> read_message(const json::Value& value, const std::string& pointer, ParseNotes& notes,
                          std::vector<Message>& out) {
  ROOST_TRY(Fields fields, Fields::open(value, pointer, notes));
  ROOST_TRY(const std::string role, text_of(fields, "role"));
  if (role != "user" && role != "assistant" && role != "system")
    return fields.refuse(
        Refusal::FieldValue, "role",
        fmt::format("have {}, want user, assistant or system", quoted_short(role)));
  BlockReader reader(role == "user"     ? Role::kUser
                     : role == "system" ? Role::kSystem
                                        : Role::kAssistant,
                     notes, out);
  std::string text;
  ROOST_TRY(const json::Value* blocks, blocks_of(fields, "content", text));
  if (blocks == nullptr) {
    reader.add_text(text);
  } else {
    size_t idx = 0;
    for (const json::Value& block : blocks->items())
      ROOST_TRY_DO(reader.read(block, fmt::format("{}/{}", fields.pointer_of("content"), idx++)));
    reader.finish();
  }
  Message& last = out.back();
  if (last.role == Role::kAssistant && last.reasoning.empty())
    last.reasoning = take_inline_reasoning(last.text);
  fields.ignore_rest();
  return {};
}

// `system`: one text, joined with blank lines. A client's note on billing is not part of it.
Result<void> read_system(Fields& body, std::vector<Message>& out) {
  std::string text;
  ROOST_TRY(const json::Value* blocks, blocks_of(body, "system", text));
  if (blocks == nullptr && text.starts_with(kBillingNote)) {
    text.erase(0, std::min(text.find('\n'), text.size() - 1) + 1);
    body.notes().ignored.push_back("/system");
  }
  size_t idx = 0;
  std::vector<std::string> texts;
  for (const json::Value& one : blocks == nullptr ? std::vector<json::Value>() : blocks->items()) {
    const std::string at = fmt::format("{}/{}", body.pointer_of("system"), idx++);
    ROOST_TRY(Fields block, Fields::open(one, at, body.notes()));
    ROOST_TRY(const std::string type, type_of(block));
    if (type != "text")
      return refuse_at(body.notes(), Refusal::UnsupportedContent, at,
                       fmt::format("the block has type {}; text is read", quoted_short(type)));
    ROOST_TRY(std::string one_text, text_of(block, "text"));
    block.ignore_rest();
    if (idx == 1 && one_text.starts_with(kBillingNote))
      body.notes().ignored.push_back(at);
    else
      texts.push_back(std::move(one_text));
  }
  for (size_t i = 0; i < texts.size(); ++i) text += (i == 0 ? "" : "\n\n") + texts[i];
  if (text.empty()) return {};
  Message system;
  system.role = Role::kSystem;
  system.text = std::move(text);
  out.push_back(std::move(system));
  return {};
}

Result<void> read_choice(Fields& body, ChatRequest& out) {
  ROOST_TRY(const json::Value* value, body.object("tool_choice"));
  ToolChoice choice;
  if (value != nullptr) {
    ROOST_TRY(Fields fields, Fields::open(*value, body.pointer_of("tool_choice"), body.notes()));
    ROOST_TRY(const std::string type, type_of(fields));
    if (type == "any") {
      choice.kind = ToolChoice::Kind::kRequired;
    } else if (type == "none") {
      choice.kind = ToolChoice::Kind::kNone;
    } else if (type == "tool") {
      choice.kind = ToolChoice::Kind::kNamed;
      ROOST_TRY(std::string name, text_of(fields, "name"));
      choice.names = {std::move(name)};
    } else if (type != "auto") {
      return fields.refuse(
          Refusal::FieldValue, "type",
          fmt::format("have {}, want auto, any, tool or none", quoted_short(type)));
    }
    ROOST_TRY(const std::optional<bool> one, fields.boolean("disable_parallel_tool_use"));
    out.ends_at_first_call = one.value_or(false);
    fields.ignore_rest();
  }
  return apply_tool_choice(body, choice, out);
}

}  // namespace

Result<ChatRequest> parse_anthropic_messages(std::string_view body, const RequestRules& rules,
                                             ParseNotes& notes) {
  ROOST_TRY(const json::Value value, json::parse(body));
  ROOST_TRY(Fields fields, Fields::open(value, "", notes));
  ChatRequest out;
  ROOST_TRY(out.model, read_model_name(fields, rules));
  ROOST_TRY_DO(read_system(fields, out.messages));
  ROOST_TRY(const json::Value* messages, fields.array("messages", limits::kMessagesMax));
  if (messages == nullptr || messages->items().empty())
    return fields.refuse(Refusal::MissingField, "messages", "at least one message must be given");
  size_t idx = 0;
  for (const json::Value& message : messages->items())
    ROOST_TRY_DO(read_message(message, fmt::format("/messages/{}", idx++), notes, out.messages));
  ROOST_TRY_DO(settle_pictures(fields, out.messages));
  ROOST_TRY(const json::Value* tools, fields.array("tools", limits::kToolsMax));
  ToolReader reader(notes);
  idx = 0;
  for (const json::Value& tool : tools == nullptr ? std::vector<json::Value>() : tools->items())
    ROOST_TRY_DO(reader.read_messages(tool, fmt::format("/tools/{}", idx++)));
  out.tools = reader.take();
  ROOST_TRY_DO(read_choice(fields, out));
  ROOST_TRY(const std::optional<bool> stream, fields.boolean("stream"));
  out.is_stream = stream.value_or(false);
  ROOST_TRY_DO(read_continuation(fields, out));
  FieldNames names;
  names.stop = "stop_sequences";
  ROOST_TRY(out.generation, read_generation(fields, rules, names));
  // In this protocol nobody thinks who was not told to.
  if (!out.generation.says_thinking) out.generation.thinking = false;
  for (const char* key : {"logprobs", "top_logprobs"})
    if (fields.take(key) != nullptr)
      return fields.refuse(Refusal::UnsupportedField, key, "this protocol has no probabilities");
  fields.ignore_rest();
  return out;
}

}  // namespace roost
