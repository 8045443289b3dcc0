// Reading of response_format, structured_outputs and their kin.
#include "server/structured_output.h"

#include <fmt/format.h>

#include "base/limits.h"
#include "server/request_fields.h"

namespace roost {

namespace {

using Kind = OutputFormat::Kind;

Result<void> claim(Fields& parent, const char* key, Kind kind, OutputFormat& out) {
  const std::string path = path_of_pointer(parent.pointer_of(key));
  if (out.kind != Kind::kFree)
    return parent.refuse(Refusal::FieldConflict, key,
                         fmt::format("{} and {} both ask for a form", out.path, path));
  out.kind = kind;
  out.path = path;
  return {};
}

// A schema as JSON, or as a string that holds it.
Result<void> take_schema(Fields& parent, const char* key, OutputFormat& out) {
  ROOST_TRY(const json::Value* value, parent.require(key));
  if (value->is_string()) {
    if (value->as_string().size() > limits::kGrammarBytesMax)
      return parent.refuse(Refusal::TooManyItems, key,
                           fmt::format("have {} bytes, at most {}", value->as_string().size(),
                                       limits::kGrammarBytesMax));
    Result<json::Value> parsed = json::parse(value->as_string());
    if (!parsed) return parent.refuse(parsed.error().refusal, key, parsed.error().detail);
    out.schema = *std::move(parsed);
    return {};
  }
  if (!value->is_object() && !value->is_bool())
    return parent.refuse(Refusal::FieldType, key,
                         fmt::format("have {}, want a schema", value_short(*value)));
  out.schema = *value;
  return {};
}

Result<void> take_text(Fields& parent, const char* key, OutputFormat& out) {
  ROOST_TRY(const std::optional<std::string> text, parent.string(key, limits::kGrammarBytesMax));
  out.text = text.value_or("");
  return {};
}

Result<void> take_choices(Fields& parent, OutputFormat& out) {
  ROOST_TRY(const json::Value* list, parent.array("choice", limits::kChoiceStringsMax));
  size_t n_bytes = 0;
  for (const json::Value& choice : list->items()) {
    if (!choice.is_string())
      return parent.refuse(Refusal::FieldType, "choice",
                           fmt::format("have {}, want strings", value_short(choice)));
    n_bytes += choice.as_string().size();
    out.choices.push_back(choice.as_string());
  }
  if (out.choices.empty())
    return parent.refuse(Refusal::FieldRange, "choice", "have no string, want at least one");
  if (n_bytes > limits::kChoiceBytesMax)
    return parent.refuse(
        Refusal::TooManyItems, "choice",
        fmt::format("have {} bytes, at most {}", n_bytes, limits::kChoiceBytesMax));
  return {};
}

// {"type": text | json_object | json_schema}; the schema is flat or under json_schema.
Result<void> read_format(Fields& parent, const char* key, bool is_flat, OutputFormat& out) {
  ROOST_TRY(const json::Value* value, parent.object(key));
  if (value == nullptr) return {};
  ROOST_TRY(Fields format, Fields::open(*value, parent.pointer_of(key), parent.notes()));
  ROOST_TRY(const json::Value* type, format.require("type"));
  if (!type->is_string())
    return format.refuse(Refusal::FieldType, "type",
                         fmt::format("have {}, want a string", value_short(*type)));
  const std::string& word = type->as_string();
  if (word == "json_object") {
    ROOST_TRY_DO(claim(parent, key, Kind::kJsonObject, out));
  } else if (word == "json_schema") {
    ROOST_TRY_DO(claim(parent, key, Kind::kSchema, out));
    if (is_flat) {
      ROOST_TRY_DO(take_schema(format, "schema", out));
    } else {
      ROOST_TRY(const json::Value* inner, format.require("json_schema"));
      ROOST_TRY(Fields schema,
                Fields::open(*inner, format.pointer_of("json_schema"), format.notes()));
      ROOST_TRY_DO(take_schema(schema, "schema", out));
      // A schema is always enforced: strict changes nothing, and labels are labels.
      for (const char* label : {"name", "description", "strict"}) schema.take(label);
      schema.ignore_rest();
    }
  } else if (word != "text") {
    return format.refuse(
        Refusal::FieldValue, "type",
        fmt::format("have {}, want text, json_object or json_schema", quoted_short(word)));
  }
  for (const char* label : {"name", "description", "strict"}) format.take(label);
  format.ignore_rest();
  return {};
}

}  // namespace

Result<void> read_structured_outputs(Fields& body, OutputFormat& out) {
  constexpr const char* kKey = "structured_outputs";
  ROOST_TRY(const json::Value* value, body.object(kKey));
  if (value == nullptr) return {};
  ROOST_TRY(Fields fields, Fields::open(*value, body.pointer_of(kKey), body.notes()));
  for (const char* key : {"whitespace_pattern", "disable_additional_properties", "structural_tag"})
    if (fields.take(key) != nullptr)
      return fields.refuse(Refusal::UnsupportedField, key, "write it into the schema");
  constexpr std::pair<const char*, Kind> kSources[] = {{"json", Kind::kSchema},
                                                       {"regex", Kind::kRegex},
                                                       {"choice", Kind::kChoice},
                                                       {"grammar", Kind::kGrammar},
                                                       {"json_object", Kind::kJsonObject}};
  for (const auto& [key, kind] : kSources) {
    if (fields.take(key) == nullptr) continue;
    if (kind == Kind::kJsonObject) {
      ROOST_TRY(const std::optional<bool> is_wanted, fields.boolean(key));
      if (!is_wanted.value_or(false)) continue;
    }
    ROOST_TRY_DO(claim(fields, key, kind, out));
    if (kind == Kind::kSchema) ROOST_TRY_DO(take_schema(fields, key, out));
    if (kind == Kind::kRegex || kind == Kind::kGrammar) ROOST_TRY_DO(take_text(fields, key, out));
    if (kind == Kind::kChoice) ROOST_TRY_DO(take_choices(fields, out));
  }
  if (out.kind == Kind::kFree)
    return body.refuse(Refusal::MissingField, kKey,
                       "want one of json, regex, choice, grammar, json_object");
  ROOST_TRY(const std::optional<bool> is_tight, fields.boolean("disable_any_whitespace"));
  out.has_space = !is_tight.value_or(false);
  fields.ignore_rest();
  return {};
}

Result<void> read_response_format(Fields& body, OutputFormat& out) {
  return read_format(body, "response_format", false, out);
}

Result<void> read_text_format(Fields& text, OutputFormat& out) {
  return read_format(text, "format", true, out);
}

Result<void> read_messages_format(Fields& parent, const char* key, OutputFormat& out) {
  return read_format(parent, key, true, out);
}

}  // namespace roost
