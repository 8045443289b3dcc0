// The one place where engine events become bytes for a client.
#include "server/reply_session.h"

#include <algorithm>
#include <utility>

#include "server/sse.h"

namespace roost {

namespace {

constexpr int64_t kProgressNs = 250'000'000;  // four a second at most

}  // namespace

ReplySession::ReplySession(ReplySetup setup) : setup_(std::move(setup)) {
  choices_.reserve(setup_.choices.size());
  for (ChoiceSetup& choice : setup_.choices) choices_.emplace_back(setup_.model->tokenizer, choice);
}

Result<void> ReplySession::submit(size_t idx) {
  // The engine's thread only posts: the exchange's executor does all the work on text.
  EventSink sink = [self = shared_from_this(), idx](const EngineEvent& event) {
    // A network thread that cannot keep up must not let events pile up without bound.
    if (event.kind == EngineEvent::Kind::kTokens && self->n_posted_ >= limits::kPostedEventsMax) {
      self->is_overrun_ = true;
      return;
    }
    ++self->n_posted_;
    self->setup_.exchange->post([self, idx, event] {
      --self->n_posted_;
      self->on_event(idx, event);
    });
  };
  ROOST_TRY(choices_[idx].engine_id,
            setup_.model->engine->submit(std::move(setup_.choices[idx].work), std::move(sink)));
  return {};
}

Result<void> ReplySession::start() {
  for (size_t i = 0; i < choices_.size(); ++i) {
    const Result<void> submitted = submit(i);
    if (submitted) continue;
    is_refused_ = true;
    cancel_engine();
    return submitted;
  }
  setup_.exchange->on_gone([weak = weak_from_this()] {
    const std::shared_ptr<ReplySession> self = weak.lock();
    if (!self) return;
    self->is_client_gone_ = true;
    self->cancel_engine();
  });
  if (!setup_.is_stream) return {};
  setup_.exchange->begin_stream(setup_.headers, [weak = weak_from_this()] {
    const std::shared_ptr<ReplySession> self = weak.lock();
    if (!self) return std::string();
    return sse::comment("keep-alive") + self->setup_.codec->alive_event(0, {});
  });
  if (!setup_.codec->waits_for_start()) begin_events(0);
  return {};
}

void ReplySession::cancel_engine() {
  for (const Choice& choice : choices_)
    if (choice.engine_id && !choice.end) setup_.model->engine->cancel(*choice.engine_id);
}

void ReplySession::cancel(Error why) {
  if (!failed_by_) failed_by_ = std::move(why);
  cancel_engine();
}

json::Value ReplySession::cancelled_object() const {
  if (n_ended_ == choices_.size()) return {};
  return setup_.codec->cancelled(choices_.front().machine);
}

void ReplySession::begin_events(int64_t n_cached) {
  if (!setup_.is_stream || std::exchange(has_begun_, true)) return;
  setup_.exchange->write(setup_.codec->first_events(n_cached));
}

void ReplySession::on_event(size_t idx, const EngineEvent& event) {
  if (is_refused_) return;
  if (is_overrun_ && !failed_by_ && !is_client_gone_)
    cancel(Error{Refusal::QueueFull, std::to_string(limits::kPostedEventsMax) +
                                         " events of this reply wait to be sent"});
  begin_events(event.n_cached);
  if (event.kind == EngineEvent::Kind::kStarted && phase_ == ReplyPhase::kQueue)
    phase_ = ReplyPhase::kPrefill;
  if (event.kind == EngineEvent::Kind::kTokens) phase_ = ReplyPhase::kDecode;
  Choice& choice = choices_[idx];
  if (choice.tells_prompt) tell_prompt(choice, idx, event);
  if (event.kind == EngineEvent::Kind::kProgress) tell_progress(idx, event);
  if (event.kind == EngineEvent::Kind::kTokens) on_tokens(choice, idx, event);
  if (event.kind == EngineEvent::Kind::kFinished) on_finished(choice, idx, event);
}

// A prompt of one token is told when it starts: nothing is said of its first token.
void ReplySession::tell_prompt(Choice& choice, size_t idx, const EngineEvent& event) {
  if (event.kind == EngineEvent::Kind::kPrompt)
    choice.of_prompt.insert(choice.of_prompt.end(), event.logprobs.begin(), event.logprobs.end());
  if (static_cast<int64_t>(choice.of_prompt.size()) < choice.n_prompt - 1) return;
  choice.tells_prompt = false;
  std::string bytes = setup_.codec->prompt_events(idx, std::move(choice.of_prompt));
  if (setup_.is_stream) setup_.exchange->write(std::move(bytes));
}

void ReplySession::tell_progress(size_t idx, const EngineEvent& event) {
  if (idx % setup_.n_per_prompt != 0) return;
  Choice& choice = choices_[idx];
  n_prompt_done_ += event.n_prompt_done - choice.n_prompt_done;
  choice.n_prompt_done = event.n_prompt_done;
  const int64_t now = setup_.clock->now_ns();
  chunk_ends_ns_.push_back(now);
  if (!setup_.tells_progress || (last_progress_ns_ && now < *last_progress_ns_ + kProgressNs))
    return;
  last_progress_ns_ = now;
  setup_.exchange->write(setup_.codec->alive_event(idx, progress_of(event, now)));
}

void ReplySession::on_tokens(Choice& choice, size_t idx, const EngineEvent& event) {
  n_kept_ += static_cast<int64_t>(event.tokens.size());
  if (setup_.clock != nullptr && first_token_ns_ == 0) first_token_ns_ = setup_.clock->now_ns();
  if (setup_.on_round) {
    const int64_t now = setup_.clock->now_ns();
    if (choice.last_round_ns != 0)
      setup_.on_round(static_cast<double>(now - choice.last_round_ns) / 1e9, event.tokens.size());
    choice.last_round_ns = now;
  }
  if (choice.machine.has_stopped() || is_client_gone_ || failed_by_) return;
  ReplyPiece piece = choice.machine.push(event.tokens, event.logprobs);
  if (setup_.has_running_timings) {
    ReplyEnd so_far;
    so_far.finished = event;
    so_far.finished.finished_ns = setup_.clock->now_ns();
    setup_.codec->set_running_timings(
        running_timings_of(choice.n_prompt, {&choice.machine, so_far}));
  }
  if (setup_.is_stream) send_piece(choice, idx, std::move(piece));
  // A bound reply that has its one call can only end: the engine does so by itself, and keeps the
  // state behind it for the next turn.
  const bool ends_itself = choice.is_bound && !choice.machine.matched_stop();
  if (choice.machine.has_stopped() && !ends_itself) setup_.model->engine->cancel(*choice.engine_id);
}

// To a client that reads slowly the deltas of what it has not read go as one: their sum is what
// counts. What is held is bounded as what is unsent is: beyond, it is written, and the exchange
// ends the connection.
void ReplySession::send_piece(Choice& choice, size_t idx, ReplyPiece piece) {
  const bool is_slow = setup_.exchange->n_unsent() > limits::kMergeBytes;
  if (is_slow && choice.n_held_bytes < limits::kStreamBufferBytesMax) {
    choice.n_held_bytes += n_bytes_of(piece);
    append_piece(choice.held, std::move(piece));
    if (!std::exchange(awaits_room_, true)) {
      setup_.exchange->on_sent([weak = weak_from_this()] {
        if (const std::shared_ptr<ReplySession> self = weak.lock()) self->send_held();
      });
    }
    return;
  }
  if (choice.has_held()) {
    append_piece(choice.held, std::move(piece));
    piece = std::exchange(choice.held, ReplyPiece());
    choice.n_held_bytes = 0;
  }
  setup_.exchange->write(setup_.codec->piece_events(idx, piece, choice.machine));
}

void ReplySession::send_held() {
  awaits_room_ = false;
  for (size_t i = 0; i < choices_.size(); ++i)
    if (choices_[i].has_held()) send_piece(choices_[i], i, ReplyPiece());
}

ReplyEnd ReplySession::end_of(const Choice& choice, const EngineEvent& event) const {
  ReplyEnd end;
  end.finished = event;
  if (choice.machine.matched_stop()) {
    end.cause = FinishCause::kStopString;
    end.stop_string = *choice.machine.matched_stop();
  } else if (choice.machine.has_stopped()) {
    end.cause = FinishCause::kCallLimit;
  } else if (event.finish == Finish::kEndToken) {
    const std::vector<int32_t>& own = setup_.stop_tokens;
    const bool is_own = std::find(own.begin(), own.end(), event.end_token) != own.end();
    end.cause = is_own            ? FinishCause::kStopToken
                : choice.is_bound ? FinishCause::kGrammarEnd
                                  : FinishCause::kEos;
    if (is_own) end.stop_token = event.end_token;
  } else {
    const bool is_context = event.finish == Finish::kContext || choice.is_max_tokens_clamped;
    end.cause = is_context ? FinishCause::kContext : FinishCause::kMaxTokens;
  }
  return end;
}

void ReplySession::on_finished(Choice& choice, size_t idx, const EngineEvent& event) {
  const bool had_stopped = choice.machine.has_stopped();
  choice.end = end_of(choice, event);
  ++n_ended_;
  const bool is_failure =
      !had_stopped && (event.finish == Finish::kError || event.finish == Finish::kCancelled);
  if (is_failure && !failed_by_ && !is_client_gone_) {
    // The other choices of the request end with this one.
    cancel(event.error.value_or(Error{
        event.finish == Finish::kError ? Refusal::EngineNonfinite : Refusal::ServerDraining, ""}));
  }
  std::string bytes;
  if (!is_failure && !failed_by_ && !is_client_gone_) bytes = end_choice(choice, idx);
  if (n_ended_ < choices_.size()) {
    if (!bytes.empty()) setup_.exchange->write(std::move(bytes));
    return;
  }
  if (is_client_gone_)
    done("gone", nullptr);
  else if (failed_by_)
    fail(*failed_by_);
  else
    succeed(std::move(bytes));
}

// What was held is decided, and the choice says why it ended: the events that say so, for a stream.
std::string ReplySession::end_choice(Choice& choice, size_t idx) {
  const bool is_cut = is_length(choice.end->cause);
  ReplyPiece rest = choice.machine.finish(is_cut);
  if (choice.machine.matched_stop() && choice.end->cause != FinishCause::kStopString) {
    choice.end->cause = FinishCause::kStopString;  // it showed in what was held
    choice.end->stop_string = *choice.machine.matched_stop();
  }
  if (setup_.on_choice) setup_.on_choice({&choice.machine, *choice.end});
  if (!setup_.is_stream) return {};
  const bool is_last = n_ended_ == choices_.size();
  append_piece(choice.held, std::move(rest));
  std::string bytes = setup_.codec->piece_events(idx, choice.held, choice.machine);
  choice.held = ReplyPiece();
  choice.n_held_bytes = 0;
  bytes += setup_.codec->choice_end(idx, {&choice.machine, *choice.end}, is_last);
  return bytes;
}

void ReplySession::fail(const Error& error) {
  done(std::string(code_of(error.refusal)), &error);
  if (setup_.is_stream) {
    setup_.exchange->write(setup_.codec->error_event(error));
    setup_.exchange->end_stream(false);
  } else {
    setup_.exchange->respond(setup_.refuse(error));
  }
}

void ReplySession::succeed(std::string last_bytes) {
  std::vector<FinishedChoice> finished;
  for (const Choice& choice : choices_) finished.push_back({&choice.machine, *choice.end});
  std::string whole;
  if (setup_.is_stream)
    last_bytes += setup_.codec->last_events(finished);
  else
    whole = setup_.codec->whole(finished);
  done(std::string(detail_of(finished.front().end.cause)), nullptr);
  if (setup_.is_stream) {
    setup_.exchange->write(std::move(last_bytes));
    setup_.exchange->end_stream(true);
  } else {
    HttpResponse response;
    response.headers = setup_.headers;
    response.body = std::move(whole);
    setup_.exchange->respond(std::move(response));
  }
}

// Before the client can know of the end: its figures are in the metrics, and its place is free,
// when it asks again.
void ReplySession::done(std::string name, const Error* error) {
  ReplyOutcome outcome;
  outcome.name = std::move(name);
  outcome.is_error = error != nullptr;
  if (error != nullptr) outcome.status = http_status_of(error->refusal);
  outcome.is_gone = is_client_gone_;
  outcome.phase = phase_;
  outcome.chunk_ends_ns = std::move(chunk_ends_ns_);
  outcome.text_from_ns = first_token_ns_;
  if (setup_.clock != nullptr) outcome.text_to_ns = setup_.clock->now_ns();
  for (const Choice& choice : choices_)
    if (choice.end) outcome.choices.push_back({&choice.machine, *choice.end});
  setup_.on_done(outcome);
}

}  // namespace roost
