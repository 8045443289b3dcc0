// Flattening and gathering.
#include "grammar/schema_set.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "base/limits.h"

namespace roost {

namespace {

struct Keyword {
  std::string_view key;
  KeywordFate fate;
  std::string_view words;
};

using enum KeywordFate;

constexpr Keyword kKeywords[] = {
#define ROOST_KEYWORD(key, fate, words) {key, fate, words},
#include "grammar/schema_keywords.def"
#undef ROOST_KEYWORD
};

bool is_same_number(const json::Value& a, const json::Value& b) {
  const std::optional<Decimal> x = parse_decimal(a.number_text());
  const std::optional<Decimal> y = parse_decimal(b.number_text());
  return x && y ? *x == *y : a.number_text() == b.number_text();
}

std::string percent_decoded(std::string_view text) {
  std::string out;
  const auto digit = [](char c) -> int {
    if (c >= '0' && c <= '9') return c - '0';
    const char lower = static_cast<char>(c | 0x20);
    return lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : -1;
  };
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '%' && i + 2 < text.size() && digit(text[i + 1]) >= 0 &&
        digit(text[i + 2]) >= 0) {
      out += static_cast<char>(digit(text[i + 1]) * 16 + digit(text[i + 2]));
      i += 2;
    } else {
      out += text[i];
    }
  }
  return out;
}

std::string pointer_unescaped(std::string_view step) {
  std::string out;
  for (size_t i = 0; i < step.size(); ++i) {
    const bool is_escape = step[i] == '~' && i + 1 < step.size();
    out += is_escape ? (step[i + 1] == '1' ? '/' : '~') : step[i];
    i += is_escape;
  }
  return out;
}

}  // namespace

uint8_t json_type_of(const json::Value& value) {
  switch (value.type()) {
    case json::Type::kNull:
      return json_types::kNull;
    case json::Type::kBool:
      return json_types::kBool;
    case json::Type::kNumber: {
      const std::optional<Decimal> number = parse_decimal(value.number_text());
      return number && number->is_integer() ? json_types::kInteger : json_types::kFraction;
    }
    case json::Type::kString:
      return json_types::kString;
    case json::Type::kArray:
      return json_types::kArray;
    case json::Type::kObject:
      return json_types::kObject;
  }
  return 0;
}

bool are_equal_values(const json::Value& a, const json::Value& b) {
  if (a.type() != b.type()) return false;
  if (a.is_number()) return is_same_number(a, b);
  if (a.is_array()) {
    return std::equal(a.items().begin(), a.items().end(), b.items().begin(), b.items().end(),
                      are_equal_values);
  }
  if (!a.is_object()) return a == b;
  if (a.members().size() != b.members().size()) return false;
  return std::all_of(a.members().begin(), a.members().end(), [&](const json::Member& member) {
    const json::Value* other = b.find(member.first);
    return other != nullptr && are_equal_values(member.second, *other);
  });
}

std::string pointer_escaped(std::string_view key) {
  std::string out;
  for (const char c : key) out += c == '~' ? "~0" : c == '/' ? "~1" : std::string(1, c);
  return out;
}

KeywordFate fate_of_keyword(std::string_view key) {
  for (const Keyword& keyword : kKeywords)
    if (keyword.key == key) return keyword.fate;
  return key.starts_with("x-") ? kIgnored : kRefused;
}

std::string schema_keyword_rows() {
  std::string out;
  for (const Keyword& keyword : kKeywords) {
    const char* fate = keyword.fate == kEnforced  ? "enforced"
                       : keyword.fate == kIgnored ? "ignored"
                                                  : "refused";
    out += fmt::format("| `{}` | {} | {} |\n", keyword.key, fate, keyword.words);
  }
  return out;
}

SchemaDocument::SchemaDocument(const json::Value& root) : root_(root) {
  places_[&root] = {};
}

const std::string& SchemaDocument::pointer_of(const json::Value& schema) const {
  static const std::string kNowhere;  // of a schema that was only looked at in passing
  const auto place = places_.find(&schema);
  return place == places_.end() ? kNowhere : place->second.pointer;
}

Error SchemaDocument::refuse(Refusal refusal, const json::Value& schema, std::string_view key,
                             std::string_view detail) const {
  std::string pointer = pointer_of(schema);
  if (!key.empty()) pointer += fmt::format("/{}", key);
  return Error{refusal, fmt::format("#{}: {}", pointer, detail)};
}

Result<const json::Value*> SchemaDocument::child(const json::Value& parent,
                                                 const json::Value& schema,
                                                 const std::string& steps) {
  const Place& above = places_.at(&parent);
  const Place place{above.pointer + "/" + steps, above.depth + 1};
  if (place.depth > limits::kSchemaDepthMax)
    return Error{Refusal::SchemaTooLarge,
                 fmt::format("more than {} schemas inside each other", limits::kSchemaDepthMax)};
  if (!schema.is_object() && !schema.is_bool())
    return Error{Refusal::SchemaInvalid,
                 fmt::format("#{}: a schema is an object or a boolean", place.pointer)};
  places_.try_emplace(&schema, place);
  return &schema;
}

Result<void> SchemaDocument::check_keywords(const json::Value& schema) const {
  for (const auto& [key, value] : schema.members()) {
    if (fate_of_keyword(key) != kRefused) continue;
    std::string shown = key.substr(0, limits::kErrorValueBytesMax);
    return refuse(Refusal::SchemaKeyword, schema, pointer_escaped(shown),
                  fmt::format("the keyword {} cannot be enforced", shown));
  }
  return {};
}

Result<const json::Value*> SchemaDocument::resolve(const json::Value& schema,
                                                   const std::string& reference) {
  if (!reference.starts_with('#'))
    return refuse(Refusal::SchemaKeyword, schema, "$ref", "the reference leads out of the schema");
  const std::string pointer = percent_decoded(std::string_view(reference).substr(1));
  if (!pointer.empty() && pointer[0] != '/')
    return refuse(Refusal::SchemaKeyword, schema, "$ref", "the reference is no JSON pointer");
  const json::Value* at = &root_;
  for (size_t begin = 0; begin < pointer.size() && at != nullptr;) {
    const size_t end = std::min(pointer.find('/', begin + 1), pointer.size());
    const std::string step = pointer_unescaped(pointer.substr(begin + 1, end - begin - 1));
    if (at->is_array()) {
      const bool is_index = !step.empty() && step.size() < 7 &&
                            step.find_first_not_of("0123456789") == std::string::npos;
      const size_t idx = is_index ? std::stoul(step) : SIZE_MAX;
      at = idx < at->items().size() ? &at->items()[idx] : nullptr;
    } else {
      at = at->find(step);
    }
    begin = end;
  }
  if (at == nullptr || (!at->is_object() && !at->is_bool()))
    return refuse(Refusal::SchemaInvalid, schema, "$ref", "the reference leads to no schema");
  places_.try_emplace(at, Place{pointer, 0});
  return at;
}

// References and parts that lead back to where they began say nothing about a value.
Result<void> SchemaDocument::refuse_circle(const json::Value& schema) {
  if (!without_circle_.insert(&schema).second) return {};
  std::unordered_set<const json::Value*> seen;
  std::vector<const json::Value*> work{&schema};
  while (!work.empty()) {
    const json::Value& at = *work.back();
    work.pop_back();
    std::vector<const json::Value*> next;
    if (const json::Value* all = at.find("allOf"); all != nullptr && all->is_array())
      for (const json::Value& part : all->items()) next.push_back(&part);
    const json::Value* reference = at.find("$ref");
    if (reference != nullptr && reference->is_string()) {
      ROOST_TRY(const json::Value* target, resolve(at, reference->as_string()));
      next.push_back(target);
    }
    for (const json::Value* to : next) {
      if (to == &schema)
        return refuse(Refusal::SchemaInvalid, schema, "", "it is defined by itself alone");
      if (seen.insert(to).second) work.push_back(to);
    }
  }
  return {};
}

Result<std::optional<SchemaSet>> SchemaDocument::flatten(const SchemaSet& set) {
  SchemaSet out;
  SchemaSet work(set.rbegin(), set.rend());  // the last one is the next one
  while (!work.empty()) {
    const SchemaItem item = work.back();
    work.pop_back();
    const json::Value& schema = *item.schema;
    if (schema.is_bool()) {
      if (!schema.as_bool()) return std::optional<SchemaSet>();
      continue;
    }
    const auto same = std::find_if(out.begin(), out.end(), [&](const SchemaItem& other) {
      return other.schema == item.schema;
    });
    if (same != out.end()) {
      same->done |= item.done;
      continue;
    }
    ROOST_TRY_DO(check_keywords(schema));
    out.push_back(item);
    if (const json::Value* all = schema.find("allOf")) {
      if (!all->is_array() || all->items().empty())
        return refuse(Refusal::SchemaInvalid, schema, "allOf", "want a list of schemas");
      for (size_t i = all->items().size(); i-- > 0;) {
        ROOST_TRY(const json::Value* part,
                  child(schema, all->items()[i], fmt::format("allOf/{}", i)));
        work.push_back({part, 0});
      }
    }
    if (const json::Value* reference = schema.find("$ref")) {
      if (!reference->is_string())
        return refuse(Refusal::SchemaInvalid, schema, "$ref", "want a string");
      ROOST_TRY_DO(refuse_circle(schema));
      ROOST_TRY(const json::Value* target, resolve(schema, reference->as_string()));
      work.push_back({target, 0});
    }
  }
  return std::optional(std::move(out));
}

Result<void> SchemaDocument::gather_types(const json::Value& schema, Constraints& out) const {
  const json::Value* type = schema.find("type");
  if (type == nullptr) return {};
  const json::Value list = type->is_array() ? *type : json::Value::array({*type});
  uint8_t types = 0;
  for (const json::Value& name : list.items()) {
    constexpr std::pair<std::string_view, uint8_t> kNames[] = {
        {"null", json_types::kNull},       {"boolean", json_types::kBool},
        {"integer", json_types::kInteger}, {"number", json_types::kInteger | json_types::kFraction},
        {"string", json_types::kString},   {"array", json_types::kArray},
        {"object", json_types::kObject}};
    uint8_t found = 0;
    for (const auto& [word, bits] : kNames)
      if (name.is_string() && name.as_string() == word) found = bits;
    if (found == 0) return refuse(Refusal::SchemaInvalid, schema, "type", "this is no type");
    types |= found;
  }
  out.types &= types;
  return {};
}

Result<void> SchemaDocument::gather_values(const json::Value& schema, Constraints& out) const {
  const json::Value* list = schema.find("enum");
  if (list != nullptr && !list->is_array())
    return refuse(Refusal::SchemaInvalid, schema, "enum", "want a list");
  const auto restrict_to = [&](std::vector<const json::Value*> values, const char* key) {
    out.values_pointer = pointer_of(schema) + "/" + key;
    if (out.values) {
      std::erase_if(values, [&](const json::Value* value) {
        return std::none_of(out.values->begin(), out.values->end(), [&](const json::Value* other) {
          return are_equal_values(*value, *other);
        });
      });
    }
    out.values = std::move(values);
  };
  if (list != nullptr) {
    std::vector<const json::Value*> values;
    for (const json::Value& value : list->items()) values.push_back(&value);
    restrict_to(std::move(values), "enum");
  }
  if (const json::Value* value = schema.find("const")) restrict_to({value}, "const");
  return {};
}

Result<void> SchemaDocument::gather_numbers(const json::Value& schema, Constraints& out) const {
  const auto decimal = [&](const char* key) -> Result<std::optional<Decimal>> {
    const json::Value* value = schema.find(key);
    if (value == nullptr) return std::optional<Decimal>();
    if (!value->is_number()) return refuse(Refusal::SchemaInvalid, schema, key, "want a number");
    std::optional<Decimal> number = parse_decimal(value->number_text());
    if (!number)
      return refuse(Refusal::SchemaTooLarge, schema, key, "more than 400 digits before or behind");
    return number;
  };
  for (const auto& [key, is_open] : {std::pair{"minimum", false}, {"exclusiveMinimum", true}}) {
    ROOST_TRY(const std::optional<Decimal> value, decimal(key));
    std::optional<NumberBound>& low = out.number.low;
    if (!value) continue;
    if (!low || compare(*value, low->value) > 0)
      low = NumberBound{*value, is_open};
    else if (compare(*value, low->value) == 0)
      low->is_open |= is_open;
  }
  for (const auto& [key, is_open] : {std::pair{"maximum", false}, {"exclusiveMaximum", true}}) {
    ROOST_TRY(const std::optional<Decimal> value, decimal(key));
    std::optional<NumberBound>& high = out.number.high;
    if (!value) continue;
    if (!high || compare(*value, high->value) < 0)
      high = NumberBound{*value, is_open};
    else if (compare(*value, high->value) == 0)
      high->is_open |= is_open;
  }
  ROOST_TRY(const std::optional<Decimal> multiple, decimal("multipleOf"));
  if (!multiple) return {};
  if (multiple->is_negative || multiple->is_zero())
    return refuse(Refusal::SchemaInvalid, schema, "multipleOf", "want more than 0");
  if (!multiple_of(*multiple))
    return refuse(Refusal::SchemaKeyword, schema, "multipleOf",
                  "want c·10^-k with 1 <= c <= 1000 and 0 <= k <= 9");
  out.number.multiples_of.push_back(*multiple);
  return {};
}

Result<void> SchemaDocument::gather_counts(const json::Value& schema, Constraints& out) const {
  const auto count = [&](const char* key) -> Result<std::optional<uint32_t>> {
    const json::Value* value = schema.find(key);
    if (value == nullptr) return std::optional<uint32_t>();
    const std::optional<uint64_t> n = value->is_number() ? value->as_uint64() : std::nullopt;
    if (!n) return refuse(Refusal::SchemaInvalid, schema, key, "want an integer from 0 on");
    // Longer than any reply: the exact number does not matter.
    return std::optional(static_cast<uint32_t>(std::min<uint64_t>(*n, UINT32_MAX - 1)));
  };
  const auto raise = [&](const char* key, uint32_t& low) -> Result<bool> {
    ROOST_TRY(const std::optional<uint32_t> n, count(key));
    const bool is_higher = n && *n > low;
    if (is_higher) low = *n;
    return is_higher;
  };
  const auto lower = [&](const char* key, uint32_t& high) -> Result<void> {
    ROOST_TRY(const std::optional<uint32_t> n, count(key));
    if (n) high = std::min(high, *n);
    return {};
  };
  ROOST_TRY_DO(raise("minLength", out.length_min));
  ROOST_TRY_DO(lower("maxLength", out.length_max));
  ROOST_TRY_DO(raise("minItems", out.items_min));
  ROOST_TRY_DO(lower("maxItems", out.items_max));
  ROOST_TRY(const bool is_higher, raise("minProperties", out.members_min));
  if (is_higher) out.members_min_pointer = pointer_of(schema) + "/minProperties";
  return lower("maxProperties", out.members_max);
}

Result<void> SchemaDocument::gather_texts(const json::Value& schema, Constraints& out) const {
  for (const auto& [key, list] : {std::pair{"pattern", &out.patterns}, {"format", &out.formats}}) {
    const json::Value* value = schema.find(key);
    if (value == nullptr) continue;
    if (!value->is_string()) return refuse(Refusal::SchemaInvalid, schema, key, "want a string");
    list->emplace_back(value->as_string(), pointer_of(schema) + "/" + key);
  }
  if (const json::Value* unique = schema.find("uniqueItems")) {
    if (!unique->is_bool())
      return refuse(Refusal::SchemaInvalid, schema, "uniqueItems", "want a boolean");
    if (unique->as_bool()) out.unique_pointer = pointer_of(schema) + "/uniqueItems";
  }
  const json::Value* required = schema.find("required");
  if (required == nullptr) return {};
  if (!required->is_array())
    return refuse(Refusal::SchemaInvalid, schema, "required", "want a list of strings");
  for (const json::Value& name : required->items()) {
    if (!name.is_string())
      return refuse(Refusal::SchemaInvalid, schema, "required", "want a list of strings");
    if (std::find(out.required.begin(), out.required.end(), name.as_string()) == out.required.end())
      out.required.push_back(name.as_string());
  }
  return {};
}

Result<Constraints> SchemaDocument::gather(const SchemaSet& flat) const {
  Constraints out;
  for (const SchemaItem& item : flat) {
    ROOST_TRY_DO(gather_types(*item.schema, out));
    ROOST_TRY_DO(gather_values(*item.schema, out));
    ROOST_TRY_DO(gather_numbers(*item.schema, out));
    ROOST_TRY_DO(gather_counts(*item.schema, out));
    ROOST_TRY_DO(gather_texts(*item.schema, out));
  }
  return out;
}

}  // namespace roost
