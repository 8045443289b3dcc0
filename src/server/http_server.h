// HTTP/1.1 for the server: requests in, whole answers or event streams out. Knows sockets, limits
// and time-outs; knows nothing of models. The library behind it is in http_server_beast.cc alone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/limits.h"
#include "base/result.h"

namespace roost {

using HttpHeaders = std::vector<std::pair<std::string, std::string>>;

struct HttpRequest {
  std::string method;
  std::string path;     // of the target, as sent, without the query
  std::string query;    // without the '?'
  HttpHeaders headers;  // names in lower case, in order
  std::string body;
  bool is_reserve = false;  // came in over a place kept for probes

  std::string_view header(std::string_view lower_case_name) const;  // first one; empty if none
};

struct HttpResponse {
  int status = 200;
  std::string content_type = "application/json";
  HttpHeaders headers;
  std::string body;
  bool closes = false;  // the connection ends behind it
};

// The answer to one request. All calls happen on the connection's executor: handlers run there, and
// post() brings any other thread there.
class HttpExchange {
 public:
  virtual ~HttpExchange() = default;

  // Any thread: runs the function on the connection's executor, never inside the caller.
  virtual void post(std::function<void()> work) = 0;

  // Exactly one of: a whole answer, or a stream of begin, any number of writes, one end.
  virtual void respond(HttpResponse response) = 0;
  // What `idle` gives is sent whenever nothing else was for HttpOptions::keepalive_s.
  virtual void begin_stream(HttpHeaders headers, std::function<std::string()> idle) = 0;
  // More unsent bytes than limits::kStreamBufferBytesMax count as a client that is gone.
  virtual void write(std::string bytes) = 0;
  virtual void end_stream(bool keeps_connection) = 0;

  // Bytes that the socket has not taken, and, if there are any, a call when it has taken them all:
  // once, and not if the client goes first.
  virtual size_t n_unsent() const = 0;
  virtual void on_sent(std::function<void()> callback) = 0;

  // Called once if the client goes before the answer is complete; nothing is sent from then on.
  virtual void on_gone(std::function<void()> callback) = 0;
};

struct HttpOptions {
  std::vector<std::string> addresses = {"127.0.0.1"};  // those that the machine lacks are skipped,
  uint16_t port = 8080;                                // but the first; 0: any free port
  int n_threads = 2;
  size_t connections_max = limits::kConnectionsMax;
  size_t reserve_connections = 8;  // further ones, for probes only
  size_t body_bytes_max = limits::kBodyBytesMax;
  double header_timeout_s = 10;
  double body_timeout_s = 120;  // for bodies up to 8 MiB, in proportion for larger ones
  double body_grace_s = 10;     // after it a body must come at 1 KiB/s
  double idle_timeout_s = 300;  // between requests of a connection
  double write_timeout_s = 60;  // without the socket taking a byte
  double keepalive_s = 5;       // silence of a stream before its idle bytes
  std::string tls_certificate_file, tls_key_file;  // PEM; none: plain HTTP
};

struct HttpHandlers {
  // On the connection's executor; the exchange may be answered now or later.
  std::function<void(HttpRequest, std::shared_ptr<HttpExchange>)> handle;
  // The body of a refusal that HTTP itself makes (a bad header, a body too large). asked: the path
  // and the headers where those were good.
  std::function<HttpResponse(const Error&, const HttpRequest& asked)> refuse;
};

class HttpServer {
 public:
  // Listens and serves at once. Refuses port.taken, config.tls.
  static Result<std::unique_ptr<HttpServer>> start(const HttpOptions& options,
                                                   HttpHandlers handlers);
  virtual ~HttpServer() = default;  // stops, joins the threads, drops every connection

  virtual uint16_t port() const = 0;
  virtual size_t n_connections() const = 0;
  // Stops accepting, closes idle connections and waits until the others have sent what they hold or
  // the time is over.
  virtual void stop(double seconds) = 0;
};

}  // namespace roost
