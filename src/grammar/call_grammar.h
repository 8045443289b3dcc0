// Tool calls in the family's XML form, where a request demands one.
#pragma once

#include <string>
#include <vector>

#include "base/json.h"
#include "grammar/automaton.h"

namespace roost {

struct CallForm {
  std::string name;        // 1 to 256 bytes without <, >, CR, LF
  json::Value parameters;  // a schema of an object; null: none are declared
  bool is_strict = false;  // a keyword that cannot be enforced is refused; else it is let go
};

// A place in a tool's parameters that is not enforced.
struct UnenforcedPlace {
  size_t tool_idx = 0;
  std::string pointer;  // below the parameters: "/properties/a/not"
};

// One call of an offered tool, or one or more behind each other: names are those offered,
// parameters come in any order (of the first 64; more come as declared), required ones must come,
// others only where the schema lets them. Strings are free text that holds nothing which a reader
// takes for the end of a value, other values JSON. Refuses what compile_json_schema refuses of a
// strict tool, and schema.too_large.
Result<Automaton> compile_calls(const std::vector<CallForm>& tools, bool is_single,
                                std::vector<UnenforcedPlace>* unenforced = nullptr);

// Any text, in which a call of one of these tools is as compile_calls has it from its name on.
Result<Automaton> compile_strict_calls(const std::vector<CallForm>& tools,
                                       std::vector<UnenforcedPlace>* unenforced = nullptr);

}  // namespace roost
