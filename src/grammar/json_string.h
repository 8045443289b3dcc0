// JSON strings: the automaton of all of them, and the one spelling that keys and constants have.
#pragma once

#include <string>
#include <string_view>

#include "grammar/automaton.h"

namespace roost {

// Any JSON string with its quotes: raw UTF-8, every escape, surrogates in pairs. One object for the
// life of the program.
const DfaPtr& any_string_dfa();

// The same with escapes only where JSON demands them, so that equal keys have equal bytes.
const DfaPtr& any_key_dfa();

// The string in that spelling, with quotes. The text is valid UTF-8.
std::string spelled_string(std::string_view text);

}  // namespace roost
