// With which bytes what stands behind an automaton of a grammar can begin: a bound from above, so
// that tokens which lead out of an automaton are not followed where nothing could be.
#pragma once

#include <bitset>
#include <map>

#include "grammar/automaton.h"

namespace roost {

using ByteSet = std::bitset<256>;

// By automaton. Objects and arrays count as if anything could follow anything in them: what they
// are made of is punctuation, which ends itself.
std::map<const ByteDfa*, ByteSet> follow_bytes(const Automaton& automaton);

}  // namespace roost
