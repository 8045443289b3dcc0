// From messages to prompt tokens: the checkpoint's template, with the server's rules around it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "server/chat_request.h"
#include "server/served_model.h"

namespace roost {

struct Prompt {
  std::string text;
  std::vector<Token> tokens;
  bool starts_in_reasoning = false;
};

// Renders and tokenizes. Leading system turns are joined; later ones stand at their place; a
// conversation without a user turn is rendered as if one stood first; a last turn that is continued
// stays open. Text of the request never becomes a control token. Refuses request.template,
// request.field_value.
Result<Prompt> build_prompt(const ServedModel& model, const ChatRequest& request,
                            int64_t unix_seconds);

// Tokens of a text in which no added token counts. Refuses request.field_value.
Result<std::vector<Token>> encode_as_text(const ServedModel& model, const std::string& text);

// Refuses a prompt that leaves no room for one token, in the words that agents look for.
Result<void> check_prompt_fits(int64_t n_prompt, int64_t context_max);

// The steps of build_prompt that tests look at.
//
// A guard marks places in request text: `mark` (a character that the text does not hold) is put
// behind the last letter of everything that is or begins an added token. The tokenizer then sees
// the pieces between marks one by one, and no piece holds a whole added token of the request.
// Letters and closing punctuation are split there by the tokenizer's own pattern anyway, so plain
// text keeps its ids.
std::string guard_text(const std::string& text, const std::vector<std::string>& added_tokens,
                       const std::string& mark);

}  // namespace roost
