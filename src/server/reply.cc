// Tokens to text, text to reasoning and content, content to what stop strings leave of it.
#include "server/reply.h"

#include <utility>

namespace roost {

ReplyMachine::ReplyMachine(const Tokenizer& tokenizer, ReplyOptions options)
    : tokenizer_(tokenizer),
      parser_(options.starts_in_reasoning),
      stops_(std::move(options.stops), options.keeps_stop_text) {}

void ReplyMachine::take_delta(ReplyDelta delta, ReplyPiece& piece) {
  piece.reasoning += delta.reasoning;
  piece.content += stops_.push(delta.content);
}

void ReplyMachine::push_token(int32_t token, ReplyPiece& piece) {
  const bool was_in_reasoning = parser_.in_reasoning();
  token_ids_.push_back(token);
  // Special tokens are hidden from clients, and a half character before one stays held.
  if (!tokenizer_.is_special(token))
    take_delta(parser_.push(detokenizer_.push(tokenizer_.bytes_of(token))), piece);
  if (was_in_reasoning || parser_.in_reasoning()) ++n_reasoning_tokens_;
}

void ReplyMachine::close_piece(ReplyPiece& piece, bool is_last) {
  reasoning_ += piece.reasoning;
  content_ += piece.content;
  if (!piece.has_text() && !is_last) return;
  piece.token_ids.assign(token_ids_.begin() + static_cast<ptrdiff_t>(n_ids_sent_),
                         token_ids_.end());
  n_ids_sent_ = token_ids_.size();
}

ReplyPiece ReplyMachine::push(std::span<const int32_t> tokens) {
  ReplyPiece piece;
  for (const int32_t token : tokens) {
    if (has_stopped()) break;
    push_token(token, piece);
  }
  close_piece(piece, false);
  return piece;
}

ReplyPiece ReplyMachine::finish() {
  ReplyPiece piece;
  if (!has_stopped()) {
    // An incomplete character at the end of the reply is no text: the detokenizer is not flushed.
    take_delta(parser_.finish(), piece);
    if (!has_stopped()) piece.content += stops_.finish();
  }
  close_piece(piece, true);
  return piece;
}

}  // namespace roost
