// The routes of the server: every request comes in here, every refusal leaves here.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/random.h"
#include "server/http_server.h"
#include "server/key_limits.h"
#include "server/keys.h"
#include "server/line_file.h"
#include "server/metrics.h"
#include "server/prompt.h"
#include "server/replay_map.h"
#include "server/reply_session.h"
#include "server/request_fields.h"
#include "server/response_store.h"
#include "server/served_model.h"

namespace roost {

struct ServiceOptions {
  bool is_loopback = true;                   // then Host must name this machine
  std::vector<std::string> allowed_hosts;    // further names, as in Host without the port
  std::vector<std::string> allowed_origins;  // of pages that may POST
  size_t queue_max = limits::kQueueMax;
  size_t body_bytes_max = limits::kBodyBytesMax, connections_max = limits::kConnectionsMax;
  std::shared_ptr<KeyRing> keys;  // null: everybody may call
  bool has_open_metrics = false;  // /metrics needs no key
  bool keys_share_cache = false;  // prefixes and past replies of one key serve the others too
  bool has_vllm_metrics = true;
  bool is_tls = false;  // pages of the own origin come over https
  std::map<std::string, KeyLimits> key_limits;
  double request_timeout_s = 0;                  // of requests that name none; 0: none
  int64_t thinking_budget = -1;                  // the same, in tokens; -1: none
  bool guards_loops = false;                     // of requests that do not say
  bool requires_content = false;                 // a reply says something behind its reasoning
  std::shared_ptr<LineFile> trace, content_log;  // null: not written
  size_t stored_replies_max = limits::kStoredRepliesMax;  // 0: none
};

class Service {
 public:
  // The clock must be the engine's.
  Service(ServiceOptions options, const Clock& clock, Random& random);

  // Network threads, on the executor of the exchange.
  void handle(HttpRequest request, std::shared_ptr<HttpExchange> exchange);
  // Refusals made before a request is read; asked: what is known of it.
  HttpResponse refuse(const Error& error, const HttpRequest& asked);

  // Any thread.
  void set_port(uint16_t port) { port_ = port; }
  void set_connection_count(std::function<size_t()> n) { n_connections_ = std::move(n); }
  void serve(std::shared_ptr<const ServedModel> model);  // from then on requests are taken
  void drain();                                          // no new work; /health says so
  size_t n_running() const;
  void cancel_running(const Error& why);  // replies in work end with this error

 private:
  struct Route;
  struct Call;  // one request with what its answer needs
  struct Job;   // a generating request of any dialect

  struct Running {
    std::weak_ptr<ReplySession> session;
    std::shared_ptr<HttpExchange> exchange;
    std::string request_id, trace_id, reply_id, key_label;
    std::string ignored;  // names of fields, for the log
    uint64_t seed = 0;
    const char* dialect = "";
    bool is_stream = false, uses_cache = false, may_draft = false;
    int32_t priority = 0;
    size_t n_per_prompt = 1;  // choices
    int64_t n_prompt = 0, arrived_ns = 0, compiling_ns = 0, compiled_ns = 0;
  };

  static const std::vector<Route>& routes();
  void dispatch(Call& call);
  bool dispatch_by_id(Call& call, const std::string& method, std::string& allow);
  void answer_unknown_path(Call& call);
  Result<void> check_origin(const HttpRequest& request) const;
  Result<void> check_key(Call& call) const;
  Result<void> check_admin(const Call& call) const;
  std::shared_ptr<const ServedModel> model() const;
  Result<std::shared_ptr<const ServedModel>> model_for_work() const;
  // The model, and the body is JSON.
  Result<std::shared_ptr<const ServedModel>> open_body(const Call& call) const;

  // service_utility.cc
  void get_page(Call& call);
  void get_health(Call& call);
  void run_deep_check(Call& call, const std::shared_ptr<const ServedModel>& served);
  void get_ready(Call& call);
  void get_version(Call& call);
  void get_models(Call& call);
  void get_model(Call& call, std::string_view id);
  void get_metrics(Call& call);
  void measure_engine(const ServedModel& served);
  void get_props(Call& call);
  void get_requests(Call& call);
  void get_cache(Call& call);
  void post_cache_flush(Call& call);
  void post_tokenize(Call& call);
  void post_detokenize(Call& call);
  void post_apply_template(Call& call);
  void post_count_tokens(Call& call);
  void post_input_tokens(Call& call);
  void cancel_request(Call& call, std::string_view id);
  void get_response(Call& call, std::string_view id);
  void get_input_items(Call& call, std::string_view id);
  void delete_response(Call& call, std::string_view id);
  void cancel_response(Call& call, std::string_view id);
  Result<json::Value> tokenize(Call& call);
  Result<json::Value> detokenize(Call& call);
  Result<json::Value> apply_template(Call& call);
  Result<json::Value> count_messages(Call& call);
  Result<json::Value> count_responses(Call& call);
  void answer_value(Call& call, const Result<json::Value>& value);

  // service_generate.cc
  void post_chat(Call& call);
  void post_completion(Call& call);
  void post_messages(Call& call);
  void post_responses(Call& call);
  Result<void> admit_chat(Call& call);
  Result<void> admit_completion(Call& call);
  Result<void> admit_messages(Call& call);
  Result<void> admit_responses(Call& call);
  // The prompt of a conversation, with past replies as they were drawn.
  Result<Prompt> prompt_of(const Call& call, const ServedModel& served, const ChatRequest& request);
  // Where a reply stands: whose it is, what stands in front of its turn, what its turn begins with.
  struct ReplayPlace {
    std::string owner, before, lead;
  };
  void keep_replay(const ServedModel& served, const ChatRequest& request, const ReplayPlace& place,
                   const FinishedChoice& choice);
  Result<Job> chat_job(Call& call, const std::shared_ptr<const ServedModel>& served,
                       const ChatRequest& request);
  Result<void> begin_limited(Call& call);
  static Running running_of(const Call& call, const Job& job, const ReplyHead& head);
  Result<void> admit(Call& call, const std::shared_ptr<const ServedModel>& served, Job job);
  ReplyHead head_of(Call& call, const ServedModel& served, const Job& job);
  std::vector<ChoiceSetup> choices_of(const ServedModel& served, const Job& job,
                                      const ReplyHead& head);

  void answer(Call& call, HttpResponse response);
  void answer_refusal(Call& call, const Error& error);
  HttpResponse refusal_response(const Error& error, const Call& call) const;
  std::string request_id_of(const HttpRequest& request);
  HttpHeaders common_headers(const Call& call) const;
  void add_cors_headers(const HttpRequest& request, HttpHeaders& headers) const;
  int64_t retry_after_s(Refusal refusal) const;
  void note_running(uint64_t session_id, Running running);
  void forget(uint64_t session_id);
  void record_reply(uint64_t session_id, const Running& running, const ReplyOutcome& outcome) const;
  void log_reply(const Running& running, const ReplyOutcome& outcome) const;
  void warn_of_ignored(const std::vector<std::string>& pointers);
  void warn_of_drafts(const Running& running, const ReplyOutcome& outcome);
  static int answered_status(const Running& running, const ReplyOutcome& outcome);
  void note_done(uint64_t session_id, const Running& running, const ReplyOutcome& outcome);
  // before: called for each of them on its exchange's executor, before it is told; with null where
  // it is over by then. May be empty.
  bool cancel_where(const std::function<bool(const Running&)>& is_it, const Error& why,
                    const std::function<void(const ReplySession*)>& before = nullptr);

  const ServiceOptions options_;
  const Clock& clock_;
  Random& random_;
  Metrics metrics_;
  ResponseStore store_;
  ReplayMap replays_;
  KeyLimiter limiter_;
  std::function<size_t()> n_connections_;
  std::atomic<uint16_t> port_ = 0;
  std::atomic<bool> is_draining_ = false;
  std::atomic<int64_t> reply_ms_ = 1000;  // a running mean of how long replies take

  mutable std::mutex mutex_;  // of the model and the replies in work
  std::shared_ptr<const ServedModel> model_;
  std::map<uint64_t, Running> running_;
  std::set<std::string> warned_of_;  // names of ignored fields
  DraftFigures drafting_;            // of replies that might draft
  bool has_warned_of_drafts_ = false;
  std::atomic<uint64_t> next_session_id_ = 0;
};

}  // namespace roost
