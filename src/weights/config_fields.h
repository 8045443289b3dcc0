// Reading the fields of one JSON object of a configuration, each with its bounds.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/json.h"
#include "base/result.h"

namespace roost {

// Text from a file as an error quotes it: cut to a bounded number of bytes, whole characters.
std::string shortened(std::string text);
std::string quoted(const json::Value& value);

struct IntegerRule {
  std::optional<int64_t> absent;  // the value when the field is absent; none: it is required
  int64_t min = 0, max = 0;
};

// A field that is null counts as absent. Borrows the object.
class ConfigFields {
 public:
  // path: where the object stands, "" or "text_config."
  ConfigFields(const json::Value& object, std::string path)
      : object_(object), path_(std::move(path)) {}

  const json::Value* find(std::string_view key) const;  // null: absent
  bool has(std::string_view key) const { return find(key) != nullptr; }
  Result<int64_t> integer(std::string_view key, const IntegerRule& rule) const;
  Result<double> number(std::string_view key, std::optional<double> absent) const;  // finite
  Result<bool> boolean(std::string_view key, bool absent) const;
  Result<std::string> string(std::string_view key, const std::string& absent) const;
  // The field must be absent or have this value.
  Result<void> demand(std::string_view key, const json::Value& only) const;

  const json::Value& object() const { return object_; }
  std::string path_of(std::string_view key) const { return path_ + shortened(std::string(key)); }
  // config.field: "text_config.hidden_act: "gelu" (only "silu" is supported)"
  Error refuse(std::string_view key, const std::string& what) const;

 private:
  const json::Value& object_;
  std::string path_;
};

}  // namespace roost
