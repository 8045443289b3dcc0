// Schemas that bind the same value together: references followed, keywords checked and gathered.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "base/json.h"
#include "grammar/number_dfa.h"

namespace roost {

// Types as bits; a number without fraction is an integer, however it is spelled.
namespace json_types {
inline constexpr uint8_t kNull = 1, kBool = 2, kInteger = 4, kFraction = 8, kString = 16,
                         kArray = 32, kObject = 64, kAll = 127;
}
uint8_t json_type_of(const json::Value& value);

// Equal as values: 1 and 1.0 are, and objects in any order.
bool are_equal_values(const json::Value& a, const json::Value& b);

struct SchemaItem {
  const json::Value* schema = nullptr;
  uint8_t done = 0;  // groups of branches that are decided already: 1 anyOf, 2 oneOf

  auto operator<=>(const SchemaItem&) const = default;
};
using SchemaSet = std::vector<SchemaItem>;  // in the order in which keywords come into force

// What the keywords of a set say together, but for those that hold schemas.
struct Constraints {
  uint8_t types = json_types::kAll;
  std::optional<std::vector<const json::Value*>> values;  // enum, const
  std::string values_pointer;
  NumberLimits number;
  uint32_t length_min = 0, length_max = UINT32_MAX;
  std::vector<std::pair<std::string, std::string>> patterns, formats;  // text, pointer
  uint32_t items_min = 0, items_max = UINT32_MAX;
  std::string unique_pointer;  // of uniqueItems true; empty: items may repeat
  uint32_t members_min = 0, members_max = UINT32_MAX;
  std::string members_min_pointer;
  std::vector<std::string> required;
};

// A key as a step of a JSON pointer.
std::string pointer_escaped(std::string_view key);

enum class KeywordFate { kEnforced, kIgnored, kRefused };
KeywordFate fate_of_keyword(std::string_view key);

// The rows of the keywords' table in docs/SERVER.md.
std::string schema_keyword_rows();

// One schema document. It must outlive this.
class SchemaDocument {
 public:
  explicit SchemaDocument(const json::Value& root);

  const json::Value& root() const { return root_; }
  // The schema's place as a JSON pointer, for refusals.
  const std::string& pointer_of(const json::Value& schema) const;
  // Registers a schema below another. Refuses schema.too_large.
  Result<const json::Value*> child(const json::Value& parent, const json::Value& schema,
                                   const std::string& steps);

  // References and allOf put their parts into the set. Nothing when a part is false. Refuses
  // keywords that cannot be enforced and schemas that are none.
  Result<std::optional<SchemaSet>> flatten(const SchemaSet& set);
  Result<Constraints> gather(const SchemaSet& flat) const;

  Error refuse(Refusal refusal, const json::Value& schema, std::string_view key,
               std::string_view detail) const;

 private:
  struct Place {
    std::string pointer;
    int depth = 0;
  };
  Result<void> check_keywords(const json::Value& schema) const;
  Result<void> refuse_circle(const json::Value& schema);
  Result<const json::Value*> resolve(const json::Value& schema, const std::string& reference);
  Result<void> gather_values(const json::Value& schema, Constraints& out) const;
  Result<void> gather_numbers(const json::Value& schema, Constraints& out) const;
  Result<void> gather_counts(const json::Value& schema, Constraints& out) const;
  Result<void> gather_texts(const json::Value& schema, Constraints& out) const;
  Result<void> gather_types(const json::Value& schema, Constraints& out) const;

  const json::Value& root_;
  std::unordered_map<const json::Value*, Place> places_;
  std::unordered_set<const json::Value*> without_circle_;
};

}  // namespace roost
