// Typed reading of client objects: one place for every message about a wrong field.
#include "server/request_fields.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <unordered_set>

#include "base/limits.h"

namespace roost {

namespace {

constexpr size_t kMembersMax = 4096;  // no interpreted object has a use for more

}  // namespace

std::string pointer_step(std::string_view key) {
  std::string out;
  for (const char c : key) {
    if (c == '~')
      out += "~0";
    else if (c == '/')
      out += "~1";
    else
      out += c;
  }
  return out;
}

std::string path_of_pointer(std::string_view pointer) {
  std::string path;
  size_t at = 0;
  while (at < pointer.size()) {
    const size_t next = std::min(pointer.find('/', at + 1), pointer.size());
    const std::string_view step = pointer.substr(at + 1, next - at - 1);
    const bool is_index =
        !step.empty() && step.find_first_not_of("0123456789") == std::string_view::npos;
    if (is_index && !path.empty()) {
      path += fmt::format("[{}]", step);
    } else {
      if (!path.empty()) path += '.';
      for (size_t i = 0; i < step.size(); ++i) {
        const bool is_escape = step[i] == '~' && i + 1 < step.size();
        path += is_escape ? (step[++i] == '1' ? '/' : '~') : step[i];
      }
    }
    at = next;
  }
  return path;
}

std::string quoted_short(std::string_view bytes) {
  std::string_view cut = bytes.substr(0, limits::kErrorValueBytesMax);
  // The cut must not leave half a character: continuation bytes and their lead go.
  if (cut.size() < bytes.size()) {
    while (!cut.empty() && (static_cast<unsigned char>(bytes[cut.size()]) & 0xC0) == 0x80)
      cut.remove_suffix(1);
  }
  std::string out;
  json::write_string(cut, out);
  if (cut.size() < bytes.size()) out += "…";
  return out;
}

std::string value_short(const json::Value& value) {
  switch (value.type()) {
    case json::Type::kNull:
      return "null";
    case json::Type::kBool:
      return value.as_bool() ? "true" : "false";
    case json::Type::kNumber:
      return value.number_text().substr(0, limits::kErrorValueBytesMax);
    case json::Type::kString:
      return quoted_short(value.as_string());
    case json::Type::kArray:
      return "an array";
    case json::Type::kObject:
      return "an object";
  }
  return "";
}

Error refuse_at(ParseNotes& notes, Refusal refusal, std::string_view pointer,
                std::string_view detail) {
  notes.param = path_of_pointer(pointer);
  if (notes.param.size() > 4 * limits::kErrorValueBytesMax) notes.param = "(a long path)";
  if (notes.param.empty()) return Error{refusal, std::string(detail)};
  return Error{refusal, fmt::format("{}: {}", notes.param, detail)};
}

Result<Fields> Fields::open(const json::Value& value, std::string pointer, ParseNotes& notes) {
  if (!value.is_object())
    return refuse_at(notes, Refusal::FieldType, pointer,
                     fmt::format("have {}, want an object", value_short(value)));
  // Readers look keys up one by one: the bound keeps that from growing with the body.
  if (value.members().size() > kMembersMax)
    return refuse_at(
        notes, Refusal::TooManyItems, pointer,
        fmt::format("have {} members, at most {}", value.members().size(), kMembersMax));
  std::unordered_set<std::string_view> seen;
  for (const json::Member& member : value.members()) {
    if (seen.insert(member.first).second) continue;
    return refuse_at(notes, Refusal::JsonDuplicateKey, pointer,
                     fmt::format("the key {} stands twice in the object at {}",
                                 quoted_short(member.first), quoted_short(pointer)));
  }
  return Fields(value, std::move(pointer), notes);
}

const json::Value* Fields::take(std::string_view key) {
  const json::Value* found = value_->find(key);
  if (found == nullptr) return nullptr;
  taken_.emplace_back(key);
  return found->is_null() ? nullptr : found;
}

Error Fields::refuse(Refusal refusal, std::string_view key, std::string_view detail) const {
  return refuse_at(*notes_, refusal, pointer_of(key), detail);
}

Result<const json::Value*> Fields::require(std::string_view key) {
  const json::Value* found = take(key);
  if (found == nullptr) return refuse(Refusal::MissingField, key, "must be given");
  return found;
}

Result<std::optional<bool>> Fields::boolean(std::string_view key) {
  const json::Value* found = take(key);
  if (found == nullptr) return std::optional<bool>();
  if (!found->is_bool())
    return refuse(Refusal::FieldType, key,
                  fmt::format("have {}, want true or false", value_short(*found)));
  return std::optional<bool>(found->as_bool());
}

Result<std::optional<double>> Fields::number(std::string_view key, double low, double high) {
  const json::Value* found = take(key);
  if (found == nullptr) return std::optional<double>();
  if (!found->is_number())
    return refuse(Refusal::FieldType, key,
                  fmt::format("have {}, want a number", value_short(*found)));
  const double d = found->as_double();
  if (!(d >= low && d <= high))
    return refuse(
        Refusal::FieldRange, key,
        fmt::format("have {}, want a number from {} to {}", value_short(*found), low, high));
  return std::optional<double>(d);
}

Result<std::optional<int64_t>> Fields::integer(std::string_view key, int64_t low, int64_t high) {
  const json::Value* found = take(key);
  if (found == nullptr) return std::optional<int64_t>();
  const bool is_integral =
      found->is_number() &&
      (found->as_int64() || std::floor(found->as_double()) == found->as_double());
  if (!is_integral)
    return refuse(Refusal::FieldType, key,
                  fmt::format("have {}, want an integer", value_short(*found)));
  const std::optional<int64_t> i = found->as_int64();
  if (!i || *i < low || *i > high)
    return refuse(Refusal::FieldRange, key,
                  fmt::format("have {}, want an integer {}", value_short(*found),
                              high == INT64_MAX ? fmt::format(">= {}", low)
                                                : fmt::format("from {} to {}", low, high)));
  return i;
}

Result<std::optional<std::string>> Fields::string(std::string_view key, size_t n_bytes_max) {
  const json::Value* found = take(key);
  if (found == nullptr) return std::optional<std::string>();
  if (!found->is_string())
    return refuse(Refusal::FieldType, key,
                  fmt::format("have {}, want a string", value_short(*found)));
  if (found->as_string().size() > n_bytes_max)
    return refuse(Refusal::TooManyItems, key,
                  fmt::format("have {} bytes, at most {}", found->as_string().size(), n_bytes_max));
  return std::optional<std::string>(found->as_string());
}

Result<const json::Value*> Fields::array(std::string_view key, size_t n_items_max) {
  const json::Value* found = take(key);
  if (found == nullptr) return found;
  if (!found->is_array())
    return refuse(Refusal::FieldType, key,
                  fmt::format("have {}, want an array", value_short(*found)));
  if (found->items().size() > n_items_max)
    return refuse(Refusal::TooManyItems, key,
                  fmt::format("have {} items, at most {}", found->items().size(), n_items_max));
  return found;
}

Result<const json::Value*> Fields::object(std::string_view key) {
  const json::Value* found = take(key);
  if (found == nullptr) return found;
  if (!found->is_object())
    return refuse(Refusal::FieldType, key,
                  fmt::format("have {}, want an object", value_short(*found)));
  return found;
}

void Fields::ignore(std::string_view key) {
  if (take(key) != nullptr) notes_->ignored.push_back(pointer_of(key));
}

void Fields::ignore_rest() {
  for (const json::Member& member : value_->members()) {
    if (member.second.is_null()) continue;
    if (std::find(taken_.begin(), taken_.end(), member.first) != taken_.end()) continue;
    // The header that carries the list holds 2 KiB: more is never shown.
    if (notes_->ignored.size() < 256) notes_->ignored.push_back(pointer_of(member.first));
  }
}

}  // namespace roost
