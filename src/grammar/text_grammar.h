// Grammars of whole replies that are no JSON schema: expressions, choices, EBNF in the GBNF
// spelling.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "grammar/automaton.h"

namespace roost {

// The whole reply matches. Refuses as compile_regex does; grammar.invalid when nothing matches.
Result<Automaton> compile_regex_grammar(std::string_view pattern);

// The reply is one of the texts. At least one; each valid UTF-8.
Result<Automaton> compile_choice(const std::vector<std::string>& texts);

// `name ::= expression` from the rule `root` on: literals, classes, groups, |, * + ? {m,n},
// comments. Refuses grammar.invalid with line and column: syntax, undefined rules, left recursion,
// a root that is missing or that nothing satisfies; and grammar.too_large.
Result<Automaton> compile_ebnf(std::string_view text);

}  // namespace roost
