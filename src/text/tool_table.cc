#include "text/tool_table.h"

#include <algorithm>

namespace roost {

namespace {

std::string lower(std::string_view s) {
  std::string out(s);
  for (char& c : out)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c + 32);
  return out;
}

const json::Value* property(const OfferedTool* tool, std::string_view key) {
  const json::Value* properties = tool == nullptr ? nullptr : tool->parameters.find("properties");
  return properties == nullptr ? nullptr : properties->find(key);
}

}  // namespace

ToolTable::ToolTable(std::vector<OfferedTool> tools) : tools_(std::move(tools)) {
  for (size_t i = 0; i < tools_.size(); ++i) {
    by_name_.try_emplace(tools_[i].name, i);
    by_lower_name_.try_emplace(lower(tools_[i].name), i);
  }
}

const OfferedTool* ToolTable::find(std::string_view name) const {
  const auto exact = by_name_.find(std::string(name));
  if (exact != by_name_.end()) return &tools_[exact->second];
  const auto other = by_lower_name_.find(lower(name));
  return other == by_lower_name_.end() ? nullptr : &tools_[other->second];
}

ArgumentType ToolTable::type_of(const OfferedTool* tool, std::string_view key) {
  static const json::Value kNoSchema;
  return ArgumentType::of(property(tool, key), tool == nullptr ? kNoSchema : tool->parameters);
}

bool ToolTable::is_declared(const OfferedTool* tool, std::string_view key) {
  return property(tool, key) != nullptr;
}

bool ToolTable::is_closed(const OfferedTool* tool) {
  const json::Value* more =
      tool == nullptr ? nullptr : tool->parameters.find("additionalProperties");
  return more != nullptr && more->is_bool() && !more->as_bool();
}

bool ToolTable::has_required(const OfferedTool& tool, const std::vector<std::string>& keys) {
  const json::Value* required = tool.parameters.find("required");
  if (required == nullptr || !required->is_array()) return true;
  return std::all_of(required->items().begin(), required->items().end(), [&](const json::Value& r) {
    return !r.is_string() || std::find(keys.begin(), keys.end(), r.as_string()) != keys.end();
  });
}

}  // namespace roost
