// Any bytes as JSON: what is read, written and read again is the same, and simdjson reads the same.
#include <simdjson.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/check.h"
#include "base/json.h"
#include "base/utf8.h"

namespace roost {
namespace {

constexpr size_t kDepthMax = 1024;  // that of simdjson

bool is_same(const json::Value& ours, const simdjson::dom::element& theirs) {
  switch (theirs.type()) {
    case simdjson::dom::element_type::NULL_VALUE:
      return ours.is_null();
    case simdjson::dom::element_type::BOOL:
      return ours.is_bool() && ours.as_bool() == bool(theirs);
    case simdjson::dom::element_type::STRING:
      return ours.is_string() && ours.as_string() == std::string_view(theirs);
    case simdjson::dom::element_type::INT64:
      return ours.is_number() && ours.as_int64() == int64_t(theirs);
    case simdjson::dom::element_type::UINT64:
      return ours.is_number() && ours.as_uint64() == uint64_t(theirs);
    case simdjson::dom::element_type::DOUBLE:
      return ours.is_number() && ours.as_double() == double(theirs);
    case simdjson::dom::element_type::ARRAY: {
      if (!ours.is_array()) return false;
      size_t i = 0;
      for (const simdjson::dom::element item : simdjson::dom::array(theirs))
        if (i == ours.items().size() || !is_same(ours.items()[i++], item)) return false;
      return i == ours.items().size();
    }
    case simdjson::dom::element_type::OBJECT: {
      if (!ours.is_object()) return false;
      size_t i = 0;
      for (const simdjson::dom::key_value_pair member : simdjson::dom::object(theirs)) {
        if (i == ours.members().size() || ours.members()[i].first != member.key) return false;
        if (!is_same(ours.members()[i++].second, member.value)) return false;
      }
      return i == ours.members().size();
    }
  }
  return false;
}

void compare_with_simdjson(std::string_view text, const Result<json::Value>& ours) {
  if (text.starts_with("\xEF\xBB\xBF")) return;  // we refuse the mark, some versions skip it
  simdjson::dom::parser parser;
  simdjson::dom::element theirs;
  const simdjson::error_code error = parser.parse(simdjson::padded_string(text)).get(theirs);
  if (error == simdjson::SUCCESS) {
    ROOST_CHECK(ours);
    ROOST_CHECK(is_same(*ours, theirs));
    return;
  }
  // Integers of more than 64 bits and doubles beyond the range are numbers to us.
  const bool is_number_only = error == simdjson::NUMBER_ERROR;
  // Arrays of exactly the greatest depth are counted one apart.
  const bool is_depth = error == simdjson::DEPTH_ERROR;
  ROOST_CHECK(!ours || is_number_only || is_depth);
}

void read_write_read(const json::Value& value) {
  for (const json::Style style : {json::Style::kCompact, json::Style::kPython}) {
    const std::string written = json::write(value, style);
    const Result<json::Value> again = json::parse(written, kDepthMax);
    ROOST_CHECK(again);
    ROOST_CHECK(*again == value);
    ROOST_CHECK(json::write(*again, style) == written);
    ROOST_CHECK(replace_invalid_utf8(written) == written);
  }
  json::Value copy = value;
  ROOST_CHECK(copy == value);
  ROOST_CHECK(json::find_duplicate_key(copy) == json::find_duplicate_key(value));
  if (!copy.is_object()) return;
  for (const auto& [key, member] : value.members()) {
    const json::Value* found = copy.find(key);
    ROOST_CHECK(found != nullptr);
    copy.set(key, json::Value::integer(1));
    ROOST_CHECK(copy.find(key)->as_int64() == 1);
  }
  ROOST_CHECK(copy.members().size() == value.members().size());
}

}  // namespace
}  // namespace roost

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const roost::Result<roost::json::Value> value = roost::json::parse(text, roost::kDepthMax);
  roost::compare_with_simdjson(text, value);
  if (value)
    roost::read_write_read(*value);
  else
    ROOST_CHECK(!value.error().detail.empty());
  return 0;
}
