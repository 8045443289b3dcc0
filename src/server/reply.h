// The reply machine of one choice: kept tokens in, pieces of reasoning, content and calls out, and
// why it ended.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "text/detokenizer.h"
#include "text/reply_parser.h"
#include "text/tokenizer.h"

namespace roost {

struct ReplyOptions {
  ReplyParserOptions parser;
  bool shows_special_tokens = false;
  int64_t min_tokens = 0;  // stop strings are not looked for before so many kept tokens
  std::function<std::string()> new_call_id;  // none: calls have no ids
};

enum class TokenKind { kReasoning, kContent, kCall };

// One kept token: which part of the reply it belongs to, and how likely it was.
struct ReplyToken {
  int32_t id = 0;
  TokenKind kind = TokenKind::kContent;
  std::optional<TokenLogprobs> logprobs;
};

// A part of the reply, in the order of generation.
struct ReplyItem {
  enum class Kind { kReasoning, kContent, kCall };
  Kind kind = Kind::kContent;
  std::string text;           // of a call: its arguments
  std::string name, call_id;  // of a call
  bool is_free_text = false;  // of a call
};

// What became certain with some tokens. Concatenated pieces are the parts of the whole reply.
struct ReplyPiece {
  std::vector<ReplyEvent> events;
  std::vector<ReplyToken> tokens;  // those whose part is known with this piece
};

// Puts `piece` behind `into`, text of one kind in one event.
void append_piece(ReplyPiece& into, ReplyPiece piece);
size_t n_bytes_of(const ReplyPiece& piece);  // roughly what printing it takes

// The result depends on the tokens alone, not on how they are cut into pushes.
class ReplyMachine {
 public:
  // The tokenizer must outlive it.
  ReplyMachine(const Tokenizer& tokenizer, ReplyOptions options);

  // Tokens are looked at one by one; after has_stopped() the rest is neither shown nor counted.
  // logprobs: of each token, or none at all.
  ReplyPiece push(std::span<const int32_t> tokens, std::span<const TokenLogprobs> logprobs = {});
  // Decides what was held: call once, when no token follows. is_cut: a limit ended the reply.
  ReplyPiece finish(bool is_cut);

  // A stop string or the limit of calls has ended the reply.
  bool has_stopped() const { return matched_stop().has_value() || parser_.has_call_limit(); }
  const std::optional<std::string>& matched_stop() const { return parser_.matched_stop(); }
  bool was_reasoning() const { return parser_.was_reasoning(); }

  const std::vector<ReplyItem>& items() const { return items_; }
  std::string reasoning() const { return joined(ReplyItem::Kind::kReasoning); }
  std::string content() const { return joined(ReplyItem::Kind::kContent); }
  bool has_calls() const { return n_calls_ > 0; }
  int n_calls() const { return n_calls_; }
  const std::vector<int32_t>& token_ids() const { return token_ids_; }  // kept tokens
  const std::vector<ReplyToken>& tokens() const { return tokens_; }     // those of finished pieces
  int64_t n_reasoning_tokens() const { return n_reasoning_tokens_; }

  // Of call `call_idx`: the name, the id.
  const ReplyItem& call(int call_idx) const;

 private:
  std::string joined(ReplyItem::Kind kind) const;
  void push_token(int32_t token, const TokenLogprobs* logprobs, ReplyPiece& piece);
  void take_events(std::vector<ReplyEvent> events, ReplyPiece& piece);
  void settle_tokens(TokenKind kind, ReplyPiece& piece);

  const Tokenizer& tokenizer_;
  const ReplyOptions options_;
  Detokenizer detokenizer_;
  ReplyParser parser_;
  std::vector<ReplyItem> items_;
  std::vector<size_t> call_items_;  // indexes in items_
  std::vector<int32_t> token_ids_;
  std::vector<ReplyToken> tokens_;
  std::vector<ReplyToken> unsettled_;  // tokens whose part shows later
  int n_calls_ = 0;
  int64_t n_reasoning_tokens_ = 0;
};

}  // namespace roost
