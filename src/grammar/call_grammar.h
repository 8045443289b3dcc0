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

// One call of an offered tool, or one or more behind each other: names are those offered,
// parameters come in any order, required ones must come, others only where the schema lets them.
// Strings are free text up to the closing tag, other values JSON. What of the schemas is not
// enforced goes to `unenforced` as "tool: what". Refuses what compile_json_schema refuses of a
// strict tool, and schema.too_large.
Result<Automaton> compile_calls(const std::vector<CallForm>& tools, bool is_single,
                                std::vector<std::string>* unenforced = nullptr);

}  // namespace roost
