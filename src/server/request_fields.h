// Reading the members of a JSON object from a client: types, ranges, repeated keys, and the list of
// what nobody asked for.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"

namespace roost {

// What reading a body leaves behind beside the request itself.
struct ParseNotes {
  std::string param;                 // path of the culprit, once something is refused
  std::vector<std::string> ignored;  // JSON pointers of members that have no effect
};

// "/messages/3/content" -> "messages[3].content".
std::string path_of_pointer(std::string_view pointer);
// A key as one step of a JSON pointer.
std::string pointer_step(std::string_view key);
// Bytes of a client in an error text: JSON-escaped, quoted, cut to limits::kErrorValueBytesMax.
std::string quoted_short(std::string_view bytes);
// A value in an error text: its spelling, cut; arrays and objects by their kind alone.
std::string value_short(const json::Value& value);

// One object. Every reader marks its key as known; null counts as absent. The object and the notes
// must outlive it.
class Fields {
 public:
  // Refuses request.field_type when it is no object, json.duplicate_key.
  static Result<Fields> open(const json::Value& value, std::string pointer, ParseNotes& notes);

  const json::Value* take(std::string_view key);             // null pointer when absent or null
  Result<const json::Value*> require(std::string_view key);  // refuses request.missing_field
  Result<std::optional<bool>> boolean(std::string_view key);
  Result<std::optional<double>> number(std::string_view key, double low, double high);
  Result<std::optional<int64_t>> integer(std::string_view key, int64_t low, int64_t high);
  Result<std::optional<std::string>> string(std::string_view key, size_t n_bytes_max);
  Result<const json::Value*> array(std::string_view key, size_t n_items_max);
  Result<const json::Value*> object(std::string_view key);

  void ignore(std::string_view key);  // lists the key when it is there
  void ignore_rest();                 // lists every member that nobody has taken

  // A refusal that points at a member of this object.
  Error refuse(Refusal refusal, std::string_view key, std::string_view detail) const;

  const json::Value& value() const { return *value_; }
  const std::string& pointer() const { return pointer_; }
  std::string pointer_of(std::string_view key) const { return pointer_ + "/" + pointer_step(key); }
  ParseNotes& notes() const { return *notes_; }

 private:
  Fields(const json::Value& value, std::string pointer, ParseNotes& notes)
      : value_(&value), pointer_(std::move(pointer)), notes_(&notes) {}

  const json::Value* value_;
  std::string pointer_;
  ParseNotes* notes_;
  std::vector<std::string> taken_;
};

// A refusal that points at any place of the body.
Error refuse_at(ParseNotes& notes, Refusal refusal, std::string_view pointer,
                std::string_view detail);

}  // namespace roost
