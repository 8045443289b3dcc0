// Counts, times and hashes of a reply, the same in every dialect.
#include "server/reply_codec.h"

#include <algorithm>
#include <cmath>

#include "base/hash.h"

namespace roost {

namespace {

// Milliseconds between two clock readings; a phase that never began took none.
double ms_between(int64_t from_ns, int64_t to_ns) {
  if (from_ns == 0 || to_ns <= from_ns) return 0;
  return std::round(static_cast<double>(to_ns - from_ns) / 1e3) / 1e3;
}

json::Value ms(double value) {
  return json::Value::real(value);
}

json::Value per(double numerator, double denominator, double scale) {
  if (denominator <= 0) return json::Value::real(0);
  return json::Value::real(std::round(numerator / denominator * scale * 1e3) / 1e3);
}

struct Phases {
  double queue = 0, prefill = 0, decode = 0;
};

Phases phases_of(const EngineEvent& f) {
  Phases out;
  const int64_t started = f.started_ns == 0 ? f.finished_ns : f.started_ns;
  const int64_t first = f.first_token_ns == 0 ? f.finished_ns : f.first_token_ns;
  out.queue = ms_between(f.submitted_ns, started);
  out.prefill = ms_between(started, first);
  out.decode = ms_between(first, f.finished_ns);
  return out;
}

}  // namespace

std::string_view detail_of(FinishCause cause) {
  switch (cause) {
    case FinishCause::kEos:
      return "eos";
    case FinishCause::kStopString:
      return "stop_string";
    case FinishCause::kStopToken:
      return "stop_token";
    case FinishCause::kMaxTokens:
      return "max_tokens";
    case FinishCause::kContext:
      return "context";
  }
  return "";
}

json::Value accept_length_of(const DraftFigures& drafts) {
  if (drafts.n_rounds == 0) return json::Value();
  return json::Value::real(std::round(drafts.accept_length() * 1e3) / 1e3);
}

json::Value timings_of(const ReplyMachine& machine, const ReplyEnd& end) {
  const EngineEvent& f = end.finished;
  const Phases phases = phases_of(f);
  const int64_t prompt_n = std::max<int64_t>(f.n_prompt - f.n_cached, 0);
  const int64_t predicted_n = static_cast<int64_t>(machine.token_ids().size());
  json::Value out = json::Value::object();
  out.set("cache_n", json::Value::integer(f.n_cached));
  out.set("prompt_n", json::Value::integer(prompt_n));
  out.set("prompt_ms", ms(phases.prefill));
  out.set("prompt_per_token_ms", per(phases.prefill, static_cast<double>(prompt_n), 1));
  out.set("prompt_per_second", per(static_cast<double>(prompt_n), phases.prefill, 1e3));
  out.set("predicted_n", json::Value::integer(predicted_n));
  out.set("predicted_ms", ms(phases.decode));
  out.set("predicted_per_token_ms", per(phases.decode, static_cast<double>(predicted_n), 1));
  out.set("predicted_per_second", per(static_cast<double>(predicted_n), phases.decode, 1e3));
  if (f.drafts.n_rounds > 0) {
    out.set("draft_n", json::Value::integer(f.drafts.n_drafted));
    out.set("draft_n_accepted", json::Value::integer(f.drafts.n_accepted));
  }
  return out;
}

json::Value extras_of(const ReplyHead& head, const ReplyMachine& machine, const ReplyEnd& end) {
  const EngineEvent& f = end.finished;
  const Phases phases = phases_of(f);
  json::Value accepted = json::Value::array();
  for (size_t i = 0; i < f.drafts.drafted_at.size() && f.drafts.drafted_at[i] > 0; ++i)
    accepted.push(per(static_cast<double>(f.drafts.accepted_at[i]),
                      static_cast<double>(f.drafts.drafted_at[i]), 1));
  const int64_t first = f.first_token_ns == 0 ? f.finished_ns : f.first_token_ns;
  json::Value out = json::Value::object();
  out.set("seed", json::Value::unsigned_integer(head.seed));
  out.set("token_sha256", json::Value::string(token_sha256(machine.token_ids())));
  out.set("prompt_sha256", json::Value::string(token_sha256(head.prompt_tokens)));
  out.set("finish_detail", json::Value::string(std::string(detail_of(end.cause))));
  out.set("max_tokens_applied", json::Value::integer(head.max_tokens_applied));
  out.set("queue_ms", ms(phases.queue));
  out.set("prefill_ms", ms(phases.prefill));
  out.set("decode_ms", ms(phases.decode));
  out.set("ttft_ms", ms(ms_between(head.arrived_ns, first)));
  out.set("gap_max_ms", ms(static_cast<double>(f.gap_max_ns) / 1e6));
  out.set("rounds", json::Value::integer(f.drafts.n_rounds + f.drafts.n_plain_steps));
  out.set("rounds_plain", json::Value::integer(f.drafts.n_plain_steps));
  out.set("accept_length", accept_length_of(f.drafts));
  out.set("accepted_per_position", std::move(accepted));
  out.set("draft_ms", ms(static_cast<double>(f.drafts.draft_ns) / 1e6));
  out.set("cached_from", json::Value::string(f.n_cached > 0 ? "ram" : "none"));
  out.set("replayed_tokens", json::Value::integer(0));
  out.set("loop_guard", json::Value::boolean(false));
  return out;
}

}  // namespace roost
