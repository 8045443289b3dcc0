// The text of a grammar as rules of nodes, checked.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "grammar/code_points.h"

namespace roost {

struct EbnfNode {
  enum class Kind { kText, kClass, kReference, kSequence, kChoice, kRepeat };
  Kind kind = Kind::kSequence;
  std::string text;              // kText: its bytes
  CodePoints set;                // kClass
  size_t rule = 0;               // kReference
  std::vector<size_t> children;  // nodes
  int min = 0, max = -1;         // kRepeat; max -1: no limit
};

struct EbnfRule {
  std::string name;
  size_t node = 0;
  size_t offset = 0;  // of its name in the text
  bool can_be_empty = false;
  bool is_regular = false;  // refers to no rule that comes back to itself
};

struct EbnfGrammar {
  std::vector<EbnfNode> nodes;
  std::vector<EbnfRule> rules;
  size_t root = 0;
};

// Refuses grammar.invalid with line and column.
Result<EbnfGrammar> parse_ebnf(std::string_view text);

}  // namespace roost
