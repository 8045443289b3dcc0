// The one place where engine events become bytes for a client.
#include "server/reply_session.h"

#include <algorithm>

namespace roost {

ReplySession::ReplySession(ReplySetup setup)
    : setup_(std::move(setup)), machine_(setup_.model->tokenizer, setup_.reply) {}

Result<void> ReplySession::start(EngineRequest request) {
  // The engine's thread only posts: the exchange's executor does all the work on text.
  EventSink sink = [self = shared_from_this()](const EngineEvent& event) {
    // A network thread that cannot keep up must not let events pile up without bound.
    if (event.kind == EngineEvent::Kind::kTokens && self->n_posted_ >= limits::kPostedEventsMax) {
      self->is_overrun_ = true;
      return;
    }
    ++self->n_posted_;
    self->setup_.exchange->post([self, event] {
      --self->n_posted_;
      self->on_event(event);
    });
  };
  ROOST_TRY(engine_id_, setup_.model->engine->submit(std::move(request), std::move(sink)));
  setup_.exchange->on_gone([weak = weak_from_this()] {
    const std::shared_ptr<ReplySession> self = weak.lock();
    if (!self) return;
    self->is_client_gone_ = true;
    self->setup_.model->engine->cancel(*self->engine_id_);
  });
  if (setup_.is_stream) {
    setup_.exchange->begin_stream(setup_.headers, setup_.codec->idle_event());
    setup_.exchange->write(setup_.codec->first_event());
  }
  return {};
}

void ReplySession::cancel(Error why) {
  cancelled_by_ = std::move(why);
  setup_.model->engine->cancel(*engine_id_);
}

void ReplySession::on_event(const EngineEvent& event) {
  if (is_overrun_ && !cancelled_by_ && !is_client_gone_)
    cancel(Error{Refusal::QueueFull, std::to_string(limits::kPostedEventsMax) +
                                         " events of this reply wait to be sent"});
  if (event.kind == EngineEvent::Kind::kTokens) on_tokens(event);
  if (event.kind == EngineEvent::Kind::kFinished) on_finished(event);
}

void ReplySession::on_tokens(const EngineEvent& event) {
  if (machine_.has_stopped() || is_client_gone_ || is_overrun_) return;
  const ReplyPiece piece = machine_.push(event.tokens);
  if (setup_.is_stream) setup_.exchange->write(setup_.codec->piece_event(piece));
  if (machine_.has_stopped()) setup_.model->engine->cancel(*engine_id_);
}

ReplyEnd ReplySession::end_of(const EngineEvent& event) const {
  ReplyEnd end;
  end.finished = event;
  if (machine_.has_stopped()) {
    end.cause = FinishCause::kStopString;
    end.stop_string = *machine_.matched_stop();
  } else if (event.finish == Finish::kEndToken) {
    const std::vector<int32_t>& own = setup_.stop_tokens;
    const bool is_own = std::find(own.begin(), own.end(), event.end_token) != own.end();
    end.cause = is_own ? FinishCause::kStopToken : FinishCause::kEos;
    if (is_own) end.stop_token = event.end_token;
  } else {
    const bool is_context = event.finish == Finish::kContext || setup_.is_max_tokens_clamped;
    end.cause = is_context ? FinishCause::kContext : FinishCause::kMaxTokens;
  }
  return end;
}

void ReplySession::on_finished(const EngineEvent& event) {
  const bool had_stopped = machine_.has_stopped();
  const ReplyPiece rest = machine_.finish();
  if (is_client_gone_) {
    setup_.on_done("gone", machine_, event);
  } else if (had_stopped) {
    succeed(rest, event);
  } else if (event.finish == Finish::kError) {
    fail(event.error.value_or(Error{Refusal::EngineNonfinite, ""}), event);
  } else if (event.finish == Finish::kCancelled) {
    fail(cancelled_by_.value_or(Error{Refusal::ServerDraining, ""}), event);
  } else {
    succeed(rest, event);
  }
}

void ReplySession::fail(const Error& error, const EngineEvent& event) {
  if (setup_.is_stream) {
    setup_.exchange->write(setup_.codec->error_event(error));
    setup_.exchange->end_stream(false);
  } else {
    setup_.exchange->respond(setup_.refuse(error));
  }
  setup_.on_done(std::string(code_of(error.refusal)), machine_, event);
}

void ReplySession::succeed(const ReplyPiece& rest, const EngineEvent& event) {
  const ReplyEnd end = end_of(event);
  if (setup_.is_stream) {
    setup_.exchange->write(setup_.codec->last_events(rest, machine_, end));
    setup_.exchange->end_stream(true);
  } else {
    HttpResponse response;
    response.headers = setup_.headers;
    response.body = setup_.codec->whole(machine_, end);
    setup_.exchange->respond(std::move(response));
  }
  setup_.on_done(std::string(detail_of(end.cause)), machine_, event);
}

}  // namespace roost
