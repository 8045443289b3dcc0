// What a dialect prints of a reply: codecs turn the same pieces into events or one body.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "engine/engine.h"
#include "server/reply.h"
#include "server/served_model.h"

namespace roost {

// Why a reply ended, before a dialect names it.
enum class FinishCause {
  kEos,
  kGrammarEnd,  // the form that binds the reply was complete
  kStopString,
  kStopToken,
  kMaxTokens,
  kContext,
  kCallLimit
};

// Facts known when a request is admitted.
struct ReplyHead {
  std::string id;        // "chatcmpl-…"
  int64_t created = 0;   // Unix seconds
  std::string model_id;  // the served id
  std::string fingerprint;
  std::string request_id;
  std::vector<std::vector<int32_t>> prompts;  // token ids; each has as many choices as the others
  std::vector<uint64_t> seeds;                // of each choice
  std::vector<int64_t> max_tokens_applied;    // of each choice
  int64_t n_replayed = 0;                     // prompt tokens taken from replies as they were drawn
  bool is_call_named = false;                 // the request demands a call of one tool
  int64_t arrived_ns = 0;
  const Tokenizer* tokenizer = nullptr;

  int64_t n_prompt_tokens() const;
};

// Facts known at the end of a choice.
struct ReplyEnd {
  FinishCause cause = FinishCause::kEos;
  std::string stop_string;  // kStopString
  int32_t stop_token = -1;  // kStopToken
  EngineEvent finished;     // counts and times
};

struct FinishedChoice {
  const ReplyMachine* machine = nullptr;
  ReplyEnd end;
};

class ReplyCodec {
 public:
  virtual ~ReplyCodec() = default;

  // The first events tell how much of the prompt was cached: they wait until it is run.
  virtual bool waits_for_start() const { return false; }
  virtual std::string first_events(int64_t n_cached) = 0;
  // The logprobs of a choice's prompt, from its second token on, where the engine was asked for
  // them.
  virtual std::string prompt_events(size_t, std::vector<TokenLogprobs>) { return ""; }
  // An event that says nothing but that the reply is in work, and how far its prompt is: a member
  // prompt_progress of that value, if it is not null.
  virtual std::string alive_event(size_t choice, json::Value progress) = 0;
  virtual std::string piece_events(size_t choice, const ReplyPiece& piece,
                                   const ReplyMachine& machine) = 0;  // empty: nothing to say
  // The end of one choice, behind its last piece. is_last: no other one is in work.
  virtual std::string choice_end(size_t choice, const FinishedChoice& finished, bool is_last) = 0;
  // The end of the stream, behind all choices.
  virtual std::string last_events(const std::vector<FinishedChoice>& choices) = 0;
  virtual std::string error_event(const Error& error) = 0;  // after the first byte
  virtual std::string whole(const std::vector<FinishedChoice>& choices) = 0;
  // The object of a reply that is cancelled, as far as it is; null: the dialect has none.
  virtual json::Value cancelled(const ReplyMachine&) { return {}; }

  // From here on every event of a piece has this member `timings`.
  void set_running_timings(json::Value timings) { running_timings_ = std::move(timings); }

 protected:
  void add_running_timings(json::Value& event) const {
    if (!running_timings_.is_null()) event.set("timings", running_timings_);
  }

 private:
  json::Value running_timings_;
};

// "none", "ram", "disk": where the known part of a prompt was.
std::string_view cached_from(int64_t n_cached, bool is_from_disk);
// "eos", "grammar_end", "stop_string", "stop_token", "max_tokens", "context", "call_limit".
std::string_view detail_of(FinishCause cause);
bool is_length(FinishCause cause);

// Sums over the choices. Prompt tokens are counted once for all choices of a prompt.
struct ReplyCounts {
  int64_t n_prompt = 0, n_cached = 0, n_reply = 0, n_reasoning = 0;
  bool is_from_disk = false;  // what is cached was read from files
};
// n_prompt: of all prompts; choices: as many of each prompt, in the order of the prompts.
ReplyCounts counts_of(int64_t n_prompt, size_t n_per_prompt,
                      const std::vector<FinishedChoice>& choices);
ReplyCounts counts_of(const ReplyHead& head, const std::vector<FinishedChoice>& choices);

// The objects that all dialects carry (docs/SERVER.md, extras in the reply).
// Tokens per round or plain step behind the first token; null where nothing was drafted.
json::Value accept_length_of(const DraftFigures& drafts);
json::Value timings_of(const ReplyHead& head, const std::vector<FinishedChoice>& choices);
// timings of one choice as far as it is; `finished_ns` is the time of its newest token.
json::Value running_timings_of(int64_t n_prompt, const FinishedChoice& so_far);
// {"total","cache","processed","time_ms"} of the prompt of one choice, at a kProgress.
json::Value progress_of(const EngineEvent& event, int64_t now_ns);
json::Value extras_of(const ReplyHead& head, const std::vector<FinishedChoice>& choices);

json::Value ids_value(const std::vector<int32_t>& ids);
json::Value ids_value(const std::vector<ReplyToken>& tokens);

// Tokens of one choice that no event has told yet. An event of a kind takes those up to the last of
// its kind, so that the ids stay in order; the end takes the rest.
class TokenQueue {
 public:
  void add(std::span<const ReplyToken> tokens) {
    tokens_.insert(tokens_.end(), tokens.begin(), tokens.end());
  }
  std::vector<ReplyToken> take(TokenKind kind);
  std::vector<ReplyToken> take_all();

 private:
  std::vector<ReplyToken> tokens_;
};

}  // namespace roost
