// Routing, admission and refusals of the server (docs/SERVER.md, endpoints).
#include "server/service.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "base/hash.h"
#include "base/json.h"
#include "base/log.h"
#include "server/error_body.h"
#include "server/model_list.h"
#include "server/openai_chat.h"
#include "server/page.h"
#include "server/prompt.h"
#include "server/version.h"

namespace roost {

namespace {

constexpr std::string_view kModelPrefix = "/v1/models/";
constexpr size_t kIgnoredBytesMax = 2048;
constexpr uint64_t kSeedLimit = uint64_t{1} << 53;  // a seed that every JSON reader keeps exact

// Protocols of other kinds of model.
constexpr std::string_view kNotOffered[] = {
    "/v1/embeddings", "/v1/rerank", "/v1/score",   "/v1/moderations", "/v1/audio",
    "/v1/images",     "/v1/files",  "/v1/batches", "/v1/fine_tuning", "/v1/realtime",
};
constexpr std::string_view kProbePaths[] = {"/health", "/ready", "/metrics", "/version"};

bool is_printable_label(std::string_view s) {
  return !s.empty() && s.size() <= limits::kLabelBytesMax &&
         std::all_of(s.begin(), s.end(), [](char c) { return c >= 0x21 && c <= 0x7E; });
}

// Bytes that a header may carry as they are; the rest is percent-encoded.
std::string header_encoded(std::string_view s) {
  std::string out;
  for (const char c : s) {
    const bool is_plain = c > 0x20 && c < 0x7F && c != ',' && c != '%';
    if (is_plain)
      out += c;
    else
      out += fmt::format("%{:02X}", static_cast<unsigned char>(c));
  }
  return out;
}

std::string ignored_header(const std::vector<std::string>& pointers) {
  std::string out;
  for (const std::string& pointer : pointers) {
    const std::string one = header_encoded(pointer);
    if (out.size() + one.size() + 1 > kIgnoredBytesMax) break;
    if (!out.empty()) out += ',';
    out += one;
  }
  return out;
}

std::string percent_decoded(std::string_view s) {
  const auto hex = [](char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return -1;
  };
  std::string out;
  for (size_t i = 0; i < s.size(); ++i) {
    const bool is_escape =
        s[i] == '%' && i + 2 < s.size() && hex(s[i + 1]) >= 0 && hex(s[i + 2]) >= 0;
    out += is_escape ? static_cast<char>(hex(s[i + 1]) * 16 + hex(s[i + 2])) : s[i];
    if (is_escape) i += 2;
  }
  return out;
}

std::string lower_case(std::string_view s) {
  std::string out(s);
  std::transform(out.begin(), out.end(), out.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return out;
}

Result<void> check_body_type(const HttpRequest& request) {
  const std::string type = lower_case(request.header("content-type"));
  const size_t semicolon = std::min(type.find(';'), type.size());
  std::string_view media = std::string_view(type).substr(0, semicolon);
  while (media.ends_with(' ') || media.ends_with('\t')) media.remove_suffix(1);
  const size_t charset = type.find("charset=");
  std::string_view coding;
  if (charset != std::string::npos) {
    coding = std::string_view(type).substr(charset + 8);
    coding = coding.substr(0, std::min(coding.find(';'), coding.size()));
    while (coding.ends_with(' ') || coding.ends_with('"')) coding.remove_suffix(1);
    while (coding.starts_with('"')) coding.remove_prefix(1);
  }
  if (media != "application/json" || (!coding.empty() && coding != "utf-8" && coding != "utf8"))
    return Error{Refusal::HttpContentType,
                 fmt::format("have {}, want application/json in utf-8", quoted_short(type))};
  const std::string encoding = lower_case(request.header("content-encoding"));
  if (!encoding.empty() && encoding != "identity")
    return Error{Refusal::HttpContentEncoding,
                 fmt::format("have {}, want identity or none", quoted_short(encoding))};
  return {};
}

// "localhost:8080" -> {"localhost", "8080"}; brackets stay with the host.
std::pair<std::string, std::string> split_host(std::string_view host) {
  const size_t bracket = host.find(']');
  const size_t colon = host.find(':', bracket == std::string_view::npos ? 0 : bracket);
  if (colon == std::string_view::npos) return {lower_case(host), ""};
  return {lower_case(host.substr(0, colon)), std::string(host.substr(colon + 1))};
}

HttpResponse json_response(int status, const json::Value& body) {
  HttpResponse out;
  out.status = status;
  out.body = json::write(body);
  return out;
}

json::Value status_object(const char* status) {
  json::Value out = json::Value::object();
  out.set("status", json::Value::string(status));
  return out;
}

}  // namespace

struct Service::Call {
  HttpRequest request;
  std::shared_ptr<HttpExchange> exchange;
  std::string request_id;
  ParseNotes notes;
  int64_t arrived_ns = 0;
};

struct Service::Route {
  std::string_view method, path;
  void (Service::*handler)(Call&);
};

const std::vector<Service::Route>& Service::routes() {
  static const std::vector<Route> kRoutes = {
      {"POST", "/v1/chat/completions", &Service::post_chat},
      {"GET", "/v1/models", &Service::get_models},
      {"GET", "/health", &Service::get_health},
      {"GET", "/ready", &Service::get_ready},
      {"GET", "/version", &Service::get_version},
      {"GET", "/", &Service::get_page},
      {"GET", "/app.js", &Service::get_page},
      {"GET", "/app.css", &Service::get_page},
      {"GET", "/app/api.js", &Service::get_page},
      {"GET", "/app/live.js", &Service::get_page},
      {"GET", "/app/settings.js", &Service::get_page},
      {"GET", "/app/store.js", &Service::get_page},
      {"GET", "/app/text.js", &Service::get_page},
  };
  return kRoutes;
}

Service::Service(ServiceOptions options, const Clock& clock, Random& random)
    : options_(std::move(options)), clock_(clock), random_(random) {}

std::shared_ptr<const ServedModel> Service::model() const {
  const std::lock_guard lock(mutex_);
  return model_;
}

Result<std::shared_ptr<const ServedModel>> Service::model_for_work() const {
  if (is_draining_) return Error{Refusal::ServerDraining, ""};
  std::shared_ptr<const ServedModel> served = model();
  if (!served) return Error{Refusal::ServerLoading, ""};
  return served;
}

void Service::serve(std::shared_ptr<const ServedModel> model) {
  const std::lock_guard lock(mutex_);
  model_ = std::move(model);
}

void Service::drain() {
  is_draining_ = true;
  if (const std::shared_ptr<const ServedModel> served = model()) served->engine->drain();
}

size_t Service::n_running() const {
  const std::lock_guard lock(mutex_);
  return running_.size();
}

void Service::cancel_running(const Error& why) {
  const std::lock_guard lock(mutex_);
  for (const auto& [id, running] : running_) {
    running.exchange->post([weak = running.session, why] {
      if (const std::shared_ptr<ReplySession> session = weak.lock()) session->cancel(why);
    });
  }
}

// ---- Answers
// --------------------------------------------------------------------------------------

HttpHeaders Service::common_headers(const Call& call) const {
  HttpHeaders out;
  out.emplace_back("X-Request-Id", call.request_id);
  const std::string ignored = ignored_header(call.notes.ignored);
  if (!ignored.empty()) out.emplace_back("X-Roost-Ignored", ignored);
  const std::string_view trace = call.request.header("traceparent");
  if (is_printable_label(trace)) out.emplace_back("traceparent", std::string(trace));
  return out;
}

int Service::retry_after_s(Refusal refusal) const {
  if (refusal != Refusal::QueueFull) return 1;
  const int64_t n = std::max<int64_t>(static_cast<int64_t>(n_running()), 1);
  return static_cast<int>(std::clamp<int64_t>((reply_ms_ + n * 1000 - 1) / (n * 1000), 1, 60));
}

HttpResponse Service::refusal_response(const Error& error, std::string_view param) const {
  HttpResponse out;
  out.status = http_status_of(error.refusal);
  out.body = openai_error_body(error, param);
  if (out.status == 429 || out.status == 503)
    out.headers.emplace_back("Retry-After", fmt::to_string(retry_after_s(error.refusal)));
  return out;
}

HttpResponse Service::refuse(const Error& error) const {
  log(LogLevel::kInfo, "refused",
      {{"refusal", std::string(code_of(error.refusal))},
       {"status", fmt::to_string(http_status_of(error.refusal))}});
  HttpResponse out = refusal_response(error, "");
  out.headers.emplace_back("X-Request-Id", random_base62(random_, 24));
  return out;
}

void Service::answer(Call& call, HttpResponse response) {
  for (auto& header : common_headers(call)) response.headers.push_back(std::move(header));
  call.exchange->respond(std::move(response));
}

void Service::answer_refusal(Call& call, const Error& error) {
  log(LogLevel::kInfo, "request",
      {{"request_id", call.request_id},
       {"status", fmt::to_string(http_status_of(error.refusal))},
       {"refusal", std::string(code_of(error.refusal))}});
  answer(call, refusal_response(error, call.notes.param));
}

// ---- Routing
// --------------------------------------------------------------------------------------

Result<void> Service::check_origin(const HttpRequest& request) const {
  const std::string_view host = request.header("host");
  if (options_.is_loopback && !host.empty()) {
    const auto [name, port] = split_host(host);
    const uint16_t own_port = port_;
    const bool is_own_port = port == fmt::to_string(own_port) || (port.empty() && own_port == 80);
    const bool is_own =
        (name == "localhost" || name == "127.0.0.1" || name == "[::1]") && is_own_port;
    const auto& more = options_.allowed_hosts;
    if (!is_own && std::find(more.begin(), more.end(), name) == more.end())
      return Error{Refusal::HttpHost,
                   fmt::format("have {}; --allowed-host adds a name", quoted_short(host))};
  }
  const std::string_view origin = request.header("origin");
  if (request.method != "POST" || origin.empty()) return {};
  const auto& allowed = options_.allowed_origins;
  if (origin == fmt::format("http://{}", host)) return {};
  if (std::find(allowed.begin(), allowed.end(), origin) != allowed.end()) return {};
  return Error{Refusal::HttpOrigin,
               fmt::format("have {}; --allowed-origin adds one", quoted_short(origin))};
}

void Service::handle(HttpRequest request, std::shared_ptr<HttpExchange> exchange) {
  Call call;
  call.request = std::move(request);
  call.exchange = std::move(exchange);
  call.arrived_ns = clock_.now_ns();
  const std::string_view given = call.request.header("x-request-id");
  call.request_id = is_printable_label(given) ? std::string(given) : random_base62(random_, 24);

  const bool is_probe = std::find(std::begin(kProbePaths), std::end(kProbePaths),
                                  call.request.path) != std::end(kProbePaths);
  if (call.request.is_reserve && !is_probe)
    return answer_refusal(call, Error{Refusal::HttpConnections, "only probes are answered now"});
  if (const Result<void> origin = check_origin(call.request); !origin)
    return answer_refusal(call, origin.error());
  dispatch(call);
}

void Service::dispatch(Call& call) {
  const std::string& path = call.request.path;
  const std::string method = call.request.method == "HEAD" ? "GET" : call.request.method;
  const bool is_one_model = path.starts_with(kModelPrefix) && path.size() > kModelPrefix.size();
  std::string allow = is_one_model ? "GET, HEAD" : "";
  for (const Route& route : routes()) {
    if (route.path != path) continue;
    if (route.method == method) return (this->*route.handler)(call);
    if (!allow.empty()) allow += ", ";
    allow += route.method;
    if (route.method == "GET") allow += ", HEAD";
  }
  if (is_one_model && method == "GET")
    return get_model(call, percent_decoded(path.substr(kModelPrefix.size())));
  if (!allow.empty()) {
    allow += ", OPTIONS";
    HttpResponse response;
    if (method == "OPTIONS") {
      response.status = 204;
      response.content_type.clear();
    } else {
      response = refusal_response(
          Error{Refusal::HttpMethod,
                fmt::format("have {}, want {}", quoted_short(call.request.method), allow)},
          "");
    }
    response.headers.emplace_back("Allow", allow);
    return answer(call, std::move(response));
  }
  for (const std::string_view prefix : kNotOffered) {
    if (path == prefix || path.starts_with(std::string(prefix) + "/"))
      return answer_refusal(call, Error{Refusal::EndpointNotOffered,
                                        "POST /v1/chat/completions and GET /v1/models are served"});
  }
  std::string detail = quoted_short(path);
  for (const Route& route : routes()) {
    const std::string with_v1 = "/v1" + path;
    const bool is_near = route.path == with_v1 || path == "/v1" + std::string(route.path);
    if (is_near) detail += fmt::format("; {} is near", route.path);
  }
  answer_refusal(call, Error{Refusal::HttpUnknownPath, detail});
}

// ---- Probes and lists
// -----------------------------------------------------------------------------

void Service::get_page(Call& call) {
  answer(call, page_response(call.request.path));
}

void Service::get_health(Call& call) {
  if (is_draining_) return answer(call, json_response(503, status_object("draining")));
  if (!model()) return answer(call, json_response(503, status_object("loading")));
  answer(call, json_response(200, status_object("ok")));
}

void Service::get_ready(Call& call) {
  const std::shared_ptr<const ServedModel> served = model();
  if (served && !is_draining_ &&
      served->engine->counts().n_waiting >= static_cast<int32_t>(options_.queue_max))
    return answer(call, json_response(503, status_object("busy")));
  get_health(call);
}

void Service::get_version(Call& call) {
  const std::shared_ptr<const ServedModel> served = model();
  json::Value out = json::Value::object();
  out.set("name", json::Value::string("roost"));
  out.set("version", json::Value::string(std::string(kVersion)));
  out.set("backend", served ? json::Value::string(served->engine->backend()) : json::Value());
  answer(call, json_response(200, out));
}

void Service::get_models(Call& call) {
  const std::shared_ptr<const ServedModel> served = model();
  if (!served) return answer_refusal(call, Error{Refusal::ServerLoading, ""});
  answer(call, json_response(200, model_list(*served)));
}

void Service::get_model(Call& call, std::string_view id) {
  const std::shared_ptr<const ServedModel> served = model();
  if (!served) return answer_refusal(call, Error{Refusal::ServerLoading, ""});
  for (const std::string& own : served->ids)
    if (own == id) return answer(call, json_response(200, model_entry(*served, own)));
  answer_refusal(call,
                 Error{Refusal::UnknownModel, fmt::format("have {}, served is {}", quoted_short(id),
                                                          quoted_short(served->ids.front()))});
}

// ---- Chat
// -----------------------------------------------------------------------------------------

void Service::post_chat(Call& call) {
  const Result<void> admitted = admit_chat(call);
  if (!admitted) answer_refusal(call, admitted.error());
}

Result<void> Service::admit_chat(Call& call) {
  ROOST_TRY(const std::shared_ptr<const ServedModel> served, model_for_work());
  ROOST_TRY_DO(check_body_type(call.request));
  ROOST_TRY(ChatRequest request, parse_openai_chat(call.request.body, served->rules, call.notes));
  if (!is_printable_label(call.request.header("x-request-id")) &&
      is_printable_label(request.generation.request_id))
    call.request_id = request.generation.request_id;
  ROOST_TRY(Prompt prompt, build_prompt(*served, request, clock_.unix_seconds()));
  const auto n_prompt = static_cast<int64_t>(prompt.tokens.size());
  if (n_prompt == 0) return Error{Refusal::EmptyPrompt, "messages: nothing is left to read"};
  const int64_t context = served->engine->context_max();
  ROOST_TRY_DO(check_prompt_fits(n_prompt, context));

  const GenerationFields& fields = request.generation;
  const int64_t n_free = context - n_prompt;
  ReplyHead head;
  head.id = "chatcmpl-" + random_base62(random_, 24);
  head.created = clock_.unix_seconds();
  head.model_id = served->ids.front();
  head.fingerprint = fingerprint_of(*served);
  head.seed = fields.seed ? *fields.seed : random_.next_u64() % kSeedLimit;
  head.max_tokens_applied = std::min(fields.max_tokens.value_or(n_free), n_free);
  head.prompt_tokens = prompt.tokens;
  head.arrived_ns = call.arrived_ns;

  EngineRequest work;
  work.prompt = std::move(prompt.tokens);
  work.new_tokens_max = head.max_tokens_applied;
  work.sampling = sample_params_of(fields, served->defaults, head.seed);
  work.stop_tokens = fields.stop_tokens;
  work.ignore_end_tokens = fields.ignore_end_tokens;
  call.notes.param = fields.output.path;
  ROOST_TRY(work.grammar, served->grammars->use_of(fields.output, prompt.starts_in_reasoning));
  call.notes.param.clear();

  const uint64_t session_id = next_session_id_++;
  ReplySetup setup;
  setup.model = served;
  setup.exchange = call.exchange;
  setup.reply = {prompt.starts_in_reasoning, fields.stops, fields.keeps_stop_text};
  setup.stop_tokens = fields.stop_tokens;
  setup.is_max_tokens_clamped = fields.max_tokens.value_or(INT64_MAX) > n_free;
  setup.is_stream = request.is_stream;
  setup.headers = common_headers(call);
  setup.refuse = [this, headers = setup.headers](const Error& error) {
    HttpResponse response = refusal_response(error, "");
    response.headers.insert(response.headers.end(), headers.begin(), headers.end());
    return response;
  };
  setup.on_done = [this, session_id, id = call.request_id, is_stream = request.is_stream](
                      const std::string& outcome, const ReplyMachine& machine,
                      const EngineEvent& end) {
    note_done(session_id, id, is_stream, outcome, machine, end);
  };
  setup.codec = make_openai_chat_codec(std::move(head), request);

  const auto session = std::make_shared<ReplySession>(std::move(setup));
  // Listed first: the reply may be over before start returns.
  note_running(session_id, {session, call.exchange});
  Result<void> started = session->start(std::move(work));
  if (!started) forget(session_id);
  return started;
}

void Service::note_running(uint64_t session_id, Running running) {
  const std::lock_guard lock(mutex_);
  running_[session_id] = std::move(running);
}

void Service::forget(uint64_t session_id) {
  const std::lock_guard lock(mutex_);
  running_.erase(session_id);
}

void Service::note_done(uint64_t session_id, const std::string& request_id, bool is_stream,
                        const std::string& outcome, const ReplyMachine& machine,
                        const EngineEvent& end) {
  const auto ms = [](int64_t from, int64_t to) {
    return from == 0 || to <= from ? int64_t{0} : (to - from) / 1'000'000;
  };
  const int64_t total_ms = ms(end.submitted_ns, end.finished_ns);
  reply_ms_ = (reply_ms_ * 7 + total_ms) / 8;
  log(LogLevel::kInfo, "request",
      {{"request_id", request_id},
       {"dialect", "chat"},
       {"stream", is_stream ? "1" : "0"},
       {"outcome", outcome},
       {"prompt_tokens", fmt::to_string(end.n_prompt)},
       {"cached_tokens", fmt::to_string(end.n_cached)},
       {"completion_tokens", fmt::to_string(machine.token_ids().size())},
       {"reasoning_tokens", fmt::to_string(machine.n_reasoning_tokens())},
       {"queue_ms", fmt::to_string(ms(end.submitted_ns, end.started_ns))},
       {"prefill_ms", fmt::to_string(ms(end.started_ns, end.first_token_ns))},
       {"decode_ms", fmt::to_string(ms(end.first_token_ns, end.finished_ns))},
       {"token_sha256", token_sha256(machine.token_ids()).substr(0, 12)}});
  forget(session_id);
}

}  // namespace roost
