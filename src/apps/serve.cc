// Start, readiness and stop of the server (docs/SERVER.md, start, readiness, stop).
#include "apps/serve.h"

#include <fmt/format.h>
#include <pthread.h>
#include <signal.h>

#include <algorithm>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <future>
#include <mutex>
#include <thread>

#include "apps/complain.h"
#include "apps/engine_options.h"
#include "apps/load_model.h"
#include "base/clock.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/random.h"
#include "server/canary.h"
#include "server/http_server.h"
#include "server/keys.h"
#include "server/service.h"

namespace roost {

namespace {

constexpr int kEndSeconds = 5;  // for replies that were told to end

// SIGTERM and SIGINT, taken by one thread: the first asks to stop, the second ends the process.
// SIGHUP: the keys are read again. A lost device asks to stop, too.
class StopSignal {
 public:
  StopSignal() {
    sigemptyset(&signals_);
    sigaddset(&signals_, SIGTERM);
    sigaddset(&signals_, SIGINT);
    sigaddset(&signals_, SIGHUP);
    // Before any other thread starts, so that all of them leave the signals to this one.
    pthread_sigmask(SIG_BLOCK, &signals_, nullptr);
    std::thread([this] {
      pthread_setname_np(pthread_self(), "roost-signals");
      take();
    }).detach();
  }

  void on_hangup(std::function<void()> callback) {
    const std::lock_guard lock(mutex_);
    hangup_ = std::move(callback);
  }
  void model_is_served() {
    const std::lock_guard lock(mutex_);
    is_loading_ = false;
  }
  void device_is_lost() {
    const std::lock_guard lock(mutex_);
    is_device_lost_ = true;
    changed_.notify_all();
  }
  // The exit status that goes with the reason to stop.
  int wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return is_asked_ || is_device_lost_; });
    return is_device_lost_ ? kExitDeviceLost : 0;
  }

 private:
  std::function<void()> hangup() {
    const std::lock_guard lock(mutex_);
    return hangup_;
  }
  void take() {
    for (;;) {
      int signal = 0;
      if (sigwait(&signals_, &signal) != 0) continue;
      if (signal == SIGHUP) {
        if (const auto callback = hangup()) callback();
        continue;
      }
      const std::lock_guard lock(mutex_);
      if (is_asked_) std::_Exit(128 + signal);
      if (is_loading_) std::_Exit(0);  // nothing is running that could be finished
      is_asked_ = true;
      changed_.notify_all();
    }
  }

  sigset_t signals_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool is_asked_ = false;
  bool is_loading_ = true;
  bool is_device_lost_ = false;
  std::function<void()> hangup_;
};

bool is_loopback(const std::string& host) {
  return host == "localhost" || host == "::1" || host.starts_with("127.");
}

// One key that needs no file; never on the command line, where everybody could read it.
std::string_view key_of_environment() {
  const char* key = std::getenv("ROOST_API_KEY");
  return key == nullptr ? "" : key;
}

size_t body_bytes_max(const Flags& flags) {
  return static_cast<size_t>(flags.max_body) << 20;
}

Result<ServiceOptions> service_options_of(const Flags& flags) {
  ROOST_TRY_DO(check_range("--responses-store", flags.responses_store, 0, 1'000'000));
  if (flags.metrics_compat != "vllm" && flags.metrics_compat != "none")
    return Error{Refusal::FlagValue, "--metrics-compat: want vllm or none"};
  ServiceOptions out;
  out.is_loopback = is_loopback(flags.host);
  out.allowed_hosts = flags.allowed_host;
  out.allowed_origins = flags.allowed_origin;
  out.queue_max = static_cast<size_t>(flags.queue_size);
  out.body_bytes_max = body_bytes_max(flags);
  out.connections_max = static_cast<size_t>(flags.max_connections);
  out.has_open_metrics = flags.metrics_open;
  out.keys_share_cache = flags.cache_share_keys;
  out.has_vllm_metrics = flags.metrics_compat == "vllm";
  out.stored_replies_max = static_cast<size_t>(flags.responses_store);
  out.is_tls = !flags.tls_cert.empty();
  ROOST_TRY(out.key_limits, parse_key_limits(flags.key_limits));
  if (flags.request_timeout < 0 || flags.request_timeout > 86'400)
    return Error{Refusal::FlagValue, "--request-timeout: want 0 to 86400"};
  out.request_timeout_s = flags.request_timeout;
  ROOST_TRY_DO(check_range("--thinking-budget", flags.thinking_budget, -1, INT32_MAX));
  out.thinking_budget = flags.thinking_budget;
  out.guards_loops = flags.loop_guard;
  out.requires_content = flags.content_required;
  if (!flags.trace_file.empty()) {
    ROOST_TRY(out.trace, LineFile::begin(flags.trace_file));
    out.trace->write("[");
  }
  if (!flags.log_content.empty()) {
    ROOST_TRY(out.content_log, LineFile::append_to(flags.log_content));
    log(LogLevel::kWarning, "content_is_logged", {});
  }
  if (flags.api_key_file.empty() && key_of_environment().empty()) return out;
  ROOST_TRY(std::unique_ptr<KeyRing> keys,
            KeyRing::create(flags.api_key_file, key_of_environment(), system_clock()));
  out.keys = std::move(keys);
  return out;
}

Result<HttpOptions> http_options_of(const Flags& flags) {
  ROOST_TRY_DO(check_range("--port", flags.port, 0, 65535));
  ROOST_TRY_DO(check_range("--network-threads", flags.network_threads, 1, 64));
  ROOST_TRY_DO(check_range("--max-connections", flags.max_connections, 1, 1'000'000));
  ROOST_TRY_DO(check_range("--max-body", flags.max_body, 1, 1 << 14));
  if (!(flags.keepalive > 0 && flags.keepalive <= 10))
    return Error{Refusal::FlagValue, "--keepalive: want more than 0 and at most 10"};
  const bool has_keys = !flags.api_key_file.empty() || !key_of_environment().empty();
  if (!is_loopback(flags.host) && !has_keys && !flags.insecure_no_key)
    return Error{Refusal::KeyRequired, flags.host};
  HttpOptions out;
  out.addresses = {flags.host};
  if (flags.host == "127.0.0.1" || flags.host == "localhost") out.addresses = {"127.0.0.1", "::1"};
  out.port = static_cast<uint16_t>(flags.port);
  out.n_threads = static_cast<int>(flags.network_threads);
  out.connections_max = static_cast<size_t>(flags.max_connections);
  out.body_bytes_max = body_bytes_max(flags);
  out.keepalive_s = flags.keepalive;
  if (flags.tls_cert.empty() != flags.tls_key.empty())
    return Error{Refusal::FlagValue, "--tls-cert and --tls-key: want both or none"};
  out.tls_certificate_file = flags.tls_cert;
  out.tls_key_file = flags.tls_key;
  return out;
}

Result<LoadOptions> load_options_of(const CommandLine& line) {
  const Flags& flags = line.flags;
  LoadOptions out;
  ROOST_TRY(out.engine, engine_options_of(flags));
  ROOST_TRY(out.sampling, sampling_of(flags));
  out.folder = line.model;
  out.device = flags.device;
  out.template_file = flags.chat_template;
  out.drafter = flags.drafter;
  out.drafter_bits = flags.drafter_bits;
  out.aliases = flags.alias;
  out.is_strict_model = flags.strict_model;
  ROOST_TRY_DO(check_range("--grammar-cache", flags.grammar_cache, 0, 1 << 20));
  out.grammar_bytes_max = static_cast<size_t>(flags.grammar_cache) << 20;
  if (flags.thinking != "on" && flags.thinking != "off" && flags.thinking != "template")
    return Error{Refusal::FlagValue, "--thinking: want on, off or template"};
  ROOST_TRY(out.effort_budgets, parse_effort_budgets(flags.effort_budgets));
  if (flags.thinking != "template") out.thinking = flags.thinking == "on";
  return out;
}

// Before anybody is let in: a model that cannot do this serves nobody. Its tokens are kept.
Result<void> run_first_canary(ServedModel& model) {
  const auto promise = std::make_shared<std::promise<Result<CanaryReply>>>();
  std::future<Result<CanaryReply>> seen = promise->get_future();
  run_canary(*model.engine, model.tokenizer,
             [promise](Result<CanaryReply> reply) { promise->set_value(std::move(reply)); });
  ROOST_TRY(const CanaryReply reply, seen.get());
  model.canary_tokens = reply.tokens;
  log(LogLevel::kInfo, "canary",
      {{"token_sha256", token_sha256(reply.tokens).substr(0, 12)},
       {"ms", fmt::format("{:.1f}", static_cast<double>(reply.took_ns) / 1e6)}});
  return {};
}

bool wait_for(double timeout_s, const std::function<bool()>& is_so) {
  const auto until = std::chrono::steady_clock::now() +
                     std::chrono::milliseconds(static_cast<int64_t>(timeout_s * 1e3));
  while (!is_so()) {
    if (std::chrono::steady_clock::now() >= until) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return true;
}

// Lets running replies end, tells the rest why they do not, and takes everything down in the order
// that leaves no event without a place to go.
void stop(Service& service, std::unique_ptr<HttpServer> http, std::shared_ptr<ServedModel> model,
          double grace_s) {
  log(LogLevel::kInfo, "draining", {{"running", fmt::to_string(service.n_running())}});
  service.drain();
  const auto is_quiet = [&] { return service.n_running() == 0; };
  if (!wait_for(grace_s, is_quiet)) {
    service.cancel_running(Error{Refusal::ServerDraining,
                                 fmt::format("the reply was not done in {} seconds", grace_s)});
    wait_for(kEndSeconds, is_quiet);
  }
  http->stop(kEndSeconds);
  wait_for(kEndSeconds, [&] {
    const Engine::Counts counts = model->engine->counts();
    return counts.n_running == 0 && counts.n_waiting == 0;
  });
  model->engine.reset();
  http.reset();
  log(LogLevel::kInfo, "stopped");
}

}  // namespace

int run_serve(const CommandLine& line) {
  const Flags& flags = line.flags;
  const Result<HttpOptions> http_options = http_options_of(flags);
  if (!http_options) return complain(http_options.error());
  Result<LoadOptions> load_options = load_options_of(line);
  if (!load_options) return complain(load_options.error());

  static StopSignal stop_signal;
  load_options->engine.when_lost = [] { stop_signal.device_is_lost(); };
  Result<ServiceOptions> service_options = service_options_of(flags);
  if (!service_options) return complain(service_options.error());
  const std::shared_ptr<KeyRing> keys = service_options->keys;
  stop_signal.on_hangup([keys] {
    if (keys) keys->reload();
  });
  Service service(std::move(service_options).value(), system_clock(), system_random());
  HttpHandlers handlers;
  handlers.handle = [&service](HttpRequest request, std::shared_ptr<HttpExchange> exchange) {
    service.handle(std::move(request), std::move(exchange));
  };
  handlers.refuse = [&service](const Error& error, const HttpRequest& asked) {
    return service.refuse(error, asked);
  };
  Result<std::unique_ptr<HttpServer>> http = HttpServer::start(*http_options, std::move(handlers));
  if (!http) return complain(http.error());
  service.set_port((*http)->port());
  service.set_connection_count([server = http->get()] { return server->n_connections(); });
  log(LogLevel::kInfo, "listening", {{"port", fmt::to_string((*http)->port())}});

  Result<std::shared_ptr<ServedModel>> model = load_model(*load_options, system_clock());
  if (!model) return complain(model.error());
  if (const Result<void> canary = run_first_canary(**model); !canary)
    return complain(canary.error());
  service.serve(*model);
  stop_signal.model_is_served();
  const std::string host = flags.host == "::1" ? "[::1]" : flags.host;
  fmt::print("roost serves {} on {}://{}:{}\n", (*model)->ids.front(),
             flags.tls_cert.empty() ? "http" : "https", host, (*http)->port());
  std::fflush(stdout);

  const int status = stop_signal.wait();
  stop(service, std::move(http).value(), std::move(model).value(), flags.grace);
  return status;
}

}  // namespace roost
