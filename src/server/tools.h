// Tools and the choice among them, as the dialects spell them.
#pragma once

#include <memory>
#include <set>
#include <string>
#include <vector>

#include "server/chat_request.h"
#include "server/request_fields.h"
#include "text/tool_table.h"

namespace roost {

// Collects the tools of one body. Entries of a kind that is not offered are listed as ignored.
class ToolReader {
 public:
  explicit ToolReader(ParseNotes& notes) : notes_(notes) {}

  // {"type":"function","function":{…}} or {"type":"custom","custom":{…}}
  Result<void> read_chat(const json::Value& value, const std::string& pointer);
  // {"type":"function","name",…}, {"type":"custom",…}, {"type":"namespace","name","tools":[…]}
  Result<void> read_responses(const json::Value& value, const std::string& pointer);
  // {"name","description","input_schema"}
  Result<void> read_messages(const json::Value& value, const std::string& pointer);

  std::vector<Tool> take() { return std::move(tools_); }

 private:
  Result<std::string> read_name(Fields& fields, const std::string& prefix);
  Result<void> read_flat(Fields& fields, const std::string& type, const std::string& name_space);
  Result<void> add_free_text(Fields& fields, const std::string& name, Tool tool);

  ParseNotes& notes_;
  std::vector<Tool> tools_;
  std::set<std::string> names_;
};

// The tool of that name; null pointer if there is none.
const Tool* find_tool(const std::vector<Tool>& tools, std::string_view name);

// What a dialect's tool_choice asks for.
struct ToolChoice {
  enum class Kind { kAuto, kNone, kRequired, kNamed };
  Kind kind = Kind::kAuto;
  std::vector<std::string> names;  // kNamed: one; else the subset that may be called, if any
};
// tool_choice of Chat and Responses.
Result<ToolChoice> read_tool_choice(Fields& body);
// Refuses names that are not offered, and a call that must come where there are no tools.
Result<void> apply_tool_choice(Fields& body, const ToolChoice& choice, ChatRequest& out);

// Those that the reply may call: all, or the subset that the choice names.
std::vector<const Tool*> callable_tools(const ChatRequest& request);

// What the reply parser needs; null when calls are not looked for.
std::shared_ptr<const ToolTable> tool_table_of(const ChatRequest& request);

}  // namespace roost
