// Exact decimal numbers, as JSON spells them.
#pragma once

#include <compare>
#include <optional>
#include <string>
#include <string_view>

namespace roost {

// digits × 10^exponent; no zero at either end of the digits, none at all for the value 0.
struct Decimal {
  bool is_negative = false;
  std::string digits;
  int exponent = 0;

  bool is_zero() const { return digits.empty(); }
  bool is_integer() const { return exponent >= 0; }
  Decimal negated() const;
  // Digits before the point, without zeros in front, and behind it, without zeros at the end.
  std::string whole_part() const;
  std::string fraction_part() const;

  friend bool operator==(const Decimal&, const Decimal&) = default;
};

// Of a JSON number; nothing when it has more than 400 digits before or behind the point.
std::optional<Decimal> parse_decimal(std::string_view number);

std::strong_ordering compare(const Decimal& a, const Decimal& b);

}  // namespace roost
