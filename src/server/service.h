// The routes of the server: every request comes in here, every refusal leaves here.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/random.h"
#include "server/http_server.h"
#include "server/reply_session.h"
#include "server/request_fields.h"
#include "server/served_model.h"

namespace roost {

struct ServiceOptions {
  bool is_loopback = true;                   // then Host must name this machine
  std::vector<std::string> allowed_hosts;    // further names, as in Host without the port
  std::vector<std::string> allowed_origins;  // of pages that may POST
  size_t queue_max = limits::kQueueMax;
};

class Service {
 public:
  // The clock must be the engine's.
  Service(ServiceOptions options, const Clock& clock, Random& random);

  // Network threads, on the executor of the exchange.
  void handle(HttpRequest request, std::shared_ptr<HttpExchange> exchange);
  HttpResponse refuse(const Error& error) const;  // refusals made before a request exists

  // Any thread.
  void set_port(uint16_t port) { port_ = port; }
  void serve(std::shared_ptr<const ServedModel> model);  // from then on requests are taken
  void drain();                                          // no new work; /health says so
  size_t n_running() const;
  void cancel_running(const Error& why);  // replies in work end with this error

 private:
  struct Route;
  struct Call;  // one request with what its answer needs

  struct Running {
    std::weak_ptr<ReplySession> session;
    std::shared_ptr<HttpExchange> exchange;
  };

  static const std::vector<Route>& routes();
  void dispatch(Call& call);
  Result<void> check_origin(const HttpRequest& request) const;
  std::shared_ptr<const ServedModel> model() const;
  Result<std::shared_ptr<const ServedModel>> model_for_work() const;

  void get_page(Call& call);
  void get_health(Call& call);
  void get_ready(Call& call);
  void get_version(Call& call);
  void get_models(Call& call);
  void get_model(Call& call, std::string_view id);
  void post_chat(Call& call);
  Result<void> admit_chat(Call& call);

  void answer(Call& call, HttpResponse response);
  void answer_refusal(Call& call, const Error& error);
  HttpResponse refusal_response(const Error& error, std::string_view param) const;
  HttpHeaders common_headers(const Call& call) const;
  int retry_after_s(Refusal refusal) const;
  void note_running(uint64_t session_id, Running running);
  void forget(uint64_t session_id);
  void note_done(uint64_t session_id, const std::string& request_id, bool is_stream,
                 const std::string& outcome, const ReplyMachine& machine, const EngineEvent& end);

  const ServiceOptions options_;
  const Clock& clock_;
  Random& random_;
  std::atomic<uint16_t> port_ = 0;
  std::atomic<bool> is_draining_ = false;
  std::atomic<int64_t> reply_ms_ = 1000;  // a running mean of how long replies take

  mutable std::mutex mutex_;  // of the model and the replies in work
  std::shared_ptr<const ServedModel> model_;
  std::map<uint64_t, Running> running_;
  std::atomic<uint64_t> next_session_id_ = 0;
};

}  // namespace roost
