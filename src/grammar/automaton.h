// A compiled grammar: rules over automata of bytes. Immutable, shared by all replies that follow
// it.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "base/result.h"
#include "grammar/byte_dfa.h"

namespace roost {

using RuleId = uint32_t;
using DfaPtr = std::shared_ptr<const ByteDfa>;

// One object for the life of the program; masks of its states are kept as long.
DfaPtr lasting_dfa(Result<ByteDfa> dfa);

inline constexpr uint32_t kUnbounded = UINT32_MAX;
inline constexpr RuleId kNoRule = UINT32_MAX;
inline constexpr uint32_t kEndless = UINT32_MAX;  // the height of a rule that nothing satisfies

enum class RuleKind : uint8_t {
  kBytes,     // what an automaton accepts
  kSequence,  // children, one behind the other
  kChoice,    // one of the children; none: nothing satisfies it
  kRepeat,    // the first child, min to max times
  kCall,      // the first child, one level deeper
  kObject,
  kArray,
};

// A node of the tree of an object's declared keys, spelled with their quotes.
struct KeyNode {
  std::vector<std::pair<uint8_t, uint32_t>> next;  // ascending by byte
  std::vector<uint32_t> properties;                // whose keys go through here, ascending
  uint32_t property = kUnbounded;                  // whose key ends here
};

// Commas, colons and brackets, with the white space around them.
struct Punctuation {
  RuleId open_object = kNoRule, close_object = kNoRule, close_empty_object = kNoRule;
  RuleId open_array = kNoRule, close_array = kNoRule, close_empty_array = kNoRule;
  RuleId comma = kNoRule, colon = kNoRule;
};

struct ObjectRule {
  struct Property {
    RuleId value = kNoRule;
    bool is_required = false;
  };
  std::vector<Property> properties;  // in the order in which they are produced
  std::vector<KeyNode> keys;
  DfaPtr other_keys;  // with quotes; null: there are none. A tag is an index of other_values
  std::vector<RuleId> other_values;
  Punctuation punctuation;
  // The properties come in any order: at most 64, and there is no least or most number of members.
  bool is_unordered = false;
  uint64_t required_bits = 0;      // of an unordered one
  bool are_others_unique = false;  // repeated other keys are refused: the keys never run out
  uint32_t min = 0, max = kUnbounded;
  std::vector<uint32_t> next_required;  // [properties + 1], at or behind; properties.size(): none
  std::vector<uint32_t> n_required;     // [properties + 1], at or behind
};

struct ArrayRule {
  Punctuation punctuation;
  std::vector<RuleId> first_items;
  RuleId items = kNoRule;  // those behind; kNoRule: none
  uint32_t min = 0, max = kUnbounded;
  // Not empty: items differ, and each is one of these; then first_items is empty. At most 64.
  std::vector<RuleId> distinct_items;

  RuleId item(uint32_t idx) const { return idx < first_items.size() ? first_items[idx] : items; }
};

struct Rule {
  RuleKind kind = RuleKind::kChoice;
  DfaPtr dfa;
  // kBytes of a plain JSON string: code points between the quotes.
  uint32_t length_min = 0, length_max = kUnbounded;
  std::vector<RuleId> children;
  uint32_t min = 0, max = kUnbounded;
  std::shared_ptr<ObjectRule> object;
  std::shared_ptr<ArrayRule> array;
  uint32_t height = kEndless;  // least levels of objects, arrays and calls that it needs
};

struct Automaton {
  std::vector<Rule> rules;
  RuleId root = kNoRule;
  RuleId root_behind_reasoning = kNoRule;  // free text to </think>, newlines, then the root
  uint32_t levels_max = limits::kValueDepthMax;
  std::vector<RuleId> free_texts;  // reasoning: they begin a reply and stand behind nothing

  size_t n_bytes() const;
  RuleId add(Rule rule);
  void set_root(RuleId rule);         // and the one behind reasoning
  void let_reasoning_be_the_whole();  // the turn may end in it
};

// What one of the two accepts.
Automaton either(Automaton first, Automaton second);

// Builds an automaton rule by rule.
class AutomatonBuilder {
 public:
  explicit AutomatonBuilder(GrammarBudget& budget) : budget_(budget) {}

  GrammarBudget& budget() { return budget_; }
  std::vector<Rule>& rules() { return automaton_.rules; }
  Rule& rule(RuleId id) { return automaton_.rules[id]; }
  const Punctuation& punctuation() const { return punctuation_; }

  Result<RuleId> reserve();  // satisfied by nothing until it is set
  Result<RuleId> add(Rule rule);
  Result<RuleId> add_bytes(DfaPtr dfa);
  Result<RuleId> add_bytes(ByteDfa dfa);
  Result<RuleId> add_sequence(std::vector<RuleId> children);
  Result<RuleId> add_choice(std::vector<RuleId> children);
  Result<RuleId> add_literal(std::string_view text);
  // keys: what the bytes of each property's key are, its marks included. Fills what follows from
  // the properties and keys.
  Result<RuleId> add_object(ObjectRule object, const std::vector<std::string>& keys);
  // Needed before objects and arrays. Without space nothing stands between the tokens of JSON.
  Result<void> add_punctuation(bool has_space);

  // Computes heights, drops what nothing can satisfy. Refuses `refusal_if_empty` when that is all.
  Result<Automaton> finish(RuleId root, uint32_t levels_max, Refusal refusal_if_empty);

 private:
  void compute_heights();
  uint32_t height_of(const Rule& rule) const;
  uint32_t height_of_object(const ObjectRule& object) const;
  uint32_t height_of_array(const ArrayRule& array) const;

  GrammarBudget& budget_;
  Automaton automaton_;
  Punctuation punctuation_;
};

}  // namespace roost
