// Digits are compared with the bounds one by one, as they come.
#include "grammar/number_dfa.h"

#include <algorithm>
#include <array>
#include <map>

namespace roost {

namespace {

constexpr int kWholeDigits = 19, kFractionDigits = 17, kExponentDigits = 3;

// A bound on the magnitude of numbers of one sign.
struct Magnitude {
  enum class Kind { kNone, kNever, kAt };
  Kind kind = Kind::kNone;
  std::string whole, fraction;
  bool is_open = false;
};

Magnitude at_value(const Decimal& value, bool is_open) {
  return {Magnitude::Kind::kAt, value.whole_part(), value.fraction_part(), is_open};
}

// The magnitude must be at least `bound`.
Magnitude lower(const std::optional<NumberBound>& bound, bool is_negated) {
  if (!bound) return {};
  const Decimal value = is_negated ? bound->value.negated() : bound->value;
  if (value.is_negative || (value.is_zero() && !bound->is_open)) return {};
  return at_value(value, bound->is_open);
}

// The magnitude must be at most `bound`.
Magnitude upper(const std::optional<NumberBound>& bound, bool is_negated) {
  if (!bound) return {};
  const Decimal value = is_negated ? bound->value.negated() : bound->value;
  if (value.is_negative || (value.is_zero() && bound->is_open))
    return {Magnitude::Kind::kNever, "", "", false};
  return at_value(value, bound->is_open);
}

enum Phase : int { kStart, kMinus, kZero, kWhole, kPoint, kFraction, kE, kESign, kExponent };

// Where a reader stands. Comparisons are those of the digits read with as many of the bound.
struct Place {
  int phase = kStart;
  int sign = 0;
  int n_digits = 0;  // of the part that is being read
  int low = 0, high = 0;
  int remainder = 0;

  auto operator<=>(const Place&) const = default;
};

class NumberReader {
 public:
  NumberReader(const NumberLimits& limits, std::optional<Multiple> multiple)
      : limits_(limits), multiple_(multiple) {
    low_ = {lower(limits.low, false), lower(limits.high, true)};
    high_ = {upper(limits.high, false), upper(limits.low, true)};
    for (const auto* bounds : {&low_, &high_}) {
      for (const Magnitude& bound : *bounds) {
        whole_max_ = std::max(whole_max_, static_cast<int>(bound.whole.size()) + bound.is_open);
        fraction_max_ =
            std::max(fraction_max_, static_cast<int>(bound.fraction.size()) + bound.is_open);
      }
    }
    if (multiple_) fraction_max_ = std::min(fraction_max_, multiple_->k);
  }

  bool accepts(const Place& p) const {
    if (p.phase == kExponent) return true;
    if (p.phase != kZero && p.phase != kWhole && p.phase != kFraction) return false;
    const auto sign = static_cast<size_t>(p.sign);
    if (!fits(low_[sign], final_order(p, low_[sign], p.low), 1)) return false;
    if (!fits(high_[sign], final_order(p, high_[sign], p.high), -1)) return false;
    if (!multiple_) return true;
    int64_t remainder = p.remainder;
    const int n_behind = p.phase == kFraction ? p.n_digits : 0;
    for (int i = n_behind; i < multiple_->k; ++i) remainder = remainder * 10 % multiple_->c;
    return remainder == 0;
  }

  std::optional<Place> step(Place p, char c) const {
    const bool is_digit = c >= '0' && c <= '9';
    switch (p.phase) {
      case kStart:
        if (c == '-') return Place{.phase = kMinus, .sign = 1};
        [[fallthrough]];
      case kMinus:
        if (!is_digit) return std::nullopt;
        p.phase = c == '0' ? kZero : kWhole;
        if (c == '0') return with_order_of_whole(p);
        return whole_digit(p, c);
      case kZero:
        return behind_whole(p, c);
      case kWhole:
        if (!is_digit) return behind_whole(with_order_of_whole(p), c);
        if (p.n_digits == whole_max_) return std::nullopt;
        return whole_digit(p, c);
      case kPoint:
      case kFraction:
        if (is_digit) return p.n_digits < fraction_max_ ? fraction_digit(p, c) : std::nullopt;
        return p.phase == kFraction ? exponent_mark(c) : std::nullopt;
      case kE:
        if (c == '+' || c == '-') return Place{.phase = kESign};
        [[fallthrough]];
      case kESign:
        return is_digit ? std::optional(Place{.phase = kExponent, .n_digits = 1}) : std::nullopt;
      default:
        if (!is_digit || p.n_digits == kExponentDigits) return std::nullopt;
        return Place{.phase = kExponent, .n_digits = p.n_digits + 1};
    }
  }

 private:
  static bool fits(const Magnitude& bound, int order, int wanted) {
    if (bound.kind == Magnitude::Kind::kNone) return true;
    if (bound.kind == Magnitude::Kind::kNever) return false;
    return order == wanted || (order == 0 && !bound.is_open);
  }

  // -1, 0, 1: the value against the bound if nothing followed.
  static int final_order(const Place& p, const Magnitude& bound, int order) {
    if (bound.kind != Magnitude::Kind::kAt) return 0;
    if (p.phase == kWhole) order = order_of_whole(bound, p.n_digits, order);
    if (order != 0) return order;
    const auto n_read = static_cast<size_t>(p.phase == kFraction ? p.n_digits : 0);
    return n_read < bound.fraction.size() ? -1 : 0;  // what is left of the bound is not zero
  }

  static int order_of_whole(const Magnitude& bound, int n_digits, int order) {
    const int n_bound = static_cast<int>(bound.whole.size());
    return n_digits != n_bound ? (n_digits < n_bound ? -1 : 1) : order;
  }

  Place with_order_of_whole(Place p) const {
    const auto sign = static_cast<size_t>(p.sign);
    if (low_[sign].kind == Magnitude::Kind::kAt)
      p.low = order_of_whole(low_[sign], p.n_digits, p.low);
    if (high_[sign].kind == Magnitude::Kind::kAt)
      p.high = order_of_whole(high_[sign], p.n_digits, p.high);
    return p;
  }

  static void compare_digit(const Magnitude& bound, const std::string& digits, int idx, char c,
                            int& order) {
    if (bound.kind != Magnitude::Kind::kAt || order != 0) return;
    const auto at = static_cast<size_t>(idx);
    const char other = at < digits.size() ? digits[at] : '0';
    order = c < other ? -1 : c > other;
  }

  Place with_remainder(Place p, char c) const {
    if (multiple_) p.remainder = (p.remainder * 10 + (c - '0')) % multiple_->c;
    return p;
  }

  std::optional<Place> whole_digit(Place p, char c) const {
    const auto sign = static_cast<size_t>(p.sign);
    compare_digit(low_[sign], low_[sign].whole, p.n_digits, c, p.low);
    compare_digit(high_[sign], high_[sign].whole, p.n_digits, c, p.high);
    ++p.n_digits;
    return with_remainder(p, c);
  }

  std::optional<Place> fraction_digit(Place p, char c) const {
    const auto sign = static_cast<size_t>(p.sign);
    compare_digit(low_[sign], low_[sign].fraction, p.n_digits, c, p.low);
    compare_digit(high_[sign], high_[sign].fraction, p.n_digits, c, p.high);
    ++p.n_digits;
    p.phase = kFraction;
    return with_remainder(p, c);
  }

  std::optional<Place> behind_whole(Place p, char c) const {
    if (limits_.is_integer) return std::nullopt;
    if (c != '.') return exponent_mark(c);
    p.phase = kPoint;
    p.n_digits = 0;
    return p;
  }

  std::optional<Place> exponent_mark(char c) const {
    if ((c != 'e' && c != 'E') || limits_.are_bounded()) return std::nullopt;
    return Place{.phase = kE};
  }

  const NumberLimits& limits_;
  std::optional<Multiple> multiple_;
  std::array<Magnitude, 2> low_, high_;  // of numbers without and with a minus
  int whole_max_ = kWholeDigits, fraction_max_ = kFractionDigits;
};

Result<ByteDfa> dfa_of(const NumberReader& reader, GrammarBudget& budget) {
  constexpr std::string_view kBytes = "0123456789-+.eE";
  ByteDfa out;
  for (size_t i = 0; i < kBytes.size(); ++i)
    out.class_of[static_cast<uint8_t>(kBytes[i])] = static_cast<uint8_t>(i + 1);
  out.n_classes = static_cast<int32_t>(kBytes.size() + 1);
  std::map<Place, int32_t> ids{{Place{}, 0}};
  std::vector<Place> places{Place{}};
  for (size_t i = 0; i < places.size(); ++i) {
    ROOST_TRY_DO(budget.take_states(1));
    ROOST_TRY_DO(budget.take_table(out.n_classes));
    ROOST_TRY_DO(budget.take_steps(8 * out.n_classes));  // a look-up costs as much as 8 copies
    out.tags.push_back(reader.accepts(places[i]) ? 0 : ByteDfa::kDead);
    out.next.push_back(ByteDfa::kDead);  // all other bytes
    for (const char c : kBytes) {
      const std::optional<Place> to = reader.step(places[i], c);
      if (!to) {
        out.next.push_back(ByteDfa::kDead);
        continue;
      }
      const auto [it, is_new] = ids.try_emplace(*to, static_cast<int32_t>(places.size()));
      if (is_new) places.push_back(*to);
      out.next.push_back(it->second);
    }
  }
  return trim(out);
}

}  // namespace

std::optional<Multiple> multiple_of(const Decimal& value) {
  if (value.is_negative || value.is_zero() || value.digits.size() > 4 || value.exponent > 3 ||
      value.exponent < -9)
    return std::nullopt;
  Multiple out{0, std::max(-value.exponent, 0)};
  for (const char c : value.digits) out.c = out.c * 10 + (c - '0');
  for (int i = 0; i < value.exponent; ++i) out.c *= 10;
  if (out.c > 1000) return std::nullopt;
  return out;
}

Result<ByteDfa> number_dfa(const NumberLimits& limits, GrammarBudget& budget) {
  if (limits.multiples_of.empty()) return dfa_of(NumberReader(limits, std::nullopt), budget);
  std::vector<ByteDfa> parts;
  for (const Decimal& value : limits.multiples_of) {
    ROOST_TRY(ByteDfa part, dfa_of(NumberReader(limits, multiple_of(value)), budget));
    parts.push_back(std::move(part));
  }
  if (parts.size() == 1) return std::move(parts[0]);
  std::vector<const ByteDfa*> needed;
  for (const ByteDfa& part : parts) needed.push_back(&part);
  return product(needed, {}, budget);
}

}  // namespace roost
