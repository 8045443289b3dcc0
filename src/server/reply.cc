// Tokens to text, text to the parts of a reply, and which token belongs to which part.
#include "server/reply.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/check.h"

namespace roost {

namespace {

TokenKind kind_of(ReplyParser::Phase phase) {
  switch (phase) {
    case ReplyParser::Phase::kReasoning:
      return TokenKind::kReasoning;
    case ReplyParser::Phase::kCall:
      return TokenKind::kCall;
    case ReplyParser::Phase::kContent:
      break;
  }
  return TokenKind::kContent;
}

// The part that text turned out to be which was held until now.
TokenKind kind_of_events(const std::vector<ReplyEvent>& events, TokenKind otherwise) {
  if (events.empty()) return otherwise;
  switch (events.front().kind) {
    case ReplyEvent::Kind::kReasoning:
      return TokenKind::kReasoning;
    case ReplyEvent::Kind::kContent:
      return TokenKind::kContent;
    default:
      return TokenKind::kCall;
  }
}

}  // namespace

void append_piece(ReplyPiece& into, ReplyPiece piece) {
  for (ReplyEvent& event : piece.events) {
    ReplyEvent* last = into.events.empty() ? nullptr : &into.events.back();
    const bool is_text = event.kind == ReplyEvent::Kind::kReasoning ||
                         event.kind == ReplyEvent::Kind::kContent ||
                         event.kind == ReplyEvent::Kind::kCallArguments;
    if (is_text && last != nullptr && last->kind == event.kind && last->call_idx == event.call_idx)
      last->text += event.text;
    else
      into.events.push_back(std::move(event));
  }
  into.tokens.insert(into.tokens.end(), std::make_move_iterator(piece.tokens.begin()),
                     std::make_move_iterator(piece.tokens.end()));
}

size_t n_bytes_of(const ReplyPiece& piece) {
  constexpr size_t kLogprobBytes = 64;  // one entry as the dialects print it
  size_t n = 0;
  for (const ReplyEvent& event : piece.events) n += event.text.size();
  for (const ReplyToken& token : piece.tokens)
    if (token.logprobs) n += kLogprobBytes * (1 + token.logprobs->top.size());
  return n;
}

ReplyMachine::ReplyMachine(const Tokenizer& tokenizer, ReplyOptions options)
    : tokenizer_(tokenizer), options_(std::move(options)), parser_(options_.parser) {}

std::string ReplyMachine::joined(ReplyItem::Kind kind) const {
  std::string out;
  for (const ReplyItem& item : items_)
    if (item.kind == kind) out += item.text;
  return out;
}

const ReplyItem& ReplyMachine::call(int call_idx) const {
  return items_[call_items_[static_cast<size_t>(call_idx)]];
}

void ReplyMachine::take_events(std::vector<ReplyEvent> events, ReplyPiece& piece) {
  for (ReplyEvent& event : events) {
    ReplyItem::Kind kind = ReplyItem::Kind::kCall;
    if (event.kind == ReplyEvent::Kind::kReasoning) kind = ReplyItem::Kind::kReasoning;
    if (event.kind == ReplyEvent::Kind::kContent) kind = ReplyItem::Kind::kContent;
    if (event.kind == ReplyEvent::Kind::kCallStart) {
      ReplyItem item;
      item.kind = ReplyItem::Kind::kCall;
      item.name = event.text;
      item.is_free_text = event.is_free_text;
      if (options_.new_call_id) item.call_id = options_.new_call_id();
      call_items_.push_back(items_.size());
      items_.push_back(std::move(item));
      ++n_calls_;
    } else if (event.kind == ReplyEvent::Kind::kCallArguments) {
      ROOST_CHECK(!call_items_.empty());
      items_[call_items_.back()].text += event.text;
    } else if (kind != ReplyItem::Kind::kCall) {
      if (items_.empty() || items_.back().kind != kind) items_.push_back({kind, "", "", "", false});
      items_.back().text += event.text;
    }
    const bool is_text =
        event.kind != ReplyEvent::Kind::kCallStart && event.kind != ReplyEvent::Kind::kCallEnd;
    if (is_text)
      add_text(piece.events, std::move(event));
    else
      piece.events.push_back(std::move(event));
  }
}

void ReplyMachine::settle_tokens(TokenKind kind, ReplyPiece& piece) {
  for (ReplyToken& token : unsettled_) {
    token.kind = kind;
    n_reasoning_tokens_ += kind == TokenKind::kReasoning;
    tokens_.push_back(token);
    piece.tokens.push_back(std::move(token));
  }
  unsettled_.clear();
}

void ReplyMachine::push_token(int32_t token, const TokenLogprobs* logprobs, ReplyPiece& piece) {
  const ReplyParser::Phase before = parser_.phase();
  const bool was_undecided = parser_.is_undecided();
  token_ids_.push_back(token);
  if (options_.min_tokens > 0)
    parser_.pause_stops(static_cast<int64_t>(token_ids_.size()) < options_.min_tokens);
  std::vector<ReplyEvent> events;
  // Special tokens are hidden from clients, and a half character before one stays held.
  if (options_.shows_special_tokens || !tokenizer_.is_special(token))
    parser_.push(detokenizer_.push(tokenizer_.bytes_of(token)), events);

  ReplyToken one;
  one.id = token;
  if (logprobs != nullptr) one.logprobs = *logprobs;
  if (was_undecided && !parser_.is_undecided()) {
    const TokenKind decided = kind_of_events(events, kind_of(before));
    settle_tokens(decided, piece);
    // What decided it belongs to it: a closing tag, or the first word behind a thought.
    unsettled_.push_back(std::move(one));
    settle_tokens(kind_of(parser_.phase()) == decided ? decided : kind_of(parser_.phase()), piece);
  } else {
    unsettled_.push_back(std::move(one));
    if (!parser_.is_undecided()) {
      const ReplyParser::Phase after = parser_.phase();
      const auto is_either = [&](ReplyParser::Phase phase) {
        return before == phase || after == phase;
      };
      const TokenKind kind = is_either(ReplyParser::Phase::kReasoning) ? TokenKind::kReasoning
                             : is_either(ReplyParser::Phase::kCall)    ? TokenKind::kCall
                                                                       : TokenKind::kContent;
      settle_tokens(kind, piece);
    }
  }
  take_events(std::move(events), piece);
}

ReplyPiece ReplyMachine::push(std::span<const int32_t> tokens,
                              std::span<const TokenLogprobs> logprobs) {
  ReplyPiece piece;
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (has_stopped()) break;
    push_token(tokens[i], i < logprobs.size() ? &logprobs[i] : nullptr, piece);
  }
  return piece;
}

ReplyPiece ReplyMachine::finish(bool is_cut) {
  ReplyPiece piece;
  // An incomplete character at the end of the reply is no text: the detokenizer is not flushed.
  const TokenKind otherwise = kind_of(parser_.phase());
  std::vector<ReplyEvent> events;
  parser_.finish(is_cut, events);
  settle_tokens(kind_of_events(events, otherwise), piece);
  take_events(std::move(events), piece);
  return piece;
}

}  // namespace roost
