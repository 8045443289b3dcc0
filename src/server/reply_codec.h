// What a dialect prints of one reply: codecs turn the same pieces into events or one body.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "engine/engine.h"
#include "server/reply.h"
#include "server/served_model.h"

namespace roost {

// Why a reply ended, before a dialect names it.
enum class FinishCause { kEos, kStopString, kStopToken, kMaxTokens, kContext };

// Facts known when a request is admitted.
struct ReplyHead {
  std::string id;        // "chatcmpl-…"
  int64_t created = 0;   // Unix seconds
  std::string model_id;  // the served id
  std::string fingerprint;
  uint64_t seed = 0;
  int64_t max_tokens_applied = 0;
  std::vector<int32_t> prompt_tokens;
  int64_t arrived_ns = 0;
};

// Facts known at its end.
struct ReplyEnd {
  FinishCause cause = FinishCause::kEos;
  std::string stop_string;  // kStopString
  int32_t stop_token = -1;  // kStopToken
  EngineEvent finished;     // counts and times
};

class ReplyCodec {
 public:
  virtual ~ReplyCodec() = default;

  virtual std::string first_event() = 0;  // sent before any waiting
  virtual std::string idle_event() = 0;   // sent when nothing else was for a while
  virtual std::string piece_event(const ReplyPiece& piece) = 0;  // empty: nothing to say
  // All that follows the last piece. `rest` holds what the end released.
  virtual std::string last_events(const ReplyPiece& rest, const ReplyMachine& machine,
                                  const ReplyEnd& end) = 0;
  virtual std::string error_event(const Error& error) = 0;  // after the first byte
  virtual std::string whole(const ReplyMachine& machine, const ReplyEnd& end) = 0;
};

// "eos", "stop_string", "stop_token", "max_tokens", "context".
std::string_view detail_of(FinishCause cause);

// The objects that all dialects carry (docs/SERVER.md, extras in the reply).
// Tokens per round or plain step behind the first token; null where nothing was drafted.
json::Value accept_length_of(const DraftFigures& drafts);
json::Value timings_of(const ReplyMachine& machine, const ReplyEnd& end);
json::Value extras_of(const ReplyHead& head, const ReplyMachine& machine, const ReplyEnd& end);

}  // namespace roost
