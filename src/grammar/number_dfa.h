// The spellings of JSON numbers within bounds, as an automaton.
#pragma once

#include <optional>
#include <vector>

#include "grammar/byte_dfa.h"
#include "grammar/decimal.h"

namespace roost {

struct NumberBound {
  Decimal value;
  bool is_open = false;  // the value itself is out
};

struct NumberLimits {
  bool is_integer = false;
  std::optional<NumberBound> low, high;
  std::vector<Decimal> multiples_of;  // each c·10^-k, 1 <= c <= 1000, 0 <= k <= 9

  bool are_bounded() const { return low || high || !multiples_of.empty(); }
};

// c and k of a multipleOf that can be enforced.
struct Multiple {
  int c = 1, k = 0;
};
std::optional<Multiple> multiple_of(const Decimal& value);

// Up to 19 digits before the point and 17 behind it, more where a bound has more; exponents of up
// to 3 digits only without bounds; no zeros in front. Integers have no point.
Result<ByteDfa> number_dfa(const NumberLimits& limits, GrammarBudget& budget);

}  // namespace roost
