// The tools that a reply may call: names and the types of their parameters.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/json.h"
#include "text/argument_type.h"

namespace roost {

struct OfferedTool {
  std::string name;
  json::Value parameters;     // a JSON schema; null: none was given
  bool is_free_text = false;  // its argument is one text and leaves as it is
};

class ToolTable {
 public:
  explicit ToolTable(std::vector<OfferedTool> tools);

  bool is_offered(std::string_view name) const { return by_name_.contains(std::string(name)); }
  // The tool of that name, else of that name in another case; null pointer if there is none.
  const OfferedTool* find(std::string_view name) const;

  // tool: null pointer for a name that nobody offered.
  static ArgumentType type_of(const OfferedTool* tool, std::string_view key);
  static bool is_declared(const OfferedTool* tool, std::string_view key);
  static bool is_closed(const OfferedTool* tool);  // other parameters are not allowed
  // Every required parameter is among the keys.
  static bool has_required(const OfferedTool& tool, const std::vector<std::string>& keys);

 private:
  std::vector<OfferedTool> tools_;
  std::unordered_map<std::string, size_t> by_name_, by_lower_name_;
};

}  // namespace roost
