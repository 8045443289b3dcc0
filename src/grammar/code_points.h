// Sets of code points, and their way into automata over bytes.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "grammar/byte_dfa.h"

namespace roost {

// How code points are spelled in the bytes of a reply.
enum class TextForm {
  kRaw,         // UTF-8
  kJsonString,  // UTF-8 inside a JSON string, with escapes only where JSON demands one
};

// Sorted, disjoint, inclusive ranges. Surrogates may be named; no text has them.
using CodePoints = std::vector<std::pair<char32_t, char32_t>>;

CodePoints normalized(CodePoints ranges);  // sorts and joins
CodePoints complement(const CodePoints& ranges);

// One code point of the set between two states.
void add_code_points(ByteNfa& nfa, const CodePoints& set, TextForm form, int32_t from, int32_t to);

}  // namespace roost
