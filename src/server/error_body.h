// Refusals as bodies: the one place where a code becomes what clients read.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"

namespace roost {

// One sentence: what is wrong, with the numbers.
std::string message_of(const Error& error);
// The name that clients of the OpenAI dialects look for; the refusal's own code otherwise.
std::string_view openai_code_of(Refusal refusal);
std::string_view openai_type_of(int status);

// {"error":{"message","type","param","code","refusal"}}; an empty param is null.
std::string openai_error_body(const Error& error, std::string_view param);

// {"type":"error","error":{"type","message","param","refusal"},"request_id"}
std::string anthropic_error_body(const Error& error, std::string_view param,
                                 std::string_view request_id);
std::string_view anthropic_type_of(int status);

}  // namespace roost
