// The reply machine: kept tokens in, pieces of reasoning and content out, and why it ended.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "server/stop_matcher.h"
#include "text/detokenizer.h"
#include "text/reasoning_parser.h"
#include "text/tokenizer.h"

namespace roost {

struct ReplyOptions {
  bool starts_in_reasoning = false;
  std::vector<std::string> stops;
  bool keeps_stop_text = false;
};

// What became certain with some tokens. Concatenated pieces are the fields of the whole reply.
struct ReplyPiece {
  std::string reasoning, content;
  std::vector<int32_t> token_ids;  // of the text here and of what was held before it

  bool has_text() const { return !reasoning.empty() || !content.empty(); }
};

// One reply. The result depends on the tokens alone, not on how they are cut into pushes.
class ReplyMachine {
 public:
  // The tokenizer must outlive it.
  ReplyMachine(const Tokenizer& tokenizer, ReplyOptions options);

  // Tokens are looked at one by one; after has_stopped() the rest is neither shown nor counted.
  ReplyPiece push(std::span<const int32_t> tokens);
  // Decides what was held: call once, when no token follows.
  ReplyPiece finish();

  bool has_stopped() const { return stops_.matched().has_value(); }
  const std::optional<std::string>& matched_stop() const { return stops_.matched(); }
  bool was_reasoning() const { return parser_.was_reasoning(); }

  const std::string& reasoning() const { return reasoning_; }
  const std::string& content() const { return content_; }
  const std::vector<int32_t>& token_ids() const { return token_ids_; }  // kept tokens
  int64_t n_reasoning_tokens() const { return n_reasoning_tokens_; }

 private:
  void push_token(int32_t token, ReplyPiece& piece);
  void take_delta(ReplyDelta delta, ReplyPiece& piece);
  void close_piece(ReplyPiece& piece, bool is_last);

  const Tokenizer& tokenizer_;
  Detokenizer detokenizer_;
  ReasoningParser parser_;
  StopMatcher stops_;
  std::string reasoning_, content_;
  std::vector<int32_t> token_ids_;
  size_t n_ids_sent_ = 0;
  int64_t n_reasoning_tokens_ = 0;
};

}  // namespace roost
