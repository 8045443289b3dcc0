// One generating request from its admission to its last byte: engine events in, events of a dialect
// out on the exchange.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "engine/engine.h"
#include "server/http_server.h"
#include "server/reply.h"
#include "server/reply_codec.h"
#include "server/served_model.h"

namespace roost {

// What the service tells the session, and what it wants to hear.
struct ReplySetup {
  std::shared_ptr<const ServedModel> model;
  std::shared_ptr<HttpExchange> exchange;
  std::unique_ptr<ReplyCodec> codec;
  ReplyOptions reply;
  std::vector<int32_t> stop_tokens;  // the request's own
  bool is_max_tokens_clamped = false;
  bool is_stream = false;
  HttpHeaders headers;
  std::function<HttpResponse(const Error&)> refuse;  // a plain HTTP error
  std::function<void(const std::string& outcome, const ReplyMachine&, const EngineEvent&)> on_done;
};

// All members run on the exchange's executor, but for the sink that the engine calls: it posts.
class ReplySession : public std::enable_shared_from_this<ReplySession> {
 public:
  explicit ReplySession(ReplySetup setup);

  // Submits and, for a stream, sends the head and the first event. A refusal leaves the exchange
  // untouched.
  Result<void> start(EngineRequest request);
  void cancel(Error why);  // ends the reply with this error

 private:
  void on_event(const EngineEvent& event);
  void on_tokens(const EngineEvent& event);
  void on_finished(const EngineEvent& event);
  ReplyEnd end_of(const EngineEvent& event) const;
  void fail(const Error& error, const EngineEvent& event);
  void succeed(const ReplyPiece& rest, const EngineEvent& event);

  ReplySetup setup_;
  ReplyMachine machine_;
  std::optional<Engine::RequestId> engine_id_;
  std::optional<Error> cancelled_by_;
  bool is_client_gone_ = false;
  std::atomic<int> n_posted_ = 0;         // events on their way to the executor
  std::atomic<bool> is_overrun_ = false;  // some were dropped: the reply cannot end well
};

}  // namespace roost
