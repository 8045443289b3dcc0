// Generation fields, as every dialect spells them: read, checked, refused or listed.
#pragma once

#include "server/chat_request.h"
#include "server/request_fields.h"

namespace roost {

// Where dialects differ in the names of fields that mean the same.
struct FieldNames {
  const char* max_tokens = "max_tokens";
  const char* other_max_tokens = nullptr;  // a second spelling
  const char* stop = "stop";
  bool has_n = false;
  bool shows_special_tokens = false;  // skip_special_tokens may be false
  bool has_reasoning = true;          // false: raw text, which has no parts
  int64_t max_tokens_min = 1;
};

// Takes all generation fields of a body's envelope but for those of probabilities, which each
// dialect spells its own way. What would change the reply and is not offered is refused by name;
// what cannot change it is listed in the notes.
Result<GenerationFields> read_generation(Fields& body, const RequestRules& rules,
                                         const FieldNames& names);

// `model`: any name, unless the server is strict about it.
Result<std::string> read_model_name(Fields& body, const RequestRules& rules);

// Refuses the members that this server never honours, unless their value has no effect.
Result<void> refuse_foreign_fields(Fields& body);

}  // namespace roost
