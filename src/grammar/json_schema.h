// JSON schemas to automata (docs/SERVER.md, structured output).
#pragma once

#include "base/json.h"
#include "grammar/automaton.h"
#include "grammar/schema_set.h"

namespace roost {

struct JsonOptions {
  bool has_space = true;  // false: no white space between the tokens of JSON
};

// Values that the schema describes. Refuses schema.unsupported_keyword, schema.invalid and
// schema.unsatisfiable with the place in the schema, schema.too_large, json.duplicate_key, and what
// compile_regex refuses of a pattern.
Result<Automaton> compile_json_schema(const json::Value& schema, const JsonOptions& options = {});

// Any JSON object.
Result<Automaton> compile_json_object(const JsonOptions& options = {});

// A rule for values of a schema of the document in an automaton whose punctuation is there.
Result<RuleId> add_json_schema(AutomatonBuilder& builder, SchemaDocument& document,
                               const json::Value& schema);

}  // namespace roost
