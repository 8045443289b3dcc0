// Counts, times and hashes of a reply, the same in every dialect.
#include "server/reply_codec.h"

#include <algorithm>
#include <cmath>
#include <utility>

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
    case FinishCause::kGrammarEnd:
      return "grammar_end";
    case FinishCause::kStopString:
      return "stop_string";
    case FinishCause::kStopToken:
      return "stop_token";
    case FinishCause::kMaxTokens:
      return "max_tokens";
    case FinishCause::kContext:
      return "context";
    case FinishCause::kCallLimit:
      return "call_limit";
  }
  return "";
}

std::string_view cached_from(int64_t n_cached, bool is_from_disk) {
  if (n_cached == 0) return "none";
  return is_from_disk ? "disk" : "ram";
}

bool is_length(FinishCause cause) {
  return cause == FinishCause::kMaxTokens || cause == FinishCause::kContext;
}

int64_t ReplyHead::n_prompt_tokens() const {
  int64_t n = 0;
  for (const std::vector<int32_t>& prompt : prompts) n += static_cast<int64_t>(prompt.size());
  return n;
}

json::Value ids_value(const std::vector<int32_t>& ids) {
  json::Value out = json::Value::array();
  for (const int32_t id : ids) out.push(json::Value::integer(id));
  return out;
}
json::Value ids_value(const std::vector<ReplyToken>& tokens) {
  json::Value out = json::Value::array();
  for (const ReplyToken& token : tokens) out.push(json::Value::integer(token.id));
  return out;
}

std::vector<ReplyToken> TokenQueue::take(TokenKind kind) {
  const auto last = std::find_if(tokens_.rbegin(), tokens_.rend(),
                                 [&](const ReplyToken& token) { return token.kind == kind; });
  std::vector<ReplyToken> out(tokens_.begin(), last.base());
  tokens_.erase(tokens_.begin(), last.base());
  return out;
}

std::vector<ReplyToken> TokenQueue::take_all() {
  return std::exchange(tokens_, {});
}

ReplyCounts counts_of(int64_t n_prompt, size_t n_per_prompt,
                      const std::vector<FinishedChoice>& choices) {
  ReplyCounts out;
  out.n_prompt = n_prompt;
  for (size_t i = 0; i < choices.size(); ++i) {
    if (i % n_per_prompt == 0) out.n_cached += choices[i].end.finished.n_cached;
    out.is_from_disk |= choices[i].end.finished.is_from_disk;
    out.n_reply += static_cast<int64_t>(choices[i].machine->token_ids().size());
    out.n_reasoning += choices[i].machine->n_reasoning_tokens();
  }
  return out;
}

ReplyCounts counts_of(const ReplyHead& head, const std::vector<FinishedChoice>& choices) {
  const size_t n_per_prompt = choices.size() / std::max<size_t>(head.prompts.size(), 1);
  return counts_of(head.n_prompt_tokens(), std::max<size_t>(n_per_prompt, 1), choices);
}

json::Value accept_length_of(const DraftFigures& drafts) {
  if (drafts.n_rounds == 0) return json::Value();
  return json::Value::real(std::round(drafts.accept_length() * 1e3) / 1e3);
}

namespace {

DraftFigures drafts_of(const std::vector<FinishedChoice>& choices) {
  DraftFigures out;
  for (const FinishedChoice& choice : choices) out.add(choice.end.finished.drafts);
  return out;
}

json::Value timings_value(const ReplyCounts& counts, const Phases& longest,
                          const DraftFigures& drafts) {
  const auto prompt_n =
      static_cast<double>(std::max<int64_t>(counts.n_prompt - counts.n_cached, 0));
  const auto predicted_n = static_cast<double>(counts.n_reply);
  json::Value out = json::Value::object();
  out.set("cache_n", json::Value::integer(counts.n_cached));
  out.set("prompt_n", json::Value::integer(static_cast<int64_t>(prompt_n)));
  out.set("prompt_ms", ms(longest.prefill));
  out.set("prompt_per_token_ms", per(longest.prefill, prompt_n, 1));
  out.set("prompt_per_second", per(prompt_n, longest.prefill, 1e3));
  out.set("predicted_n", json::Value::integer(counts.n_reply));
  out.set("predicted_ms", ms(longest.decode));
  out.set("predicted_per_token_ms", per(longest.decode, predicted_n, 1));
  out.set("predicted_per_second", per(predicted_n, longest.decode, 1e3));
  if (drafts.n_rounds > 0) {
    out.set("draft_n", json::Value::integer(drafts.n_drafted));
    out.set("draft_n_accepted", json::Value::integer(drafts.n_accepted));
  }
  return out;
}

}  // namespace

json::Value timings_of(const ReplyHead& head, const std::vector<FinishedChoice>& choices) {
  Phases longest;
  for (const FinishedChoice& choice : choices) {
    const Phases phases = phases_of(choice.end.finished);
    longest.prefill = std::max(longest.prefill, phases.prefill);
    longest.decode = std::max(longest.decode, phases.decode);
  }
  return timings_value(counts_of(head, choices), longest, drafts_of(choices));
}

json::Value running_timings_of(int64_t n_prompt, const FinishedChoice& so_far) {
  ReplyCounts counts;
  counts.n_prompt = n_prompt;
  counts.n_cached = so_far.end.finished.n_cached;
  counts.n_reply = static_cast<int64_t>(so_far.machine->token_ids().size());
  return timings_value(counts, phases_of(so_far.end.finished), so_far.end.finished.drafts);
}

json::Value progress_of(const EngineEvent& event, int64_t now_ns) {
  json::Value out = json::Value::object();
  out.set("total", json::Value::integer(event.n_prompt));
  out.set("cache", json::Value::integer(event.n_cached));
  out.set("processed", json::Value::integer(event.n_prompt_done));
  out.set("time_ms", ms(ms_between(event.started_ns, now_ns)));
  return out;
}

namespace {

// What differs from choice to choice: one value, or an array of several.
template <class Of>
json::Value each(size_t n, const Of& of) {
  if (n == 1) return of(size_t{0});
  json::Value out = json::Value::array();
  for (size_t i = 0; i < n; ++i) out.push(of(i));
  return out;
}

}  // namespace

json::Value extras_of(const ReplyHead& head, const std::vector<FinishedChoice>& choices) {
  const ReplyCounts counts = counts_of(head, choices);
  Phases longest;
  double ttft = 0, gap = 0, decode_ms = 0;
  for (const FinishedChoice& choice : choices) {
    const EngineEvent& f = choice.end.finished;
    const Phases phases = phases_of(f);
    longest.queue = std::max(longest.queue, phases.queue);
    longest.prefill = std::max(longest.prefill, phases.prefill);
    longest.decode = std::max(longest.decode, phases.decode);
    decode_ms += phases.decode;
    const int64_t first = f.first_token_ns == 0 ? f.finished_ns : f.first_token_ns;
    const double own = ms_between(head.arrived_ns, first);
    ttft = ttft == 0 ? own : std::min(ttft, own);
    gap = std::max(gap, static_cast<double>(f.gap_max_ns) / 1e6);
  }
  const DraftFigures drafts = drafts_of(choices);
  json::Value accepted = json::Value::array(), drafted = accepted;
  for (size_t i = 0; i < drafts.drafted_at.size() && drafts.drafted_at[i] > 0; ++i) {
    accepted.push(per(static_cast<double>(drafts.accepted_at[i]),
                      static_cast<double>(drafts.drafted_at[i]), 1));
    drafted.push(json::Value::integer(drafts.drafted_at[i]));
  }
  const size_t n = choices.size();
  json::Value out = json::Value::object();
  out.set("seed", each(n, [&](size_t i) { return json::Value::unsigned_integer(head.seeds[i]); }));
  out.set("token_sha256", each(n, [&](size_t i) {
            return json::Value::string(token_sha256(choices[i].machine->token_ids()));
          }));
  out.set("prompt_sha256", each(head.prompts.size(), [&](size_t i) {
            return json::Value::string(token_sha256(head.prompts[i]));
          }));
  out.set("finish_detail", each(n, [&](size_t i) {
            return json::Value::string(std::string(detail_of(choices[i].end.cause)));
          }));
  out.set("max_tokens_applied", each(head.prompts.size() == 1 ? 1 : n, [&](size_t i) {
            return json::Value::integer(head.max_tokens_applied[i]);
          }));
  out.set("queue_ms", ms(longest.queue));
  out.set("prefill_ms", ms(longest.prefill));
  out.set("decode_ms", ms(longest.decode));
  out.set("ttft_ms", ms(ttft));
  out.set("gap_max_ms", ms(gap));
  out.set("rounds", json::Value::integer(drafts.n_rounds + drafts.n_plain_steps));
  out.set("rounds_plain", json::Value::integer(drafts.n_plain_steps));
  out.set("draft_rows", json::Value::integer(drafts.n_rows));
  out.set("accept_length", accept_length_of(drafts));
  out.set("accepted_per_position", std::move(accepted));
  out.set("drafted_per_position", std::move(drafted));
  const double draft_ms = static_cast<double>(drafts.draft_ns) / 1e6;
  out.set("draft_ms", ms(draft_ms));
  out.set("draft_share", per(draft_ms, decode_ms, 1));
  out.set("cached_from",
          json::Value::string(std::string(cached_from(counts.n_cached, counts.is_from_disk))));
  out.set("replayed_tokens", json::Value::integer(head.n_replayed));
  out.set("loop_guard", each(n, [&](size_t i) {
            return json::Value::boolean(choices[i].end.finished.has_found_loop);
          }));
  return out;
}

}  // namespace roost
