// What Chat and Completions read and print alike.
#pragma once

#include <string>
#include <vector>

#include "base/json.h"
#include "server/reply_codec.h"
#include "server/request_fields.h"

namespace roost {

// `stream` and `stream_options`.
struct StreamFields {
  bool is_stream = false, include_usage = false, has_running_usage = false;
};
Result<StreamFields> read_stream_fields(Fields& body);

// "stop", "length", "tool_calls".
std::string openai_finish_reason(const FinishedChoice& choice, bool is_call_named = false);
// The stop string, the stop token, or null.
json::Value openai_stop_reason(const ReplyEnd& end);
json::Value openai_usage(const ReplyHead& head, const std::vector<FinishedChoice>& choices);
// The same from counts, for usage so far.
json::Value openai_usage(const ReplyCounts& counts);

// What every event and whole reply begins with: id, object, created, model, system_fingerprint.
json::Value openai_envelope(const ReplyHead& head, const char* object);
inline constexpr size_t kEnvelopeMembers = 5;
// timings and roost.
void set_extras(json::Value& out, const ReplyHead& head,
                const std::vector<FinishedChoice>& choices);
// The end of a stream whose objects have this name: the finish event of the choice that ended last,
// usage if it was asked for, [DONE]. The extras of all choices ride on the last object.
std::string openai_last_events(const ReplyHead& head, const char* object, json::Value finish_event,
                               bool include_usage, const std::vector<FinishedChoice>& choices);

// {"token","logprob","bytes","top_logprobs":[…]}
json::Value logprob_entry(const Tokenizer& tokenizer, const ReplyToken& token);
double printed_logprob(double logprob);  // -inf as -9999
// The text of a token; U+FFFD where it is half a character.
std::string token_text(const Tokenizer& tokenizer, int32_t id);

}  // namespace roost
