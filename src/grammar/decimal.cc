// Reading and comparing exact decimals.
#include "grammar/decimal.h"

#include <algorithm>

namespace roost {

namespace {

constexpr int kPlacesMax = 400;  // a double's largest value has 309

}  // namespace

Decimal Decimal::negated() const {
  Decimal out = *this;
  out.is_negative = !is_negative && !is_zero();
  return out;
}

std::string Decimal::whole_part() const {
  if (exponent >= 0) return digits + std::string(static_cast<size_t>(exponent), '0');
  const auto n_behind = static_cast<size_t>(-exponent);
  return n_behind >= digits.size() ? "" : digits.substr(0, digits.size() - n_behind);
}

std::string Decimal::fraction_part() const {
  if (exponent >= 0) return "";
  const auto n_behind = static_cast<size_t>(-exponent);
  if (n_behind >= digits.size()) return std::string(n_behind - digits.size(), '0') + digits;
  return digits.substr(digits.size() - n_behind);
}

std::optional<Decimal> parse_decimal(std::string_view number) {
  Decimal out;
  size_t at = 0;
  if (at < number.size() && number[at] == '-') ++at, out.is_negative = true;
  int n_behind = 0;
  bool is_behind = false;
  for (; at < number.size() && number[at] != 'e' && number[at] != 'E'; ++at) {
    if (number[at] == '.') {
      is_behind = true;
      continue;
    }
    out.digits += number[at];
    n_behind += is_behind;
  }
  int exponent = 0;
  if (at < number.size()) {
    ++at;
    const bool is_down = at < number.size() && number[at] == '-';
    if (at < number.size() && (number[at] == '-' || number[at] == '+')) ++at;
    for (; at < number.size(); ++at)
      exponent = std::min(exponent * 10 + (number[at] - '0'), 1 << 20);
    if (is_down) exponent = -exponent;
  }
  const size_t first = out.digits.find_first_not_of('0');
  if (first == std::string::npos) return Decimal{};
  const size_t last = out.digits.find_last_not_of('0');
  const auto n_zeros = static_cast<int>(out.digits.size() - 1 - last);
  out.digits = out.digits.substr(first, last - first + 1);
  out.exponent = exponent - n_behind + n_zeros;
  const int n_digits = static_cast<int>(std::min<size_t>(out.digits.size(), kPlacesMax + 1));
  if (n_digits > kPlacesMax || out.exponent + n_digits > kPlacesMax || out.exponent < -kPlacesMax)
    return std::nullopt;
  return out;
}

std::strong_ordering compare(const Decimal& a, const Decimal& b) {
  if (a.is_negative != b.is_negative)
    return a.is_negative ? std::strong_ordering::less : std::strong_ordering::greater;
  const auto magnitude = [&]() -> std::strong_ordering {
    const std::string whole_a = a.whole_part(), whole_b = b.whole_part();
    if (whole_a.size() != whole_b.size()) return whole_a.size() <=> whole_b.size();
    if (whole_a != whole_b) return whole_a.compare(whole_b) <=> 0;
    return a.fraction_part().compare(b.fraction_part()) <=> 0;  // no zeros at the end
  }();
  return a.is_negative ? 0 <=> magnitude : magnitude;
}

}  // namespace roost
