// Each set of schemas that binds one value together becomes one rule; equal sets are one rule, so
// recursion ends.
#include "grammar/json_schema.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <map>
#include <span>

#include "grammar/json_string.h"
#include "grammar/regex.h"
#include "grammar/schema_set.h"
#include "grammar/string_formats.h"

namespace roost {

namespace {

constexpr size_t kPatternsMax = 14;  // with the declared keys, 16 automata in a product
constexpr size_t kDistinctMax = 64;
constexpr uint8_t kAnyOfDone = 1, kOneOfDone = 2;

class SchemaCompiler {
 public:
  SchemaCompiler(AutomatonBuilder& builder, SchemaDocument& document)
      : builder_(builder), document_(document) {}

  Result<RuleId> compile(const json::Value& schema) {
    ROOST_TRY(const RuleId root, rule_of({{&schema, 0}}));
    while (!pending_.empty()) {
      const Pending next = std::move(pending_.front());
      pending_.pop_front();
      ROOST_TRY_DO(build(next));
    }
    return root;
  }

 private:
  struct Pending {
    RuleId rule;
    SchemaSet set;  // flat
  };

  Result<RuleId> never() {
    if (never_ == kNoRule) {
      ROOST_TRY(never_, builder_.reserve());
    }
    return never_;
  }

  // The rule of a set; it is built later unless it is there.
  Result<RuleId> rule_of(const SchemaSet& set) {
    ROOST_TRY_DO(builder_.budget().take_steps(static_cast<int64_t>(1 + set.size()) * 64));
    ROOST_TRY(std::optional<SchemaSet> flat, document_.flatten(set));
    if (!flat) return never();
    SchemaSet key = *flat;
    std::sort(key.begin(), key.end());
    const auto [it, is_new] = rules_.try_emplace(std::move(key), kNoRule);
    if (!is_new) return it->second;
    ROOST_TRY(const RuleId id, builder_.reserve());
    it->second = id;
    pending_.push_back({id, std::move(*flat)});
    return id;
  }

  Result<void> build(const Pending& pending) {
    for (const auto& [key, flag] : {std::pair{"anyOf", kAnyOfDone}, {"oneOf", kOneOfDone}}) {
      for (size_t i = 0; i < pending.set.size(); ++i) {
        const SchemaItem& item = pending.set[i];
        const json::Value* group = item.schema->find(key);
        if (group == nullptr || (item.done & flag) != 0) continue;
        return build_branches(pending, i, key, flag, *group);
      }
    }
    ROOST_TRY(Constraints all, document_.gather(pending.set));
    std::vector<RuleId> children;
    if (all.values) {
      ROOST_TRY(children, rules_of_values(pending.set, all));
    } else {
      ROOST_TRY(children, rules_of_types(pending.set, all));
    }
    Rule& rule = builder_.rule(pending.rule);
    rule.kind = RuleKind::kChoice;
    rule.children = std::move(children);
    return {};
  }

  Result<void> build_branches(const Pending& pending, size_t idx, const char* key, uint8_t flag,
                              const json::Value& group) {
    const json::Value& schema = *pending.set[idx].schema;
    if (!group.is_array() || group.items().empty())
      return document_.refuse(Refusal::SchemaInvalid, schema, key, "want a list of schemas");
    std::vector<SchemaSet> branches;
    std::vector<RuleId> children;
    for (size_t i = 0; i < group.items().size(); ++i) {
      ROOST_TRY(const json::Value* branch,
                document_.child(schema, group.items()[i], fmt::format("{}/{}", key, i)));
      ROOST_TRY_DO(refuse_circle(pending.set, idx, *branch, key));
      SchemaSet set = pending.set;
      set[idx].done |= flag;
      set.push_back({branch, 0});
      branches.push_back(set);
      ROOST_TRY(const RuleId child, rule_of(set));
      children.push_back(child);
    }
    if (flag == kOneOfDone) {
      for (size_t a = 0; a < branches.size(); ++a) {
        for (size_t b = a + 1; b < branches.size(); ++b) {
          ROOST_TRY(const bool is_apart, are_apart(branches[a], branches[b], 2));
          if (is_apart) continue;
          return document_.refuse(
              Refusal::SchemaKeyword, schema, "oneOf",
              fmt::format("a value may satisfy both branch {} and branch {}; use anyOf", a, b));
        }
      }
    }
    Rule& rule = builder_.rule(pending.rule);
    rule.kind = RuleKind::kChoice;
    rule.children = std::move(children);
    return {};
  }

  // A branch that leads back to the schema it belongs to, or to one above, defines nothing.
  Result<void> refuse_circle(const SchemaSet& set, size_t idx, const json::Value& branch,
                             const char* key) {
    ROOST_TRY(const std::optional<SchemaSet> parts, document_.flatten({{&branch, 0}}));
    if (!parts) return {};
    for (const SchemaItem& part : *parts) {
      for (size_t i = 0; i < set.size(); ++i)
        if (set[i].schema == part.schema && (i == idx || set[i].done != 0))
          return document_.refuse(Refusal::SchemaKeyword, *set[idx].schema, key,
                                  "a branch leads back to its own schema");
    }
    return {};
  }

  // True when no value satisfies both, as far as types, constants and required properties tell.
  Result<bool> are_apart(const SchemaSet& a, const SchemaSet& b, int depth) {
    ROOST_TRY_DO(builder_.budget().take_steps(static_cast<int64_t>(a.size() + b.size()) * 16));
    ROOST_TRY(const std::optional<SchemaSet> flat_a, document_.flatten(a));
    ROOST_TRY(const std::optional<SchemaSet> flat_b, document_.flatten(b));
    if (!flat_a || !flat_b) return true;
    ROOST_TRY(const Constraints x, document_.gather(*flat_a));
    ROOST_TRY(const Constraints y, document_.gather(*flat_b));
    if ((types_of(x) & types_of(y)) == 0) return true;
    if (x.values && y.values) {
      const auto is_shared = [&](const json::Value* value) {
        return std::any_of(y.values->begin(), y.values->end(), [&](const json::Value* other) {
          return are_equal_values(*value, *other);
        });
      };
      return std::none_of(x.values->begin(), x.values->end(), is_shared);
    }
    const bool are_objects =
        types_of(x) == json_types::kObject && types_of(y) == json_types::kObject;
    if (depth == 0 || !are_objects) return false;
    for (const std::string& name : x.required) {
      if (std::find(y.required.begin(), y.required.end(), name) == y.required.end()) continue;
      ROOST_TRY(const bool is_apart,
                are_apart(declared_of(*flat_a, name), declared_of(*flat_b, name), depth - 1));
      if (is_apart) return true;
    }
    return false;
  }

  static uint8_t types_of(const Constraints& all) {
    if (!all.values) return all.types;
    uint8_t types = 0;
    for (const json::Value* value : *all.values) types |= json_type_of(*value);
    return types & all.types;
  }

  // Schemas under `properties` alone: enough to tell branches apart.
  SchemaSet declared_of(const SchemaSet& flat, const std::string& name) {
    SchemaSet out;
    for (const SchemaItem& item : flat) {
      const json::Value* properties = item.schema->find("properties");
      const json::Value* value = properties == nullptr ? nullptr : properties->find(name);
      if (value == nullptr || (!value->is_object() && !value->is_bool())) continue;
      if (document_.child(*item.schema, *value, "properties/" + pointer_escaped(name)))
        out.push_back({value, 0});
    }
    return out;
  }

  // -------------------------------------------------------------------------------- one value each

  Result<std::vector<RuleId>> rules_of_values(const SchemaSet& flat, const Constraints& all) {
    std::vector<std::string> texts;
    std::vector<RuleId> rules;
    std::optional<ByteDfa> strings;
    for (const json::Value* value : *all.values) {
      const uint8_t type = json_type_of(*value);
      if ((type & all.types) == 0) continue;
      if (value->is_number() && !is_within(*value, all.number)) continue;
      if (value->is_string() && has_string_limits(all)) {
        if (!strings) {
          ROOST_TRY(strings, string_dfa(all));
        }
        if (!strings->accepts_text(spelled_string(value->as_string()))) continue;
      }
      if (!value->is_array() && !value->is_object()) {
        texts.push_back(value->is_string() ? spelled_string(value->as_string())
                                           : json::write(*value));
        continue;
      }
      ROOST_TRY_DO(refuse_limits_of_compounds(flat, all, *value));
      ROOST_TRY(const RuleId rule, rule_of_value(*value));
      rules.push_back(rule);
    }
    if (texts.empty()) return rules;
    ROOST_TRY(ByteDfa dfa, literal_dfa(texts, builder_.budget()));
    ROOST_TRY(const RuleId rule, builder_.add_bytes(std::move(dfa)));
    rules.push_back(rule);
    return rules;
  }

  static bool is_within(const json::Value& value, const NumberLimits& limits) {
    const std::optional<Decimal> number = parse_decimal(value.number_text());
    if (!number) return !limits.are_bounded();
    if (limits.low) {
      const auto order = compare(*number, limits.low->value);
      if (order < 0 || (order == 0 && limits.low->is_open)) return false;
    }
    if (limits.high) {
      const auto order = compare(*number, limits.high->value);
      if (order > 0 || (order == 0 && limits.high->is_open)) return false;
    }
    // c·10^-k divides the number when c divides its digits taken as an integer of 10^-k.
    return std::all_of(limits.multiples_of.begin(), limits.multiples_of.end(),
                       [&](const Decimal& of) {
                         const Multiple multiple = *multiple_of(of);
                         const std::string fraction = number->fraction_part();
                         if (fraction.size() > static_cast<size_t>(multiple.k)) return false;
                         int64_t rest = 0;
                         const std::string digits =
                             number->whole_part() + fraction +
                             std::string(static_cast<size_t>(multiple.k) - fraction.size(), '0');
                         for (const char c : digits) rest = (rest * 10 + (c - '0')) % multiple.c;
                         return rest == 0;
                       });
  }

  static bool has_string_limits(const Constraints& all) {
    return all.length_min > 0 || all.length_max != UINT32_MAX || !all.patterns.empty() ||
           !all.formats.empty();
  }

  Result<void> refuse_limits_of_compounds(const SchemaSet& flat, const Constraints& all,
                                          const json::Value& value) {
    constexpr const char* kOfObjects[] = {
        "properties",    "required",      "additionalProperties", "patternProperties",
        "propertyNames", "minProperties", "maxProperties"};
    constexpr const char* kOfArrays[] = {"items", "prefixItems", "minItems", "maxItems",
                                         "uniqueItems"};
    const std::span<const char* const> keys = value.is_object()
                                                  ? std::span<const char* const>(kOfObjects)
                                                  : std::span<const char* const>(kOfArrays);
    for (const SchemaItem& item : flat) {
      for (const char* key : keys)
        if (item.schema->find(key) != nullptr)
          return Error{Refusal::SchemaKeyword,
                       fmt::format("#{}: an object or array is not checked against {}",
                                   all.values_pointer, key)};
    }
    return {};
  }

  // Exactly this value, its members in this order. Its depth is that of the parsed schema.
  Result<RuleId> rule_of_value(const json::Value& value) {
    if (value.is_array()) {
      Rule rule{.kind = RuleKind::kArray};
      rule.array = std::make_shared<ArrayRule>();
      rule.array->punctuation = builder_.punctuation();
      for (const json::Value& item : value.items()) {
        ROOST_TRY(const RuleId id, rule_of_value(item));
        rule.array->first_items.push_back(id);
      }
      rule.array->min = rule.array->max = static_cast<uint32_t>(value.items().size());
      return builder_.add(std::move(rule));
    }
    if (value.is_object()) {
      ObjectRule object;
      std::vector<std::string> names;
      for (const auto& [name, member] : value.members()) {
        ROOST_TRY(const RuleId id, rule_of_value(member));
        object.properties.push_back({id, true});
        names.push_back(name);
      }
      return add_object(std::move(object), names);
    }
    return builder_.add_literal(value.is_string() ? spelled_string(value.as_string())
                                                  : json::write(value));
  }

  // -------------------------------------------------------------------------------- one type each

  Result<std::vector<RuleId>> rules_of_types(const SchemaSet& flat, const Constraints& all) {
    std::vector<RuleId> rules;
    const auto add = [&](Result<RuleId> rule) -> Result<void> {
      if (!rule) return rule.error();
      rules.push_back(*rule);
      return {};
    };
    if ((all.types & json_types::kNull) != 0) ROOST_TRY_DO(add(builder_.add_literal("null")));
    if ((all.types & json_types::kBool) != 0) {
      ROOST_TRY(ByteDfa dfa, literal_dfa({"true", "false"}, builder_.budget()));
      ROOST_TRY_DO(add(builder_.add_bytes(std::move(dfa))));
    }
    if ((all.types & json_types::kInteger) != 0) ROOST_TRY_DO(add(rule_of_numbers(all)));
    if ((all.types & json_types::kString) != 0) ROOST_TRY_DO(add(rule_of_strings(all)));
    if ((all.types & json_types::kArray) != 0) ROOST_TRY_DO(add(rule_of_arrays(flat, all)));
    if ((all.types & json_types::kObject) != 0) ROOST_TRY_DO(add(rule_of_objects(flat, all)));
    return rules;
  }

  Result<RuleId> rule_of_numbers(const Constraints& all) {
    NumberLimits limits = all.number;
    limits.is_integer = (all.types & json_types::kFraction) == 0;
    DfaPtr& plain = plain_numbers_[limits.is_integer];
    if (!limits.are_bounded() && plain) return builder_.add_bytes(plain);
    ROOST_TRY(ByteDfa dfa, number_dfa(limits, builder_.budget()));
    const auto shared = std::make_shared<const ByteDfa>(std::move(dfa));
    if (!limits.are_bounded()) plain = shared;
    return builder_.add_bytes(shared);
  }

  Result<RuleId> rule_of_strings(const Constraints& all) {
    if (!all.patterns.empty() || !all.formats.empty()) {
      ROOST_TRY(ByteDfa dfa, string_dfa(all));
      return builder_.add_bytes(std::move(dfa));
    }
    Rule rule{.kind = RuleKind::kBytes};
    rule.dfa = any_string_dfa();
    rule.length_min = all.length_min;
    rule.length_max = all.length_max;
    return builder_.add(std::move(rule));
  }

  // Patterns, formats and lengths as one automaton.
  Result<ByteDfa> string_dfa(const Constraints& all) {
    std::vector<ByteDfa> parts{*any_key_dfa()};
    const auto add = [&](std::string_view pattern, const std::string& pointer) -> Result<void> {
      const RegexOptions options{.form = TextForm::kJsonString, .is_search = true};
      Result<ByteDfa> dfa = compile_regex(pattern, options, builder_.budget());
      if (!dfa)
        return Error{dfa.error().refusal, fmt::format("#{}: {}", pointer, dfa.error().detail)};
      parts.push_back(*std::move(dfa));
      return {};
    };
    for (const auto& [pattern, pointer] : all.patterns) ROOST_TRY_DO(add(pattern, pointer));
    for (const auto& [format, pointer] : all.formats) {
      const std::optional<std::string_view> pattern = pattern_of_format(format);
      if (!pattern)
        return Error{Refusal::SchemaKeyword,
                     fmt::format("#{}: this format cannot be enforced", pointer)};
      ROOST_TRY_DO(add(*pattern, pointer));
    }
    if (all.length_min > 0 || all.length_max != UINT32_MAX) {
      if (all.length_min > limits::kRegexRepeatMax ||
          (all.length_max != UINT32_MAX && all.length_max > limits::kRegexRepeatMax))
        return Error{Refusal::SchemaTooLarge, fmt::format("a length beside a pattern, format or "
                                                          "constant is at most {}",
                                                          limits::kRegexRepeatMax)};
      if (all.length_min > all.length_max) return ByteDfa{};
      const std::string high = all.length_max == UINT32_MAX ? "" : fmt::to_string(all.length_max);
      ROOST_TRY_DO(add(fmt::format("^[\\s\\S]{{{},{}}}$", all.length_min, high), ""));
    }
    std::vector<const ByteDfa*> needed;
    for (const ByteDfa& part : parts) needed.push_back(&part);
    return product(needed, {}, builder_.budget());
  }

  // ---------------------------------------------------------------------------------------- arrays

  Result<RuleId> rule_of_arrays(const SchemaSet& flat, const Constraints& all) {
    size_t n_first = 0;
    for (const SchemaItem& item : flat) {
      const json::Value* prefix = item.schema->find("prefixItems");
      if (prefix == nullptr) continue;
      if (!prefix->is_array())
        return document_.refuse(Refusal::SchemaInvalid, *item.schema, "prefixItems",
                                "want a list of schemas");
      n_first = std::max(n_first, prefix->items().size());
    }
    Rule rule{.kind = RuleKind::kArray};
    rule.array = std::make_shared<ArrayRule>();
    ArrayRule& array = *rule.array;
    array.punctuation = builder_.punctuation();
    array.min = all.items_min;
    array.max = all.items_max == UINT32_MAX ? kUnbounded : all.items_max;
    for (size_t i = 0; i <= n_first; ++i) {
      ROOST_TRY(const SchemaSet set, items_at(flat, i));
      ROOST_TRY(const std::optional<SchemaSet> item, document_.flatten(set));
      if (!item) {  // no item may stand here, nor behind
        array.max = std::min(array.max, static_cast<uint32_t>(i));
        break;
      }
      const bool is_unique = !all.unique_pointer.empty() && array.max > 1;
      if (is_unique) return distinct_items(*item, all, n_first, std::move(rule));
      ROOST_TRY(const RuleId id, rule_of(set));
      if (i < n_first)
        array.first_items.push_back(id);
      else
        array.items = id;
    }
    return builder_.add(std::move(rule));
  }

  // The schemas of the item with this index, or of all from there on.
  Result<SchemaSet> items_at(const SchemaSet& flat, size_t idx) {
    SchemaSet out;
    for (const SchemaItem& item : flat) {
      const json::Value& schema = *item.schema;
      const json::Value* prefix = schema.find("prefixItems");
      const json::Value* items = schema.find("items");
      if (prefix != nullptr && idx < prefix->items().size()) {
        ROOST_TRY(const json::Value* own, document_.child(schema, prefix->items()[idx],
                                                          fmt::format("prefixItems/{}", idx)));
        out.push_back({own, 0});
      } else if (items != nullptr) {
        if (items->is_array())
          return document_.refuse(Refusal::SchemaKeyword, schema, "items",
                                  "a list of schemas is written prefixItems");
        ROOST_TRY(const json::Value* own, document_.child(schema, *items, "items"));
        out.push_back({own, 0});
      }
    }
    return out;
  }

  Result<RuleId> distinct_items(const SchemaSet& item, const Constraints& all, size_t n_first,
                                Rule rule) {
    const Error refused{Refusal::SchemaKeyword,
                        fmt::format("#{}: items that differ are enforced over at most {} enum, "
                                    "const, boolean or null items alone",
                                    all.unique_pointer, kDistinctMax)};
    ROOST_TRY(Constraints each, document_.gather(item));
    const bool has_branches = std::any_of(item.begin(), item.end(), [](const SchemaItem& part) {
      return part.schema->find("anyOf") != nullptr || part.schema->find("oneOf") != nullptr;
    });
    if (n_first > 0 || has_branches) return refused;
    static const json::Value kNull, kFalse = json::Value::boolean(false),
                                    kTrue = json::Value::boolean(true);
    if (!each.values) {
      if ((each.types & ~(json_types::kNull | json_types::kBool)) != 0) return refused;
      each.values.emplace();
      for (const json::Value* value : {&kNull, &kFalse, &kTrue}) each.values->push_back(value);
    }
    std::vector<const json::Value*> different;
    for (const json::Value* value : *each.values) {
      if (std::none_of(different.begin(), different.end(),
                       [&](const json::Value* other) { return are_equal_values(*value, *other); }))
        different.push_back(value);
    }
    if (different.size() > kDistinctMax) return refused;
    for (const json::Value* value : different) {
      each.values = {value};
      ROOST_TRY(const std::vector<RuleId> rules, rules_of_values(item, each));
      rule.array->distinct_items.insert(rule.array->distinct_items.end(), rules.begin(),
                                        rules.end());
    }
    const auto n = static_cast<uint32_t>(rule.array->distinct_items.size());
    rule.array->max = std::min(rule.array->max, n);
    return builder_.add(std::move(rule));
  }

  // --------------------------------------------------------------------------------------- objects

  struct Pattern {
    const json::Value* owner;
    const json::Value* schema;
    ByteDfa keys;
  };

  Result<std::vector<Pattern>> patterns_of(const SchemaSet& flat) {
    std::vector<Pattern> out;
    for (const SchemaItem& item : flat) {
      const json::Value* patterns = item.schema->find("patternProperties");
      if (patterns == nullptr) continue;
      if (!patterns->is_object())
        return document_.refuse(Refusal::SchemaInvalid, *item.schema, "patternProperties",
                                "want an object");
      for (const auto& [pattern, schema] : patterns->members()) {
        ROOST_TRY(
            const json::Value* own,
            document_.child(*item.schema, schema, "patternProperties/" + pointer_escaped(pattern)));
        Result<ByteDfa> keys = compile_regex(
            pattern, {.form = TextForm::kJsonString, .is_search = true}, builder_.budget());
        if (!keys)
          return document_.refuse(keys.error().refusal, *item.schema, "patternProperties",
                                  keys.error().detail);
        out.push_back({item.schema, own, *std::move(keys)});
      }
      if (out.size() > kPatternsMax)
        return document_.refuse(Refusal::SchemaTooLarge, *item.schema, "patternProperties",
                                fmt::format("more than {} patterns", kPatternsMax));
    }
    return out;
  }

  // Declared names, in order: of properties, then of required.
  Result<std::vector<std::string>> names_of(const SchemaSet& flat, const Constraints& all) {
    std::vector<std::string> names;
    std::map<std::string_view, bool> seen;
    for (const SchemaItem& item : flat) {
      const json::Value* properties = item.schema->find("properties");
      if (properties == nullptr) continue;
      if (!properties->is_object())
        return document_.refuse(Refusal::SchemaInvalid, *item.schema, "properties",
                                "want an object");
      for (const auto& member : properties->members())
        if (seen.try_emplace(member.first, true).second) names.push_back(member.first);
    }
    for (const std::string& name : all.required)
      if (seen.try_emplace(name, true).second) names.push_back(name);
    return names;
  }

  // What binds the value of a key: `matches` says which patterns the key matches.
  template <class Matches>
  Result<SchemaSet> member_set(const SchemaSet& flat, const std::string* name,
                               const std::vector<Pattern>& patterns, const Matches& matches) {
    SchemaSet out;
    for (const SchemaItem& item : flat) {
      const json::Value& schema = *item.schema;
      bool is_covered = false;
      const json::Value* properties = name == nullptr ? nullptr : schema.find("properties");
      const json::Value* own = properties == nullptr ? nullptr : properties->find(*name);
      if (own != nullptr) {
        ROOST_TRY(own, document_.child(schema, *own, "properties/" + pointer_escaped(*name)));
        out.push_back({own, 0});
        is_covered = true;
      }
      for (size_t i = 0; i < patterns.size(); ++i) {
        if (patterns[i].owner != item.schema || !matches(i)) continue;
        out.push_back({patterns[i].schema, 0});
        is_covered = true;
      }
      const json::Value* others = is_covered ? nullptr : schema.find("additionalProperties");
      if (others == nullptr) continue;
      ROOST_TRY(others, document_.child(schema, *others, "additionalProperties"));
      out.push_back({others, 0});
    }
    return out;
  }

  // The keys that propertyNames lets pass; nothing when there is none.
  Result<std::optional<ByteDfa>> key_limits(const SchemaSet& flat) {
    SchemaSet set;
    for (const SchemaItem& item : flat) {
      const json::Value* names = item.schema->find("propertyNames");
      if (names == nullptr) continue;
      ROOST_TRY(names, document_.child(*item.schema, *names, "propertyNames"));
      set.push_back({names, 0});
    }
    if (set.empty()) return std::optional<ByteDfa>();
    ROOST_TRY(const std::optional<SchemaSet> names, document_.flatten(set));
    if (!names) return std::optional(ByteDfa{});
    for (const SchemaItem& item : *names)
      for (const char* key : {"anyOf", "oneOf"})
        if (item.schema->find(key) != nullptr)
          return document_.refuse(Refusal::SchemaKeyword, *item.schema, key,
                                  "branches of key names are not enforced");
    ROOST_TRY(const Constraints all, document_.gather(*names));
    if ((all.types & json_types::kString) == 0) return std::optional(ByteDfa{});
    ROOST_TRY(ByteDfa keys, string_dfa(all));
    if (!all.values) return std::optional(std::move(keys));
    std::vector<std::string> texts;
    for (const json::Value* value : *all.values)
      if (value->is_string() && keys.accepts_text(spelled_string(value->as_string())))
        texts.push_back(spelled_string(value->as_string()));
    ROOST_TRY(ByteDfa listed, literal_dfa(texts, builder_.budget()));
    return std::optional(std::move(listed));
  }

  Result<RuleId> rule_of_objects(const SchemaSet& flat, const Constraints& all) {
    ROOST_TRY(const std::vector<std::string> names, names_of(flat, all));
    ROOST_TRY(const std::vector<Pattern> patterns, patterns_of(flat));
    ROOST_TRY(const std::optional<ByteDfa> limits, key_limits(flat));
    ObjectRule object;
    object.min = all.members_min;
    object.max = all.members_max == UINT32_MAX ? kUnbounded : all.members_max;
    for (const std::string& name : names) {
      const std::string key = spelled_string(name);
      const auto matches = [&](size_t i) { return patterns[i].keys.accepts_text(key); };
      ROOST_TRY(const SchemaSet set, member_set(flat, &name, patterns, matches));
      RuleId value = kNoRule;
      if (limits && !limits->accepts_text(key)) {
        ROOST_TRY(value, never());
      } else {
        ROOST_TRY(value, rule_of(set));
      }
      const bool is_required =
          std::find(all.required.begin(), all.required.end(), name) != all.required.end();
      object.properties.push_back({value, is_required});
    }
    ROOST_TRY_DO(add_others(flat, names, patterns, limits, object));
    const auto n_required = static_cast<uint32_t>(all.required.size());
    if (object.min > n_required && object.other_keys && !object.are_others_unique)
      return Error{Refusal::SchemaKeyword,
                   fmt::format("#{}: keys of patterns that run out are not counted",
                               all.members_min_pointer)};
    return add_object(std::move(object), names);
  }

  Result<void> add_others(const SchemaSet& flat, const std::vector<std::string>& names,
                          const std::vector<Pattern>& patterns,
                          const std::optional<ByteDfa>& limits, ObjectRule& object) {
    if (patterns.empty() && !limits) {
      const auto none = [](size_t) { return false; };
      ROOST_TRY(const SchemaSet set, member_set(flat, nullptr, patterns, none));
      ROOST_TRY(const std::optional<SchemaSet> value, document_.flatten(set));
      if (!value) return {};
      ROOST_TRY(const RuleId rule, rule_of(set));
      object.other_keys = any_key_dfa();
      object.other_values = {rule};
      object.are_others_unique = true;
      return {};
    }
    std::vector<const ByteDfa*> needed{any_key_dfa().get()}, asked;
    if (limits) needed.push_back(&*limits);
    for (const Pattern& pattern : patterns) asked.push_back(&pattern.keys);
    std::vector<std::string> texts;
    for (const std::string& name : names) texts.push_back(spelled_string(name));
    ROOST_TRY(const ByteDfa declared, literal_dfa(texts, builder_.budget()));
    asked.push_back(&declared);
    ROOST_TRY(ByteDfa keys, product(needed, asked, builder_.budget()));
    const int32_t declared_bit = 1 << patterns.size();
    std::map<int32_t, int32_t> tag_of;
    for (int32_t& tag : keys.tags) {
      if (tag == ByteDfa::kDead) continue;
      if ((tag & declared_bit) != 0) {
        tag = ByteDfa::kDead;
        continue;
      }
      const auto [it, is_new] =
          tag_of.try_emplace(tag, static_cast<int32_t>(object.other_values.size()));
      if (is_new) {
        const auto matches = [&, bits = tag](size_t i) { return ((bits >> i) & 1) != 0; };
        ROOST_TRY(const SchemaSet set, member_set(flat, nullptr, patterns, matches));
        ROOST_TRY(const std::optional<SchemaSet> value, document_.flatten(set));
        RuleId rule = kNoRule;
        if (value) {
          ROOST_TRY(rule, rule_of(set));
        }
        object.other_values.push_back(rule);
      }
      tag = object.other_values[static_cast<size_t>(it->second)] == kNoRule ? ByteDfa::kDead
                                                                            : it->second;
    }
    keys = trim(keys);
    if (keys.accepts_nothing()) return {};
    object.are_others_unique = is_endless_everywhere(keys);
    object.other_keys = std::make_shared<const ByteDfa>(std::move(keys));
    return {};
  }

  Result<RuleId> add_object(ObjectRule object, const std::vector<std::string>& names) {
    std::vector<std::string> keys;
    for (const std::string& name : names) keys.push_back(spelled_string(name));
    object.punctuation = builder_.punctuation();
    return builder_.add_object(std::move(object), keys);
  }

  AutomatonBuilder& builder_;
  SchemaDocument& document_;
  std::map<SchemaSet, RuleId> rules_;
  std::deque<Pending> pending_;
  RuleId never_ = kNoRule;
  DfaPtr plain_numbers_[2];
};

}  // namespace

Result<RuleId> add_json_schema(AutomatonBuilder& builder, SchemaDocument& document,
                               const json::Value& schema) {
  return SchemaCompiler(builder, document).compile(schema);
}

Result<Automaton> compile_json_schema(const json::Value& schema, const JsonOptions& options) {
  if (!schema.is_object() && !schema.is_bool())
    return Error{Refusal::SchemaInvalid, "#: a schema is an object or a boolean"};
  std::string key;
  if (const std::optional<std::string> pointer = json::find_duplicate_key(schema, &key))
    return Error{Refusal::JsonDuplicateKey, "#" + *pointer};
  GrammarBudget budget{.refusal = Refusal::SchemaTooLarge};
  AutomatonBuilder builder(budget);
  ROOST_TRY_DO(builder.add_punctuation(options.has_space));
  SchemaDocument document(schema);
  ROOST_TRY(const RuleId root, add_json_schema(builder, document, schema));
  return builder.finish(root, limits::kValueDepthMax, Refusal::SchemaUnsatisfiable);
}

Result<Automaton> compile_json_object(const JsonOptions& options) {
  json::Value schema = json::Value::object();
  schema.set("type", json::Value::string("object"));
  return compile_json_schema(schema, options);
}

}  // namespace roost
