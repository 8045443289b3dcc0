// Replies in work and how they end: the list of them, what the metrics, the log and the trace say.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/hash.h"
#include "base/log.h"
#include "server/records.h"
#include "server/service.h"

namespace roost {

namespace {

int64_t ms_between(int64_t from_ns, int64_t to_ns) {
  return from_ns == 0 || to_ns <= from_ns ? 0 : (to_ns - from_ns) / 1'000'000;
}

double seconds_between(int64_t from_ns, int64_t to_ns) {
  return from_ns == 0 || to_ns <= from_ns ? 0 : static_cast<double>(to_ns - from_ns) / 1e9;
}

const char* name_of(ReplyPhase phase) {
  switch (phase) {
    case ReplyPhase::kQueue:
      return "queue";
    case ReplyPhase::kPrefill:
      return "prefill";
    case ReplyPhase::kDecode:
      return "decode";
  }
  return "";
}

}  // namespace

void Service::note_running(uint64_t session_id, Running running) {
  const std::lock_guard lock(mutex_);
  running_[session_id] = std::move(running);
}

void Service::forget(uint64_t session_id) {
  const std::lock_guard lock(mutex_);
  running_.erase(session_id);
}

bool Service::cancel_where(const std::function<bool(const Running&)>& is_it, const Error& why,
                           const std::function<void(const ReplySession*)>& before) {
  const std::lock_guard lock(mutex_);
  bool has_any = false;
  for (const auto& [id, running] : running_) {
    if (!is_it(running)) continue;
    has_any = true;
    running.exchange->post([weak = running.session, why, before] {
      const std::shared_ptr<ReplySession> session = weak.lock();
      if (before) before(session.get());
      if (session) session->cancel(why);
    });
  }
  return has_any;
}

void Service::cancel_running(const Error& why) {
  cancel_where([](const Running&) { return true; }, why);
}

namespace {

int n_calls_in(const std::vector<FinishedChoice>& choices) {
  int n = 0;
  for (const FinishedChoice& choice : choices) n += choice.machine->n_calls();
  return n;
}

bool has_content(const std::vector<FinishedChoice>& choices) {
  return std::any_of(choices.begin(), choices.end(), [](const FinishedChoice& choice) {
    return !choice.machine->content().empty();
  });
}

void measure_choice(Metrics& metrics, const FinishedChoice& choice, int64_t arrived_ns) {
  const EngineEvent& f = choice.end.finished;
  const auto n_reply = static_cast<double>(choice.machine->token_ids().size());
  metrics.observe(Metric::kQueue, seconds_between(f.submitted_ns, f.started_ns));
  metrics.observe(Metric::kEndToEnd, seconds_between(arrived_ns, f.finished_ns));
  metrics.observe(Metric::kRequestPrompt, static_cast<double>(f.n_prompt));
  metrics.observe(Metric::kRequestGeneration, n_reply);
  if (f.first_token_ns == 0) return;
  metrics.observe(Metric::kTtft, seconds_between(arrived_ns, f.first_token_ns));
  metrics.observe(Metric::kPrefill, seconds_between(f.started_ns, f.first_token_ns));
  const double decode = seconds_between(f.first_token_ns, f.finished_ns);
  metrics.observe(Metric::kDecode, decode);
  metrics.observe(Metric::kInference, seconds_between(f.started_ns, f.finished_ns));
  if (n_reply > 1) metrics.observe(Metric::kMeanToken, decode / (n_reply - 1));
}

void count_drafts(Metrics& metrics, const DraftFigures& drafts) {
  const auto add = [&](Metric metric, int64_t n) { metrics.add(metric, static_cast<double>(n)); };
  add(Metric::kDraftRounds, drafts.n_rounds);
  add(Metric::kPlainRounds, drafts.n_plain_steps);
  add(Metric::kRoundTokens, drafts.n_tokens);
  add(Metric::kDraftRows, drafts.n_rows);
  add(Metric::kDraftTokens, drafts.n_drafted);
  add(Metric::kAcceptedTokens, drafts.n_accepted);
  metrics.add(Metric::kDraftSeconds, static_cast<double>(drafts.draft_ns) * 1e-9);
  for (size_t i = 0; i < drafts.drafted_at.size() && drafts.drafted_at[i] > 0; ++i) {
    const std::string position = label("position", fmt::to_string(i));
    metrics.add(Metric::kDraftsAt, static_cast<double>(drafts.drafted_at[i]), position);
    metrics.add(Metric::kAcceptedAt, static_cast<double>(drafts.accepted_at[i]), position);
  }
}

}  // namespace

// A stream that ends with an error has begun well.
int Service::answered_status(const Running& running, const ReplyOutcome& outcome) {
  return outcome.is_error && !running.is_stream ? outcome.status : 200;
}

void Service::note_done(uint64_t session_id, const Running& running, const ReplyOutcome& outcome) {
  const ReplyCounts counts = counts_of(running.n_prompt, running.n_per_prompt, outcome.choices);
  // By its client, who is gone or has named it.
  const bool is_cancelled = outcome.is_gone || outcome.name == code_of(Refusal::RequestCancelled);
  for (const FinishedChoice& choice : outcome.choices) {
    const FinishCause cause = choice.end.cause;
    const char* reason = is_cancelled                  ? "abort"
                         : outcome.is_error            ? "error"
                         : is_length(cause)            ? "length"
                         : choice.machine->has_calls() ? "tool_calls"
                                                       : "stop";
    metrics_.add(Metric::kRequestsFinished, 1,
                 label("finished_reason", reason) + "," + label("dialect", running.dialect));
    if (!outcome.is_error && !outcome.is_gone)
      metrics_.add(Metric::kRequestSuccess, 1,
                   label("finished_reason", is_length(cause) ? "length" : "stop"));
    metrics_.add(Metric::kLoopGuard, choice.end.finished.has_found_loop ? 1 : 0);
    measure_choice(metrics_, choice, running.arrived_ns);
    count_drafts(metrics_, choice.end.finished.drafts);
  }
  warn_of_drafts(running, outcome);
  if (is_cancelled)
    metrics_.add(Metric::kRequestsCancelled, 1, label("phase", name_of(outcome.phase)));
  if (outcome.is_error && !is_cancelled) {
    metrics_.add(Metric::kRequestsRefused, 1, label("refusal", outcome.name));
    metrics_.add(Metric::kNonfinite, outcome.name == "engine.nonfinite" ? 1 : 0);
  }
  const bool is_empty = !outcome.is_error && !outcome.is_gone && outcome.name == "eos" &&
                        !has_content(outcome.choices) && n_calls_in(outcome.choices) == 0;
  metrics_.add(Metric::kEmptyReplies, is_empty ? 1 : 0);
  metrics_.add(Metric::kPromptTokens, static_cast<double>(counts.n_prompt));
  if (running.uses_cache)
    metrics_.add(Metric::kPrefixQueried, static_cast<double>(counts.n_prompt));
  metrics_.add(Metric::kPrefixHit, static_cast<double>(counts.n_cached),
               label("tier", counts.is_from_disk ? "disk" : "ram"));
  metrics_.add(Metric::kGenerationTokens, static_cast<double>(counts.n_reply));
  metrics_.add(Metric::kEmittedTokens, static_cast<double>(counts.n_reply));

  if (!outcome.choices.empty()) {
    const EngineEvent& end = outcome.choices.front().end.finished;
    reply_ms_ = (reply_ms_ * 7 + ms_between(end.submitted_ns, end.finished_ns)) / 8;
  }
  log_reply(running, outcome);
  record_reply(session_id, running, outcome);
  limiter_.end(running.key_label, counts.n_prompt + counts.n_reply);
  forget(session_id);
}

void Service::record_reply(uint64_t session_id, const Running& running,
                           const ReplyOutcome& outcome) const {
  if (options_.content_log)
    options_.content_log->write(reply_record(running.request_id, outcome.name, outcome.choices));
  if (!options_.trace) return;
  std::vector<TraceSpan> spans = {{"parse", running.arrived_ns, running.compiling_ns},
                                  {"grammar", running.compiling_ns, running.compiled_ns}};
  if (!outcome.choices.empty()) {
    const EngineEvent& end = outcome.choices.front().end.finished;
    spans.push_back({"queue", end.submitted_ns, end.started_ns});
    int64_t from = end.started_ns;
    for (const int64_t to : outcome.chunk_ends_ns)
      spans.push_back({"prefill", std::exchange(from, to), to});
    spans.push_back({"decode", end.first_token_ns, end.finished_ns});
    spans.push_back({"detokenize", outcome.text_from_ns, outcome.text_to_ns});
  }
  const std::string lines = trace_lines(session_id, running.request_id, running.trace_id, spans);
  if (!lines.empty()) options_.trace->write(lines);
}

// One line for each request that was admitted; those that were refused have theirs.
void Service::log_reply(const Running& running, const ReplyOutcome& outcome) const {
  const ReplyCounts counts = counts_of(running.n_prompt, running.n_per_prompt, outcome.choices);
  const EngineEvent end =
      outcome.choices.empty() ? EngineEvent() : outcome.choices.front().end.finished;
  const std::string digest =
      outcome.choices.empty() ? "" : token_sha256(outcome.choices.front().machine->token_ids());
  log(LogLevel::kInfo, "request",
      {{"request_id", running.request_id},
       {"trace_id", running.trace_id},
       {"key_label", running.key_label},
       {"dialect", running.dialect},
       {"stream", running.is_stream ? "1" : "0"},
       {"status", fmt::to_string(answered_status(running, outcome))},
       {"refusal", outcome.is_error ? outcome.name : ""},
       {"finish_detail", outcome.name},
       {"prompt_tokens", fmt::to_string(counts.n_prompt)},
       {"cached_tokens", fmt::to_string(counts.n_cached)},
       {"cached_from", std::string(cached_from(counts.n_cached, counts.is_from_disk))},
       {"completion_tokens", fmt::to_string(counts.n_reply)},
       {"reasoning_tokens", fmt::to_string(counts.n_reasoning)},
       {"n_calls", fmt::to_string(n_calls_in(outcome.choices))},
       {"n_images", "0"},  // a request with a picture that counts is refused
       {"queue_ms", fmt::to_string(ms_between(end.submitted_ns, end.started_ns))},
       {"prefill_ms", fmt::to_string(ms_between(end.started_ns, end.first_token_ns))},
       {"decode_ms", fmt::to_string(ms_between(end.first_token_ns, end.finished_ns))},
       {"ttft_ms", fmt::to_string(ms_between(running.arrived_ns, end.first_token_ns))},
       {"gap_max_ms", fmt::to_string(end.gap_max_ns / 1'000'000)},
       {"rounds", fmt::to_string(end.drafts.n_rounds + end.drafts.n_plain_steps)},
       {"drafted", fmt::to_string(end.drafts.n_drafted)},
       {"accepted", fmt::to_string(end.drafts.n_accepted)},
       {"seed", fmt::to_string(running.seed)},
       {"token_sha256", digest.substr(0, 12)},
       {"ignored", running.ignored}});
}

// Once in the life of the process: a drafter that is hardly ever right is of another model, or
// damaged.
void Service::warn_of_drafts(const Running& running, const ReplyOutcome& outcome) {
  constexpr int64_t kRounds = 200;
  constexpr double kTokensPerRound = 1.1;
  const std::shared_ptr<const ServedModel> served = model();
  if (!running.may_draft || !served || !served->drafter) return;
  int64_t n_rounds = 0, n_tokens = 0;
  {
    const std::lock_guard lock(mutex_);
    for (const FinishedChoice& choice : outcome.choices) drafting_.add(choice.end.finished.drafts);
    n_rounds = drafting_.n_rounds + drafting_.n_plain_steps;
    n_tokens = drafting_.n_tokens;
    const bool holds = static_cast<double>(n_tokens) >= kTokensPerRound * double(n_rounds);
    if (n_rounds < kRounds || holds || std::exchange(has_warned_of_drafts_, true)) return;
  }
  log(LogLevel::kWarning, "drafts_do_not_hold",
      {{"rounds", fmt::to_string(n_rounds)}, {"tokens", fmt::to_string(n_tokens)}});
}

// Once for each name in the life of the process; no more of them than a log should hold.
void Service::warn_of_ignored(const std::vector<std::string>& pointers) {
  constexpr size_t kNamesMax = 256;
  for (const std::string& pointer : pointers) {
    const std::string name = pointer.substr(pointer.rfind('/') + 1, limits::kLabelBytesMax);
    {
      const std::lock_guard lock(mutex_);
      if (warned_of_.size() >= kNamesMax || !warned_of_.insert(name).second) continue;
    }
    log(LogLevel::kWarning, "ignored_field", {{"name", name}});
  }
}

}  // namespace roost
