// Generation fields, as every dialect spells them: read, checked, refused or listed.
#pragma once

#include "server/chat_request.h"
#include "server/request_fields.h"

namespace roost {

// Takes all generation fields of a body's envelope. What would change the reply and is not offered
// is refused by name; what cannot change it is listed in the notes.
Result<GenerationFields> read_generation(Fields& body, const RequestRules& rules);

// Refuses the members that this server never honours, unless their value has no effect.
Result<void> refuse_foreign_fields(Fields& body);

}  // namespace roost
