#include "base/json.h"

#include <algorithm>
#include <atomic>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <set>

#include "base/check.h"

namespace roost::json {
namespace {

constexpr size_t kIndexedMembers = 24;  // below this a walk over the keys is as fast as any index

// Finds members by key in logarithmic time. Ordered rather than hashed, so that no choice of keys
// makes it slow. Of a repeated key it knows the last member.
class MemberIndex {
 public:
  explicit MemberIndex(const std::vector<Member>& members) : positions_(ByKey{&members}) {
    for (size_t i = 0; i < members.size(); ++i) add(i);
  }
  void add(size_t position) {
    const auto [place, is_first] = positions_.insert(position);
    if (is_first) return;
    const auto next = positions_.erase(place);
    positions_.insert(next, position);
  }
  std::optional<size_t> find(std::string_view key) const {
    const auto place = positions_.find(key);
    if (place == positions_.end()) return std::nullopt;
    return *place;
  }

 private:
  struct ByKey {
    using is_transparent = void;
    const std::vector<Member>* members;
    std::string_view key_of(size_t position) const { return (*members)[position].first; }
    bool operator()(size_t a, size_t b) const { return key_of(a) < key_of(b); }
    bool operator()(size_t a, std::string_view b) const { return key_of(a) < b; }
    bool operator()(std::string_view a, size_t b) const { return a < key_of(b); }
  };
  std::set<size_t, ByKey> positions_;
};

}  // namespace

struct Value::Compound {
  std::vector<Value> items;
  std::vector<Member> members;

  Compound() = default;
  Compound(const Compound&) = delete;
  Compound& operator=(const Compound&) = delete;
  ~Compound() { drop_index(); }

  void drop_index() { delete index.exchange(nullptr, std::memory_order_relaxed); }

  // Made by the first reader that wants it; readers that meet keep the one that came first.
  const MemberIndex& require_index() const {
    MemberIndex* made = index.load(std::memory_order_acquire);
    if (made == nullptr) {
      auto own = std::make_unique<MemberIndex>(members);
      if (index.compare_exchange_strong(made, own.get(), std::memory_order_acq_rel))
        made = own.release();
    }
    return *made;
  }

  const Member* find(std::string_view key) const {
    if (members.size() >= kIndexedMembers) {
      const std::optional<size_t> position = require_index().find(key);
      return position ? &members[*position] : nullptr;
    }
    for (auto member = members.rbegin(); member != members.rend(); ++member)
      if (member->first == key) return &*member;
    return nullptr;
  }

  void append(std::string_view key, Value value) {
    members.emplace_back(std::string(key), std::move(value));
    MemberIndex* made = index.load(std::memory_order_relaxed);
    if (made != nullptr) made->add(members.size() - 1);
  }

  mutable std::atomic<MemberIndex*> index{nullptr};
};

void Value::Box::Delete::operator()(Compound* compound) const {
  delete compound;
}

Value::Box::Box(const Box& other) {
  struct Pair {
    const Compound* from;
    Compound* to;
  };
  std::vector<Pair> open;
  const auto copy_shell = [&open](const Box& from, Box& to) {
    if (from.compound_) open.push_back({from.get(), &to.get_or_make()});
  };
  const auto copy_value = [&copy_shell](const Value& from, Value& to) {
    to.type_ = from.type_;
    to.bool_ = from.bool_;
    to.text_ = from.text_;
    copy_shell(from.compound_, to.compound_);
  };
  copy_shell(other, *this);
  while (!open.empty()) {
    const Pair pair = open.back();
    open.pop_back();
    pair.to->items.resize(pair.from->items.size());
    for (size_t i = 0; i < pair.from->items.size(); ++i)
      copy_value(pair.from->items[i], pair.to->items[i]);
    pair.to->members.resize(pair.from->members.size());
    for (size_t i = 0; i < pair.from->members.size(); ++i) {
      pair.to->members[i].first = pair.from->members[i].first;
      copy_value(pair.from->members[i].second, pair.to->members[i].second);
    }
  }
}

Value::Box::Box(Box&& other) noexcept = default;

Value::Box& Value::Box::operator=(const Box& other) {
  *this = Box(other);
  return *this;
}

Value::Box& Value::Box::operator=(Box&& other) noexcept {
  // The old content ends in ~Box, which does not recurse.
  Box old;
  std::swap(old.compound_, compound_);
  std::swap(compound_, other.compound_);
  return *this;
}

// Takes the children out of a compound before it ends, so that a chain of any depth ends in a loop.
Value::Box::~Box() {
  if (!compound_) return;
  std::vector<Box> open;
  const auto take = [&open](Value& value) {
    if (value.compound_.compound_) open.push_back(std::move(value.compound_));
  };
  const auto take_children = [&take](Compound& compound) {
    for (Value& item : compound.items) take(item);
    for (Member& member : compound.members) take(member.second);
  };
  take_children(*compound_);
  while (!open.empty()) {
    const std::unique_ptr<Compound, Delete> last = std::move(open.back().compound_);
    open.pop_back();
    take_children(*last);
  }
}

Value::Compound& Value::Box::get_or_make() {
  if (!compound_) compound_.reset(new Compound);
  return *compound_;
}

Value Value::boolean(bool b) {
  Value value(Type::kBool);
  value.bool_ = b;
  return value;
}

Value Value::integer(int64_t i) {
  return spelled(std::to_string(i));
}
Value Value::unsigned_integer(uint64_t u) {
  return spelled(std::to_string(u));
}
Value Value::real(double d) {
  return spelled(python_repr(d));
}

Value Value::spelled(std::string number) {
  Value value(Type::kNumber);
  value.text_ = std::move(number);
  return value;
}

Value Value::string(std::string s) {
  Value value(Type::kString);
  value.text_ = std::move(s);
  return value;
}

Value Value::array() {
  return Value(Type::kArray);
}

Value Value::array(std::vector<Value> items) {
  Value value(Type::kArray);
  if (!items.empty()) value.compound_.get_or_make().items = std::move(items);
  return value;
}

Value Value::object() {
  return Value(Type::kObject);
}

Value Value::object(std::vector<Member> members) {
  Value value(Type::kObject);
  if (!members.empty()) value.compound_.get_or_make().members = std::move(members);
  return value;
}

bool Value::as_bool() const {
  ROOST_CHECK(is_bool());
  return bool_;
}

const std::string& Value::as_string() const {
  ROOST_CHECK(is_string());
  return text_;
}

const std::string& Value::number_text() const {
  ROOST_CHECK(is_number());
  return text_;
}

double Value::as_double() const {
  // strtod and not from_chars, which not every library has; no part of roost sets a locale.
  return std::strtod(number_text().c_str(), nullptr);
}

bool Value::is_spelled_as_integer() const {
  return number_text().find_first_of(".eE") == std::string::npos;
}

namespace {

// A number as digits * 10^exponent, without zeros at either end of the digits; zero has no digits.
struct Decimal {
  bool is_negative = false;
  std::string digits;
  int64_t exponent = 0;
};

Decimal decimal_of(std::string_view text) {
  Decimal decimal;
  if (text.starts_with('-')) {
    decimal.is_negative = true;
    text.remove_prefix(1);
  }
  const size_t mark = text.find_first_of("eE");
  const std::string_view mantissa = text.substr(0, mark);
  const size_t point = mantissa.find('.');
  decimal.digits = mantissa.substr(0, point);
  if (point != std::string_view::npos) {
    decimal.digits += mantissa.substr(point + 1);
    decimal.exponent -= static_cast<int64_t>(mantissa.size() - point - 1);
  }
  if (mark != std::string_view::npos) {
    // Saturates far beyond any count of digits that fits in memory.
    constexpr int64_t kExponentMax = int64_t{1} << 60;
    int64_t magnitude = 0;
    for (const char c : text.substr(mark + 1))
      if (c >= '0' && c <= '9' && magnitude < kExponentMax / 16)
        magnitude = magnitude * 10 + (c - '0');
    decimal.exponent += text[mark + 1] == '-' ? -magnitude : magnitude;
  }
  decimal.digits.erase(0, decimal.digits.find_first_not_of('0'));
  while (decimal.digits.ends_with('0')) {
    decimal.digits.pop_back();
    decimal.exponent += 1;
  }
  return decimal;
}

// The absolute value, if it is integral and fits.
std::optional<uint64_t> magnitude_of(const Decimal& decimal) {
  if (decimal.digits.empty()) return 0;
  const auto n_digits = static_cast<int64_t>(decimal.digits.size());
  if (decimal.exponent < 0 || n_digits > 20 || decimal.exponent > 20 - n_digits)
    return std::nullopt;
  const std::string digits =
      decimal.digits + std::string(static_cast<size_t>(decimal.exponent), '0');
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (error != std::errc{}) return std::nullopt;
  return value;
}

}  // namespace

std::optional<int64_t> Value::as_int64() const {
  const Decimal decimal = decimal_of(number_text());
  const std::optional<uint64_t> magnitude = magnitude_of(decimal);
  if (!magnitude) return std::nullopt;
  constexpr auto kMax = static_cast<uint64_t>(INT64_MAX);
  if (decimal.is_negative) {
    if (*magnitude > kMax + 1) return std::nullopt;
    return static_cast<int64_t>(~*magnitude + 1);  // also right for the lowest value
  }
  if (*magnitude > kMax) return std::nullopt;
  return static_cast<int64_t>(*magnitude);
}

std::optional<uint64_t> Value::as_uint64() const {
  const Decimal decimal = decimal_of(number_text());
  if (decimal.is_negative && !decimal.digits.empty()) return std::nullopt;
  return magnitude_of(decimal);
}

const std::vector<Value>& Value::items() const {
  static const std::vector<Value> nothing;
  ROOST_CHECK(is_array());
  return compound_.get() != nullptr ? compound_.get()->items : nothing;
}

std::vector<Value>& Value::items() {
  ROOST_CHECK(is_array());
  return compound_.get_or_make().items;
}

const std::vector<Member>& Value::members() const {
  static const std::vector<Member> nothing;
  ROOST_CHECK(is_object());
  return compound_.get() != nullptr ? compound_.get()->members : nothing;
}

std::vector<Member>& Value::members() {
  ROOST_CHECK(is_object());
  Compound& compound = compound_.get_or_make();
  compound.drop_index();  // the caller may change keys
  return compound.members;
}

const Value* Value::find(std::string_view key) const {
  if (!is_object() || compound_.get() == nullptr) return nullptr;
  const Member* member = compound_.get()->find(key);
  return member != nullptr ? &member->second : nullptr;
}

void Value::set(std::string_view key, Value value) {
  ROOST_CHECK(is_object());
  Compound& compound = compound_.get_or_make();
  const Member* member = compound.find(key);
  if (member != nullptr)
    compound.members[static_cast<size_t>(member - compound.members.data())].second =
        std::move(value);
  else
    compound.append(key, std::move(value));
}

void Value::push(Value value) {
  ROOST_CHECK(is_array());
  compound_.get_or_make().items.push_back(std::move(value));
}

bool operator==(const Value& a, const Value& b) {
  std::vector<std::pair<const Value*, const Value*>> open{{&a, &b}};
  while (!open.empty()) {
    const auto [x, y] = open.back();
    open.pop_back();
    if (x->type_ != y->type_ || x->bool_ != y->bool_ || x->text_ != y->text_) return false;
    if (x->is_array()) {
      if (x->items().size() != y->items().size()) return false;
      for (size_t i = 0; i < x->items().size(); ++i)
        open.emplace_back(&x->items()[i], &y->items()[i]);
    } else if (x->is_object()) {
      if (x->members().size() != y->members().size()) return false;
      for (size_t i = 0; i < x->members().size(); ++i) {
        if (x->members()[i].first != y->members()[i].first) return false;
        open.emplace_back(&x->members()[i].second, &y->members()[i].second);
      }
    }
  }
  return true;
}

namespace {

// A walk over a value: the compound and the next child to look at.
struct Cursor {
  const Value* value;
  size_t next = 0;

  size_t n_children() const {
    return value->is_array() ? value->items().size() : value->members().size();
  }
};

bool is_compound(const Value& value) {
  return value.is_array() || value.is_object();
}

const std::string* repeated_key(const Value& object) {
  std::vector<const std::string*> keys;
  for (const Member& member : object.members()) keys.push_back(&member.first);
  std::sort(keys.begin(), keys.end(),
            [](const std::string* a, const std::string* b) { return *a < *b; });
  const auto twin =
      std::adjacent_find(keys.begin(), keys.end(),
                         [](const std::string* a, const std::string* b) { return *a == *b; });
  return twin != keys.end() ? *twin : nullptr;
}

std::string pointer_of(const std::vector<Cursor>& path) {
  std::string pointer;
  for (const Cursor& step : path) {
    pointer += '/';
    if (step.value->is_array()) {
      pointer += std::to_string(step.next - 1);
      continue;
    }
    for (const char c : step.value->members()[step.next - 1].first) {
      if (c == '~')
        pointer += "~0";
      else if (c == '/')
        pointer += "~1";
      else
        pointer += c;
    }
  }
  return pointer;
}

}  // namespace

std::optional<std::string> find_duplicate_key(const Value& value, std::string* key) {
  std::vector<Cursor> path;
  const Value* at = &value;
  while (true) {
    if (at->is_object()) {
      const std::string* twin = repeated_key(*at);
      if (twin != nullptr) {
        if (key != nullptr) *key = *twin;
        return pointer_of(path);
      }
    }
    if (is_compound(*at)) path.push_back({at});
    while (!path.empty() && path.back().next == path.back().n_children()) path.pop_back();
    if (path.empty()) return std::nullopt;
    Cursor& cursor = path.back();
    const size_t i = cursor.next++;
    at = cursor.value->is_array() ? &cursor.value->items()[i] : &cursor.value->members()[i].second;
  }
}

void write_string(std::string_view s, std::string& out) {
  static constexpr char kHex[] = "0123456789abcdef";
  out += '"';
  size_t n_done = 0;
  for (size_t i = 0; i < s.size(); ++i) {
    const auto c = static_cast<unsigned char>(s[i]);
    if (c >= 0x20 && c != '"' && c != '\\') continue;
    out.append(s, n_done, i - n_done);
    n_done = i + 1;
    out += '\\';
    switch (c) {
      case '"':
      case '\\':
        out += static_cast<char>(c);
        break;
      case '\n':
        out += 'n';
        break;
      case '\r':
        out += 'r';
        break;
      case '\t':
        out += 't';
        break;
      case '\b':
        out += 'b';
        break;
      case '\f':
        out += 'f';
        break;
      default:
        out += "u00";
        out += kHex[c >> 4];
        out += kHex[c & 15];
    }
  }
  out.append(s, n_done);
  out += '"';
}

namespace {

// The whole of a scalar; the opening bracket of a compound.
void write_start(const Value& value, std::string& out) {
  switch (value.type()) {
    case Type::kNull:
      out += "null";
      break;
    case Type::kBool:
      out += value.as_bool() ? "true" : "false";
      break;
    case Type::kNumber:
      out += value.number_text();
      break;
    case Type::kString:
      write_string(value.as_string(), out);
      break;
    case Type::kArray:
      out += '[';
      break;
    case Type::kObject:
      out += '{';
      break;
  }
}

}  // namespace

std::string write(const Value& value, Style style) {
  const std::string_view between_items = style == Style::kPython ? ", " : ",";
  const std::string_view after_key = style == Style::kPython ? ": " : ":";
  std::string out;
  std::vector<Cursor> path;
  const Value* at = &value;
  while (true) {
    write_start(*at, out);
    if (is_compound(*at)) path.push_back({at});
    while (!path.empty() && path.back().next == path.back().n_children()) {
      out += path.back().value->is_array() ? ']' : '}';
      path.pop_back();
    }
    if (path.empty()) return out;
    Cursor& cursor = path.back();
    if (cursor.next > 0) out += between_items;
    const size_t i = cursor.next++;
    if (cursor.value->is_array()) {
      at = &cursor.value->items()[i];
    } else {
      const Member& member = cursor.value->members()[i];
      write_string(member.first, out);
      out += after_key;
      at = &member.second;
    }
  }
}

std::string python_repr(double d) {
  ROOST_CHECK(std::isfinite(d));
  char buffer[40] = {};
  const auto [end, error] =
      std::to_chars(buffer, buffer + sizeof buffer, d, std::chars_format::scientific);
  ROOST_CHECK(error == std::errc{});
  const std::string_view shortest(buffer, static_cast<size_t>(end - buffer));  // "-1.25e-07"
  const size_t mark = shortest.find('e');
  const bool is_negative = shortest[0] == '-';
  std::string digits;
  for (const char c : shortest.substr(0, mark))
    if (c >= '0' && c <= '9') digits += c;
  const int exponent = std::atoi(buffer + mark + 1);

  std::string text = is_negative ? "-" : "";
  if (exponent < -4 || exponent >= 16) {  // where Python's repr turns to an exponent
    text += digits.substr(0, 1);
    if (digits.size() > 1) text += "." + digits.substr(1);
    const int magnitude = std::abs(exponent);
    text += exponent < 0 ? "e-" : "e+";
    if (magnitude < 10) text += '0';
    return text + std::to_string(magnitude);
  }
  if (exponent < 0)
    return text + "0." + std::string(static_cast<size_t>(-exponent - 1), '0') + digits;
  const auto n_whole = static_cast<size_t>(exponent) + 1;
  if (digits.size() <= n_whole)
    return text + digits + std::string(n_whole - digits.size(), '0') + ".0";
  return text + digits.substr(0, n_whole) + "." + digits.substr(n_whole);
}

}  // namespace roost::json
