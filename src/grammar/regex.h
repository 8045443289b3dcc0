// Regular expressions to automata (docs/SERVER.md, structured output).
#pragma once

#include <string_view>

#include "grammar/byte_dfa.h"
#include "grammar/code_points.h"

namespace roost {

struct RegexOptions {
  TextForm form = TextForm::kRaw;  // kJsonString: the automaton reads the quotes too
  bool is_search = false;          // a match anywhere in the text counts, as in a schema's pattern
};

// Matching is over code points; lazy marks, groups' names and captures mean nothing to the set of
// texts. Refuses regex.unsupported with the construct and its offset, grammar.invalid for what is
// no expression, and what the budget refuses.
Result<ByteDfa> compile_regex(std::string_view pattern, RegexOptions options,
                              GrammarBudget& budget);

// The code points of one class in brackets, from pattern[at] == '[' on; `at` ends behind it. Also
// the classes of grammars.
Result<CodePoints> parse_class(std::string_view pattern, size_t& at);

}  // namespace roost
