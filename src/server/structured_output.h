// The fields that ask for a reply of a certain form (docs/SERVER.md, structured output).
#pragma once

#include <string>
#include <vector>

#include "base/json.h"
#include "base/result.h"

namespace roost {

class Fields;

// What was asked, checked as fields but not compiled.
struct OutputFormat {
  enum class Kind { kFree, kJsonObject, kSchema, kRegex, kChoice, kGrammar };
  Kind kind = Kind::kFree;
  json::Value schema;                // kSchema
  std::string text;                  // kRegex, kGrammar
  std::vector<std::string> choices;  // kChoice
  bool has_space = true;             // white space between the tokens of JSON
  std::string path;                  // of the field, for refusals
};

// Each takes its field and refuses request.field_conflict when another one has set `out`.
Result<void> read_structured_outputs(Fields& body, OutputFormat& out);  // every dialect
Result<void> read_response_format(Fields& body, OutputFormat& out);     // Chat
Result<void> read_text_format(Fields& text, OutputFormat& out);  // Responses: `format` in `text`
// Messages: `format` in `output_config`, or `output_format` at the top level.
Result<void> read_messages_format(Fields& parent, const char* key, OutputFormat& out);

}  // namespace roost
