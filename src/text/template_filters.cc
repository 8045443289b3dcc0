#include "text/template_filters.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include <fmt/core.h>

#include "base/utf8.h"
#include "text/python_text.h"
#include "text/template_methods.h"
#include "text/template_operators.h"
#include "text/template_print.h"
#include "text/template_sequence_filters.h"
#include "text/unicode_case.h"
#include "text/unicode_table.h"

namespace roost::jinja {
namespace {

constexpr int64_t kRoundDigitsMax = 300;  // a double has no digits beyond
constexpr int64_t kScaleDigitsMax = 22;   // 10 to this power is a double exactly

template <std::string (*map)(std::string_view)>
Result<Value> filter_case(Heap& heap, const Value& input, const Bound&) {
  ROOST_TRY(const std::string text, to_text(heap, input));
  return heap.string(map(text));
}

Result<Value> filter_string(Heap& heap, const Value& input, const Bound&) {
  if (input.is_string()) return input;
  ROOST_TRY(std::string text, to_text(heap, input));
  return heap.string(std::move(text));
}

Result<Value> filter_safe(Heap& heap, const Value& input, const Bound& args) {
  ROOST_TRY(const Value text, filter_string(heap, input, args));
  return text.as_markup(true);
}

Result<Value> filter_trim(Heap& heap, const Value& input, const Bound& args) {
  ROOST_TRY(const std::string text, to_text(heap, input));
  if (is_absent_or_none(args[0])) return heap.string(std::string(strip(text, std::nullopt)));
  if (!args[0]->is_string()) return refuse("the filter 'trim' takes characters");
  return heap.string(std::string(strip(text, args[0]->text())));
}

Result<Value> filter_length(Heap& heap, const Value& input, const Bound&) {
  if (input.is_string()) ROOST_TRY_DO(heap.spend_bytes(input.text().size()));
  const std::optional<size_t> n = length(input);
  if (!n) return refuse(fmt::format("a '{}' has no length", type_name(input)));
  return Value::integer(static_cast<int64_t>(*n));
}

Result<Value> filter_default(Heap& heap, const Value& input, const Bound& args) {
  const bool is_missing =
      input.is(Kind::kUndefined) || (flag_argument(args[1], false) && !truth(input));
  if (!is_missing) return input;
  if (args[0] != nullptr) return *args[0];
  return heap.string("");
}

Result<Value> filter_replace(Heap& heap, const Value& input, const Bound& args) {
  if (args[0] == nullptr || args[1] == nullptr)
    return refuse("the filter 'replace' takes two texts");
  ROOST_TRY(const std::string text, to_text(heap, input));
  ROOST_TRY(const std::string old, to_text(heap, *args[0]));
  ROOST_TRY(const std::string by, to_text(heap, *args[1]));
  const Value* count = is_absent_or_none(args[2]) ? nullptr : args[2];
  ROOST_TRY(const int64_t n_max, int_argument(count, -1));
  return replace_text(heap, text, old, by, n_max);
}

// Digits of other scripts are numbers to Python; they are not read here, so they must not pass for
// text that is no number.
Result<void> check_digits(std::string_view text) {
  for (size_t at = 0; at < text.size(); at += first_point_bytes(text.substr(at)))
    if (char_class(read_utf8(text, at).code_point) == CharClass::kNumber && text[at] & 0x80)
      return refuse("a number with digits beyond 0 to 9");
  return {};
}

Result<Value> integer_of_digits(Heap& heap, std::string digits) {
  int64_t i = 0;
  const auto read = std::from_chars(digits.data(), digits.data() + digits.size(), i);
  if (read.ec == std::errc()) return Value::integer(i);
  return heap.big_integer(std::move(digits));
}

// int(d), or nothing for what is no number.
Result<std::optional<Value>> truncate(double d) {
  if (std::isnan(d)) return std::optional<Value>();
  if (!(d > -0x1p63 && d < 0x1p63)) return refuse("a float that fits no 64-bit integer");
  return std::optional<Value>(Value::integer(static_cast<int64_t>(d)));
}

Result<Value> filter_int(Heap& heap, const Value& input, const Bound& args) {
  const Value otherwise = args[0] != nullptr ? *args[0] : Value::integer(0);
  if (input.is(Kind::kUndefined)) return refuse("the filter 'int' of an undefined value");
  if (input.is_integral()) return Value::integer(input.as_int());
  if (input.is(Kind::kBigInt)) return input;
  std::optional<double> d;
  if (input.is(Kind::kFloat)) d = input.as_float();
  if (input.is_string()) {
    ROOST_TRY_DO(heap.spend_bytes(input.text().size()));
    ROOST_TRY_DO(check_digits(input.text()));
    ROOST_TRY(const int64_t base, int_argument(args[1], 10));
    if (base != 0 && (base < 2 || base > 36)) return otherwise;
    if (auto digits = parse_int(input.text(), base))
      return integer_of_digits(heap, *std::move(digits));
    d = parse_float(input.text());
    if (d && std::isinf(*d)) return otherwise;
  }
  if (!d) return otherwise;
  ROOST_TRY(const std::optional<Value> whole, truncate(*d));
  return whole.value_or(otherwise);
}

Result<Value> filter_float(Heap& heap, const Value& input, const Bound& args) {
  const Value otherwise = args[0] != nullptr ? *args[0] : Value::real(0);
  if (input.is(Kind::kUndefined)) return refuse("the filter 'float' of an undefined value");
  if (input.is(Kind::kFloat)) return input;
  if (input.is_integral()) return Value::real(static_cast<double>(input.as_int()));
  if (!input.is_string() && !input.is(Kind::kBigInt)) return otherwise;
  ROOST_TRY_DO(heap.spend_bytes(input.text().size()));
  ROOST_TRY_DO(check_digits(input.text()));
  const std::optional<double> d = parse_float(input.text());
  if (input.is(Kind::kBigInt) && std::isinf(*d)) return refuse("an integer that fits no float");
  return d ? Value::real(*d) : otherwise;
}

Result<Value> filter_abs(Heap&, const Value& input, const Bound&) {
  if (input.is(Kind::kFloat)) return Value::real(std::fabs(input.as_float()));
  if (!input.is_integral()) return refuse(fmt::format("abs of a '{}'", type_name(input)));
  return input.as_int() < 0 ? apply_sign(true, input) : apply_sign(false, input);
}

// Rounds the exact decimal value of the double, ties to even.
Value round_to_digits(double d, int64_t n_digits) {
  if (!std::isfinite(d)) return Value::real(d);
  return Value::real(std::strtod(fmt::format("{:.{}f}", d, n_digits).c_str(), nullptr));
}

Result<Value> filter_round(Heap&, const Value& input, const Bound& args) {
  ROOST_TRY(const int64_t n_digits, int_argument(args[0], 0));
  std::string_view method = "common";
  if (args[1] != nullptr) {
    if (!args[1]->is_string()) return refuse("the filter 'round' takes a method's name");
    method = args[1]->text();
  }
  if (method != "common" && method != "ceil" && method != "floor")
    return refuse("round takes 'common', 'ceil' or 'floor'");
  if (!input.is_integral() && !input.is(Kind::kFloat))
    return refuse(fmt::format("round of a '{}'", type_name(input)));
  if (n_digits < 0) return refuse("round to tens");
  if (method == "common") {
    if (input.is_integral()) return Value::integer(input.as_int());
    if (n_digits > kRoundDigitsMax) return input;
    return round_to_digits(input.as_float(), n_digits);
  }
  if (n_digits > kScaleDigitsMax) return refuse("round to so many digits");
  const double scale = std::pow(10.0, static_cast<double>(n_digits));
  const double value =
      input.is(Kind::kFloat) ? input.as_float() : static_cast<double>(input.as_int());
  if (!std::isfinite(value * scale)) return refuse("round of a number that is not finite");
  const double scaled = value * scale;
  return Value::real((method == "ceil" ? std::ceil(scaled) : std::floor(scaled)) / scale);
}

// A width in blanks, or the text itself.
Result<std::string> indent_text(Heap& heap, const Value& width) {
  if (width.is_string()) return width.text();
  ROOST_TRY(const int64_t n, int_argument(&width, 0));
  const auto size = static_cast<size_t>(std::max<int64_t>(n, 0));
  ROOST_TRY_DO(heap.check_text_size(size));
  ROOST_TRY_DO(heap.spend_bytes(size));
  return std::string(size, ' ');
}

Result<Value> filter_indent(Heap& heap, const Value& input, const Bound& args) {
  if (!input.is_string()) return refuse(fmt::format("indent of a '{}'", type_name(input)));
  ROOST_TRY(const std::string indent,
            indent_text(heap, args[0] != nullptr ? *args[0] : Value::integer(4)));
  const bool with_first = flag_argument(args[1], false);
  const bool with_blank = flag_argument(args[2], false);
  const std::string text = input.text() + "\n";
  const std::vector<std::string_view> lines = split_lines(text);
  ROOST_TRY_DO(heap.spend(lines.size()));
  size_t size = 0;
  if (__builtin_mul_overflow(lines.size(), indent.size(), &size)) size = SIZE_MAX / 2;
  ROOST_TRY_DO(heap.check_text_size(size + text.size()));
  std::string out = with_first ? indent : "";
  for (size_t i = 0; i < lines.size(); ++i) {
    if (i > 0) out += '\n';
    if (i > 0 && (with_blank || !lines[i].empty())) out += indent;
    out += lines[i];
  }
  return heap.string(std::move(out));
}

Result<Value> filter_tojson(Heap& heap, const Value& input, const Bound& args) {
  JsonStyle style;
  style.is_ascii_only = flag_argument(args[0], false);
  style.sort_keys = flag_argument(args[3], false);
  if (!is_absent_or_none(args[1])) {
    ROOST_TRY(style.indent, indent_text(heap, *args[1]));
    style.item_separator = ',';
  }
  if (!is_absent_or_none(args[2])) {
    ROOST_TRY(const std::vector<Value> pair, to_vector(heap, *args[2]));
    if (pair.size() != 2 || !pair[0].is_string() || !pair[1].is_string())
      return refuse("tojson takes two separators");
    style.item_separator = pair[0].text();
    style.key_separator = pair[1].text();
  }
  ROOST_TRY(std::string text, to_json(heap, input, style));
  return heap.string(std::move(text));
}

const std::array<Filter, 35>& filters() {
  static const std::array<Filter, 35> table = {{
      {"abs", {}, filter_abs},
      {"capitalize", {}, filter_case<capitalize>},
      {"count", {}, filter_length, nullptr, true},
      {"d", {"default_value", "boolean"}, filter_default, nullptr, true},
      {"default", {"default_value", "boolean"}, filter_default, nullptr, true},
      {"dictsort", {"case_sensitive", "by", "reverse"}, filter_dictsort},
      {"first", {}, filter_first},
      {"float", {"default"}, filter_float, nullptr, true},
      {"indent", {"width", "first", "blank"}, filter_indent},
      {"int", {"default", "base"}, filter_int, nullptr, true},
      {"items", {}, filter_items},
      {"join", {"d", "attribute"}, filter_join},
      {"last", {}, filter_last},
      {"length", {}, filter_length, nullptr, true},
      {"list", {}, filter_list},
      {"lower", {}, filter_case<to_lower>},
      {"map", {}, nullptr, filter_map},
      {"max", {"case_sensitive", "attribute"}, filter_max},
      {"min", {"case_sensitive", "attribute"}, filter_min},
      {"reject", {}, nullptr, filter_reject},
      {"rejectattr", {}, nullptr, filter_rejectattr},
      {"replace", {"old", "new", "count"}, filter_replace},
      {"reverse", {}, filter_reverse},
      {"round", {"precision", "method"}, filter_round},
      {"safe", {}, filter_safe, nullptr, true},
      {"select", {}, nullptr, filter_select},
      {"selectattr", {}, nullptr, filter_selectattr},
      {"sort", {"reverse", "case_sensitive", "attribute"}, filter_sort},
      {"string", {}, filter_string, nullptr, true},
      {"sum", {"attribute", "start"}, filter_sum},
      {"title", {}, filter_case<title_words>},
      {"tojson",
       {"ensure_ascii", "indent", "separators", "sort_keys"},
       filter_tojson,
       nullptr,
       true},
      {"trim", {"chars"}, filter_trim},
      {"unique", {"case_sensitive", "attribute"}, filter_unique},
      {"upper", {}, filter_case<to_upper>},
  }};
  return table;
}

bool has_markup(const Value& input, const Arguments& arguments) {
  const auto is_markup = [](const Value& value) { return value.is_markup(); };
  return input.is_markup() ||
         std::any_of(arguments.positional.begin(), arguments.positional.end(), is_markup) ||
         std::any_of(arguments.named.begin(), arguments.named.end(),
                     [](const auto& argument) { return argument.second.is_markup(); });
}

}  // namespace

const Filter* find_filter(std::string_view name) {
  for (const Filter& filter : filters())
    if (!name.empty() && filter.name == name) return &filter;
  return nullptr;
}

Result<Value> apply_filter(Heap& heap, const Filter& filter, const Value& input,
                           const Arguments& arguments) {
  ROOST_TRY_DO(heap.spend(1));
  if (!filter.takes_markup && has_markup(input, arguments))
    return refuse(fmt::format("text marked safe in the filter '{}'", filter.name));
  if (filter.run_by_name != nullptr) return filter.run_by_name(heap, input, arguments);
  ROOST_TRY(const Bound bound, bind_arguments(arguments, filter.parameters));
  return filter.run(heap, input, bound);
}

}  // namespace roost::jinja
