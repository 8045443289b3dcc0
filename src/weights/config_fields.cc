// Typed access to configuration fields; every refusal names the field and quotes its value.
#include "weights/config_fields.h"

#include <cmath>

#include "base/limits.h"

namespace roost {

std::string shortened(std::string text) {
  if (text.size() <= limits::kErrorValueBytesMax) return text;
  size_t end = limits::kErrorValueBytesMax;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
  text.resize(end);
  return text + "…";
}

std::string quoted(const json::Value& value) {
  return shortened(json::write(value, json::Style::kPython));
}

Error ConfigFields::refuse(std::string_view key, const std::string& what) const {
  const json::Value* value = find(key);
  return {Refusal::ConfigField,
          path_of(key) + ": " + (value == nullptr ? "absent" : quoted(*value)) + " (" + what + ")"};
}

const json::Value* ConfigFields::find(std::string_view key) const {
  const json::Value* value = object_.find(key);
  return value == nullptr || value->is_null() ? nullptr : value;
}

Result<int64_t> ConfigFields::integer(std::string_view key, const IntegerRule& rule) const {
  const json::Value* value = find(key);
  if (value == nullptr && rule.absent) return *rule.absent;
  const std::optional<int64_t> number =
      value != nullptr && value->is_number() ? value->as_int64() : std::nullopt;
  if (!number || *number < rule.min || *number > rule.max) {
    return refuse(key, "an integer from " + std::to_string(rule.min) + " to " +
                           std::to_string(rule.max) + " is needed");
  }
  return *number;
}

Result<double> ConfigFields::number(std::string_view key, std::optional<double> absent) const {
  const json::Value* value = find(key);
  if (value == nullptr && absent) return *absent;
  if (value == nullptr || !value->is_number() || !std::isfinite(value->as_double())) {
    return refuse(key, "a number is needed");
  }
  return value->as_double();
}

Result<bool> ConfigFields::boolean(std::string_view key, bool absent) const {
  const json::Value* value = find(key);
  if (value == nullptr) return absent;
  if (!value->is_bool()) return refuse(key, "true or false is needed");
  return value->as_bool();
}

Result<std::string> ConfigFields::string(std::string_view key, const std::string& absent) const {
  const json::Value* value = find(key);
  if (value == nullptr) return absent;
  if (!value->is_string()) return refuse(key, "a string is needed");
  return value->as_string();
}

Result<void> ConfigFields::demand(std::string_view key, const json::Value& only) const {
  const json::Value* value = find(key);
  if (value == nullptr || *value == only) return {};
  // 1 and 1.0 are one value in two spellings.
  if (value->is_number() && only.is_number() && value->as_double() == only.as_double()) return {};
  return refuse(key, "only " + quoted(only) + " is supported");
}

}  // namespace roost
