// From messages to prompt tokens: the checkpoint's template, with the server's rules around it.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "server/chat_request.h"
#include "server/replay_map.h"
#include "server/served_model.h"

namespace roost {

struct Prompt {
  std::string text;
  std::vector<Token> tokens;
  bool starts_in_reasoning = false;
  std::string lead;          // what the reply's turn begins with, behind its header
  std::string before_reply;  // a digest of what stands in front of that turn
  // Spans of tokens that are past replies as they were drawn.
  std::vector<std::pair<int64_t, int64_t>> replayed;
  // Where later prompts are likely to part from this one, ascending: behind the system turn, before
  // and behind the last question of the user, before the last two turns.
  std::vector<int64_t> places;

  int64_t n_replayed() const;
};

// The reply that a turn of the assistant was rendered from, if it is known; before: as
// Prompt::before_reply, of that turn.
using FindReplay =
    std::function<std::optional<Replay>(std::string_view before, std::string_view turn)>;

// Renders and tokenizes. Leading system turns are joined; later ones stand at their place; a
// conversation without a user turn is rendered as if one stood first; a last turn that is continued
// stays open. Text of the request never becomes a control token. Refuses request.template,
// request.field_value.
Result<Prompt> build_prompt(const ServedModel& model, const ChatRequest& request,
                            int64_t unix_seconds, const FindReplay& find_replay = nullptr);

// A reply to the request as the template prints it in the next prompt, between its turn's header
// and end; empty where the template prints no such turn.
Result<std::string> render_reply(const ServedModel& model, const ChatRequest& request,
                                 const Message& reply, int64_t unix_seconds);

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
