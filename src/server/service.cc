// Routing, admission and refusals of the server (docs/SERVER.md, endpoints).
#include "server/service.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "base/json.h"
#include "base/log.h"
#include "server/error_body.h"
#include "server/service_call.h"

namespace roost {

namespace {

constexpr size_t kIgnoredBytesMax = 2048;

// Protocols of other kinds of model.
constexpr std::string_view kNotOffered[] = {
    "/v1/embeddings", "/v1/rerank", "/v1/score",   "/v1/moderations", "/v1/audio",
    "/v1/images",     "/v1/files",  "/v1/batches", "/v1/fine_tuning", "/v1/realtime",
};
constexpr std::string_view kProbePaths[] = {"/health", "/ready", "/metrics", "/version"};

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

// Version 00 of the W3C's trace context: "00-<32 digits>-<16 digits>-<2 digits>", no id of zeros.
bool is_traceparent(std::string_view s) {
  if (s.size() != 55 || !s.starts_with("00-") || s[35] != '-' || s[52] != '-') return false;
  const auto is_hex = [](std::string_view part) {
    return part.find_first_not_of("0123456789abcdef") == std::string_view::npos;
  };
  const std::string_view trace = s.substr(3, 32), span = s.substr(36, 16);
  return is_hex(trace) && is_hex(span) && is_hex(s.substr(53)) &&
         trace.find_first_not_of('0') != std::string_view::npos &&
         span.find_first_not_of('0') != std::string_view::npos;
}

std::string new_traceparent(Random& random) {
  return fmt::format("00-{:016x}{:016x}-{:016x}-01", random.next_u64(), random.next_u64() | 1,
                     random.next_u64() | 1);
}

// "localhost:8080" -> {"localhost", "8080"}; brackets stay with the host.
std::pair<std::string, std::string> split_host(std::string_view host) {
  const size_t bracket = host.find(']');
  const size_t colon = host.find(':', bracket == std::string_view::npos ? 0 : bracket);
  if (colon == std::string_view::npos) return {lower_case(host), ""};
  return {lower_case(host.substr(0, colon)), std::string(host.substr(colon + 1))};
}

}  // namespace

bool asks_deep(const HttpRequest& request) {
  return ("&" + request.query + "&").find("&deep=1&") != std::string::npos;
}

bool is_printable_label(std::string_view s) {
  return !s.empty() && s.size() <= limits::kLabelBytesMax &&
         std::all_of(s.begin(), s.end(), [](char c) { return c >= 0x21 && c <= 0x7E; });
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

HttpResponse json_response(int status, const json::Value& body) {
  HttpResponse out;
  out.status = status;
  out.body = json::write(body);
  return out;
}

const std::vector<Service::Route>& Service::routes() {
  static const std::vector<Route> kRoutes = {
      {"POST", "/v1/chat/completions", &Service::post_chat},
      {"POST", "/v1/completions", &Service::post_completion},
      {"POST", "/v1/responses", &Service::post_responses},
      {"POST", "/v1/responses/input_tokens", &Service::post_input_tokens},
      {"POST", "/v1/messages", &Service::post_messages},
      {"POST", "/v1/messages/count_tokens", &Service::post_count_tokens},
      {"GET", "/v1/models", &Service::get_models},
      {"POST", "/tokenize", &Service::post_tokenize},
      {"POST", "/detokenize", &Service::post_detokenize},
      {"POST", "/apply-template", &Service::post_apply_template},
      {"GET", "/props", &Service::get_props},
      {"GET", "/requests", &Service::get_requests},
      {"GET", "/cache", &Service::get_cache},
      {"POST", "/cache/flush", &Service::post_cache_flush},
      {"GET", "/metrics", &Service::get_metrics},
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
    : options_(std::move(options)),
      clock_(clock),
      random_(random),
      store_(options_.stored_replies_max, limits::kStoredReplyBytesMax),
      limiter_(options_.key_limits) {}

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
  if (!model->cache_folder.empty()) {
    const Result<void> kept = replays_.keep_in(
        model->cache_folder + "/replies",
        "replies 1 " + model->digest + " " + model->tokenizer_sha256, model->tokenizer.n_tokens());
    if (!kept) log(LogLevel::kWarning, "replies_not_kept", {{"reason", kept.error().detail}});
  }
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

// ---- Answers ------------------------------------------------------------------------------------

HttpHeaders Service::common_headers(const Call& call) const {
  HttpHeaders out;
  out.emplace_back("X-Request-Id", call.request_id);
  const std::string ignored = ignored_header(call.notes.ignored);
  if (!ignored.empty()) out.emplace_back("X-Roost-Ignored", ignored);
  if (!call.traceparent.empty()) out.emplace_back("traceparent", call.traceparent);
  add_cors_headers(call.request, out);
  out.insert(out.end(), call.headers.begin(), call.headers.end());
  return out;
}

// For pages of listed origins alone, and never with credentials of the browser's.
void Service::add_cors_headers(const HttpRequest& request, HttpHeaders& headers) const {
  const auto& allowed = options_.allowed_origins;
  const std::string origin(request.header("origin"));
  if (origin.empty() || std::find(allowed.begin(), allowed.end(), origin) == allowed.end()) return;
  headers.emplace_back("Access-Control-Allow-Origin", origin);
  headers.emplace_back("Vary", "Origin");
  if (request.method != "OPTIONS") return;
  headers.emplace_back("Access-Control-Allow-Methods", "GET, POST, DELETE");
  headers.emplace_back("Access-Control-Allow-Headers",
                       "authorization, content-type, x-api-key, x-request-id, traceparent, "
                       "anthropic-version, anthropic-beta");
  headers.emplace_back("Access-Control-Max-Age", "600");
}

int64_t Service::retry_after_s(Refusal refusal) const {
  if (refusal != Refusal::QueueFull) return 1;
  const int64_t n = std::max<int64_t>(static_cast<int64_t>(n_running()), 1);
  return std::clamp<int64_t>((reply_ms_ + n * 1000 - 1) / (n * 1000), 1, 60);
}

// The client's own where it gave one.
std::string Service::request_id_of(const HttpRequest& request) {
  const std::string_view given = request.header("x-request-id");
  return is_printable_label(given) ? std::string(given) : random_base62(random_, 24);
}

HttpResponse Service::refusal_response(const Error& error, const Call& call) const {
  HttpResponse out;
  out.status = http_status_of(error.refusal);
  out.body = call.is_messages() ? anthropic_error_body(error, call.notes.param, call.request_id)
                                : openai_error_body(error, call.notes.param);
  if (out.status == 429 || out.status == 503) {
    const int64_t wait_s =
        call.retry_after_s > 0 ? call.retry_after_s : retry_after_s(error.refusal);
    out.headers.emplace_back("Retry-After", fmt::to_string(wait_s));
  }
  return out;
}

HttpResponse Service::refuse(const Error& error, const HttpRequest& asked) {
  Call call;
  call.request = asked;
  call.request_id = request_id_of(asked);
  log(LogLevel::kInfo, "refused",
      {{"refusal", std::string(code_of(error.refusal))},
       {"status", fmt::to_string(http_status_of(error.refusal))}});
  metrics_.add(Metric::kRequestsRefused, 1, label("refusal", code_of(error.refusal)));
  HttpResponse out = refusal_response(error, call);
  out.headers.emplace_back("X-Request-Id", call.request_id);
  if (call.is_messages()) out.headers.emplace_back("request-id", call.request_id);
  return out;
}

void Service::answer(Call& call, HttpResponse response) {
  for (auto& header : common_headers(call)) response.headers.push_back(std::move(header));
  if (call.is_messages()) response.headers.emplace_back("request-id", call.request_id);
  const std::string& method = call.request.method;
  const bool is_known = method == "GET" || method == "POST" || method == "HEAD" ||
                        method == "DELETE" || method == "OPTIONS";
  metrics_.add(Metric::kHttpRequests, 1,
               label("path", call.route) + "," + label("method", is_known ? method : "other") +
                   "," + label("status", fmt::to_string(response.status)));
  call.exchange->respond(std::move(response));
}

void Service::answer_refusal(Call& call, const Error& error) {
  log(LogLevel::kInfo, "request",
      {{"request_id", call.request_id},
       {"trace_id", std::string(call.trace_id())},
       {"key_label", call.caller.label},
       {"path", std::string(call.route)},
       {"status", fmt::to_string(http_status_of(error.refusal))},
       {"refusal", std::string(code_of(error.refusal))}});
  metrics_.add(Metric::kRequestsRefused, 1, label("refusal", code_of(error.refusal)));
  answer(call, refusal_response(error, call));
}

// ---- Routing ------------------------------------------------------------------------------------

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
  if (origin == fmt::format("{}://{}", options_.is_tls ? "https" : "http", host)) return {};
  if (std::find(allowed.begin(), allowed.end(), origin) != allowed.end()) return {};
  return Error{Refusal::HttpOrigin,
               fmt::format("have {}; --allowed-origin adds one", quoted_short(origin))};
}

namespace {

// The key as clients send it: never in the query.
std::string_view key_of(const HttpRequest& request) {
  std::string_view bearer = request.header("authorization");
  if (lower_case(bearer.substr(0, 7)) == "bearer ") {
    bearer.remove_prefix(7);
    while (bearer.starts_with(' ')) bearer.remove_prefix(1);
    return bearer;
  }
  return request.header("x-api-key");
}

}  // namespace

Result<void> Service::check_key(Call& call) const {
  if (!options_.keys) return {};
  const std::string& path = call.request.path;
  const bool is_deep = path == "/health" && asks_deep(call.request);
  const bool is_open =
      path == "/" || path == "/ready" || path == "/version" || (path == "/health" && !is_deep) ||
      path == "/app.js" || path == "/app.css" || path.starts_with("/app/") ||
      (path == "/metrics" && options_.has_open_metrics) || call.request.method == "OPTIONS";
  if (is_open) return {};
  ROOST_TRY(call.caller, options_.keys->find(key_of(call.request)));
  if (!options_.keys_share_cache) call.cache_owner = call.caller.label;
  return {};
}

// Without keys everybody on this machine is trusted, and nobody else.
Result<void> Service::check_admin(const Call& call) const {
  if (options_.keys ? call.caller.is_admin : options_.is_loopback) return {};
  return Error{Refusal::AuthForbidden,
               options_.keys ? "an admin key is needed" : "on loopback only"};
}

void Service::handle(HttpRequest request, std::shared_ptr<HttpExchange> exchange) {
  Call call;
  call.request = std::move(request);
  call.exchange = std::move(exchange);
  call.arrived_ns = clock_.now_ns();
  call.request_id = request_id_of(call.request);

  const std::string_view trace = call.request.header("traceparent");
  call.traceparent = is_traceparent(trace) ? std::string(trace) : new_traceparent(random_);

  const bool is_probe = std::find(std::begin(kProbePaths), std::end(kProbePaths),
                                  call.request.path) != std::end(kProbePaths);
  if (call.request.is_reserve && !is_probe)
    return answer_refusal(call, Error{Refusal::HttpConnections, "only probes are answered now"});
  if (const Result<void> origin = check_origin(call.request); !origin)
    return answer_refusal(call, origin.error());
  if (const Result<void> key = check_key(call); !key) return answer_refusal(call, key.error());
  dispatch(call);
}

// Paths that hold an id. True: answered; else *allow names the methods of the path, if it is one.
bool Service::dispatch_by_id(Call& call, const std::string& method, std::string& allow) {
  using Handler = void (Service::*)(Call&, std::string_view);
  const struct {
    std::string_view prefix, suffix, method, pattern;
    Handler handler;
  } kPatterns[] = {
      {"/v1/responses/", "/input_items", "GET", "/v1/responses/{id}/input_items",
       &Service::get_input_items},
      {"/v1/responses/", "/cancel", "POST", "/v1/responses/{id}/cancel", &Service::cancel_response},
      {"/v1/responses/", "", "GET", "/v1/responses/{id}", &Service::get_response},
      {"/v1/responses/", "", "DELETE", "/v1/responses/{id}", &Service::delete_response},
      {"/requests/", "/cancel", "POST", "/requests/{id}/cancel", &Service::cancel_request},
      {"/v1/models/", "", "GET", "/v1/models/{id}", &Service::get_model},
  };
  const std::string_view path = call.request.path;
  std::string_view matched;
  for (const auto& one : kPatterns) {
    const bool is_it = path.starts_with(one.prefix) && path.ends_with(one.suffix) &&
                       path.size() > one.prefix.size() + one.suffix.size();
    if (!is_it || (!matched.empty() && one.pattern != matched)) continue;
    matched = one.pattern;
    call.route = one.pattern;
    if (method == one.method) {
      const std::string id = percent_decoded(
          path.substr(one.prefix.size(), path.size() - one.prefix.size() - one.suffix.size()));
      (this->*one.handler)(call, id);
      return true;
    }
    if (!allow.empty()) allow += ", ";
    allow += one.method;
    if (one.method == "GET") allow += ", HEAD";
  }
  return false;
}

void Service::dispatch(Call& call) {
  const std::string& path = call.request.path;
  const std::string method = call.request.method == "HEAD" ? "GET" : call.request.method;
  std::string allow;
  for (const Route& route : routes()) {
    if (route.path != path) continue;
    call.route = route.path;
    if (route.method == method) return (this->*route.handler)(call);
    if (!allow.empty()) allow += ", ";
    allow += route.method;
    if (route.method == "GET") allow += ", HEAD";
  }
  if (allow.empty() && dispatch_by_id(call, method, allow)) return;
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
          call);
    }
    response.headers.emplace_back("Allow", allow);
    return answer(call, std::move(response));
  }
  answer_unknown_path(call);
}

void Service::answer_unknown_path(Call& call) {
  const std::string& path = call.request.path;
  for (const std::string_view prefix : kNotOffered) {
    if (path == prefix || path.starts_with(std::string(prefix) + "/"))
      return answer_refusal(
          call, Error{Refusal::EndpointNotOffered,
                      "POST /v1/chat/completions, /v1/completions, /v1/responses and /v1/messages "
                      "are served"});
  }
  std::string detail = quoted_short(path);
  for (const Route& route : routes()) {
    const std::string with_v1 = "/v1" + path;
    const bool is_near = route.path == with_v1 || path == "/v1" + std::string(route.path);
    if (is_near) detail += fmt::format("; {} is near", route.path);
  }
  answer_refusal(call, Error{Refusal::HttpUnknownPath, detail});
}

Result<std::shared_ptr<const ServedModel>> Service::open_body(const Call& call) const {
  ROOST_TRY(std::shared_ptr<const ServedModel> served, model_for_work());
  ROOST_TRY_DO(check_body_type(call.request));
  return served;
}

}  // namespace roost
