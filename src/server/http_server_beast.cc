// The HTTP server on Boost.Beast: one coroutine a connection, another that watches for its client
// to go while an answer is in work, few threads for all of them.
// long: the library may be named in one file alone
#if defined(__SANITIZE_THREAD__)
// g++'s thread sanitizer does not know fences; the scheduler's mutexes order the same accesses.
#define BOOST_ASIO_DISABLE_FENCED_BLOCK
#endif

#include <fmt/format.h>
#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/connect.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ip/v6_only.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/ssl/error.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/strand.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <set>
#include <thread>

#include "base/log.h"
#include "server/http_answer.h"
#include "server/http_head.h"
#include "server/http_server.h"

namespace roost {

namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;
using boost::system::error_code;
using tcp = asio::ip::tcp;
using Strand = asio::strand<asio::io_context::executor_type>;
using Socket = asio::basic_stream_socket<tcp, Strand>;
using Acceptor = asio::basic_socket_acceptor<tcp, Strand>;
using Timer = asio::basic_waitable_timer<std::chrono::steady_clock,
                                         asio::wait_traits<std::chrono::steady_clock>, Strand>;
using SteadyTime = std::chrono::steady_clock::time_point;

constexpr size_t kHeadReadBytes = size_t{4} << 10;  // an idle connection costs little more
constexpr size_t kBodyReadBytes = size_t{64} << 10;
constexpr double kLingerSeconds = 2;                 // a refused sender may read its answer
constexpr size_t kLingerBytesMax = size_t{4} << 20;  // and is not read for longer than this
constexpr double kBodyBytesPerSecond = 1024;
constexpr double kBodyBytesPerTimeout = 8 * 1024 * 1024;

constexpr std::string_view kContinue = "HTTP/1.1 100 Continue\r\n\r\n";

SteadyTime now() {
  return std::chrono::steady_clock::now();
}

std::chrono::nanoseconds seconds(double s) {
  return std::chrono::nanoseconds(static_cast<int64_t>(s * 1e9));
}

class BeastServer;

// One connection. Everything runs on its strand.
class Connection : public std::enable_shared_from_this<Connection> {
 public:
  // tls: of the server, or null for plain HTTP.
  Connection(Socket socket, BeastServer& server, bool is_reserve, asio::ssl::context* tls)
      : socket_(std::move(socket)),
        deadline_(socket_.get_executor()),
        wake_(socket_.get_executor()),
        server_(server),
        is_reserve_(is_reserve) {
    if (tls != nullptr) tls_.emplace(socket_, *tls);
  }

  asio::awaitable<void> run();
  void close_if_idle();  // when the server stops
  void abort();
  void abandon();  // nobody is left to complete the answer

  Strand strand() { return socket_.get_executor(); }
  bool is_current(uint64_t exchange_id) const { return exchange_id_ == exchange_id; }

  // What the exchange of the current request does.
  void respond(HttpResponse response);
  void begin_stream(HttpHeaders headers, std::function<std::string()> idle);
  void write(std::string bytes);
  void end_stream(bool keeps_connection);
  void on_gone(std::function<void()> callback);
  size_t n_unsent() const { return answer_.n_pending() + n_in_flight_; }
  void on_sent(std::function<void()> callback) { sent_callback_ = std::move(callback); }

 private:
  using Parser = http::request_parser<http::string_body>;

  asio::awaitable<bool> serve_one();
  asio::awaitable<std::optional<HttpHead>> read_head();
  std::optional<Error> body_error(const error_code& ec, const HttpHead& head, size_t n_read,
                                  double took_s) const;
  asio::awaitable<bool> read_body(const HttpHead& head, Parser& parser, error_code ec);
  asio::awaitable<bool> shake_hands();
  asio::awaitable<size_t> read_some(asio::mutable_buffer into, error_code& ec);
  asio::awaitable<size_t> write_some(asio::const_buffer from, error_code& ec);
  void note_asked(std::string_view block);
  void refuse(Refusal refusal, const std::string& detail);
  void respond_refusal(Refusal refusal, const std::string& detail);
  asio::awaitable<void> send_answer();
  asio::awaitable<bool> send_pending();
  asio::awaitable<void> watch_client();
  asio::awaitable<void> probe_half_closed();
  asio::awaitable<void> linger();
  asio::awaitable<void> wait_until(SteadyTime time);

  void arm(double timeout_s);
  void disarm();
  void client_gone();
  void begin_answer(const HttpHead& head);
  void send_at_once();

  Socket socket_;
  std::optional<asio::ssl::stream<Socket&>> tls_;
  Timer deadline_, wake_;
  BeastServer& server_;
  const bool is_reserve_;
  beast::flat_buffer buffer_;
  uint64_t deadline_round_ = 0;
  bool is_timed_out_ = false;
  bool is_first_request_ = true;
  bool is_idle_ = true;
  bool is_stopping_ = false;
  bool has_client_fin_ = false;

  // The answer in work. Its exchange has the current id: an older one speaks to nobody.
  uint64_t exchange_id_ = 0;
  HttpHead head_;
  HttpRequest asked_;  // path and id of the request that is read
  HttpAnswer answer_;
  bool is_gone_ = false;
  bool is_refused_ = false;  // the answer in hand is the last one
  bool is_watching_ = false;
  size_t n_in_flight_ = 0;
  SteadyTime last_sent_;
  std::function<void()> gone_callback_, sent_callback_;
};

// Hands one request's calls to its connection, and to nobody once the connection has moved on.
class Exchange final : public HttpExchange {
 public:
  Exchange(std::shared_ptr<Connection> connection, uint64_t id)
      : connection_(std::move(connection)), id_(id) {}
  ~Exchange() override {
    // Whoever drops the exchange without an answer ends the connection rather than leave it
    // waiting.
    asio::post(connection_->strand(), [c = connection_, id = id_] {
      if (c->is_current(id)) c->abandon();
    });
  }

  void post(std::function<void()> work) override {
    asio::post(connection_->strand(), std::move(work));
  }
  void respond(HttpResponse response) override {
    if (connection_->is_current(id_)) connection_->respond(std::move(response));
  }
  void begin_stream(HttpHeaders headers, std::function<std::string()> idle) override {
    if (connection_->is_current(id_))
      connection_->begin_stream(std::move(headers), std::move(idle));
  }
  void write(std::string bytes) override {
    if (connection_->is_current(id_)) connection_->write(std::move(bytes));
  }
  void end_stream(bool keeps_connection) override {
    if (connection_->is_current(id_)) connection_->end_stream(keeps_connection);
  }
  void on_gone(std::function<void()> callback) override {
    if (connection_->is_current(id_)) connection_->on_gone(std::move(callback));
  }
  size_t n_unsent() const override {
    return connection_->is_current(id_) ? connection_->n_unsent() : 0;
  }
  void on_sent(std::function<void()> callback) override {
    if (connection_->is_current(id_)) connection_->on_sent(std::move(callback));
  }

 private:
  std::shared_ptr<Connection> connection_;
  const uint64_t id_;
};

class BeastServer final : public HttpServer {
 public:
  BeastServer(const HttpOptions& options, HttpHandlers handlers)
      : options_(options), handlers_(std::move(handlers)), context_(options.n_threads) {}
  ~BeastServer() override {
    close_all();
    context_.stop();
    for (std::thread& thread : threads_) thread.join();
  }

  Result<void> listen();
  uint16_t port() const override { return port_; }
  size_t n_connections() const override { return n_connections_; }
  void stop(double timeout_s) override;

  const HttpOptions& options() const { return options_; }
  const HttpHandlers& handlers() const { return handlers_; }
  void add(const std::shared_ptr<Connection>& connection);
  void remove(const std::shared_ptr<Connection>& connection);

 private:
  void close_all();
  Result<void> load_tls();
  Result<void> listen_on(const std::string& address, bool is_first);
  asio::awaitable<void> accept(std::shared_ptr<Acceptor> acceptor);
  asio::awaitable<void> turn_away(Socket socket);

  const HttpOptions options_;
  const HttpHandlers handlers_;
  asio::io_context context_;
  std::optional<asio::ssl::context> tls_;
  std::vector<std::shared_ptr<Acceptor>> acceptors_;
  std::vector<std::thread> threads_;
  uint16_t port_ = 0;
  std::atomic<size_t> n_connections_ = 0;
  std::atomic<size_t> n_turned_away_ = 0;
  std::mutex mutex_;
  std::condition_variable is_empty_;
  std::set<std::shared_ptr<Connection>> connections_;
};

// ---- Connection: time ---------------------------------------------------------------------------

// When the time is over every operation on the socket ends; is_timed_out_ tells why.
void Connection::arm(double timeout_s) {
  is_timed_out_ = false;
  const uint64_t round = ++deadline_round_;
  deadline_.expires_after(seconds(timeout_s));
  deadline_.async_wait([self = shared_from_this(), round](error_code ec) {
    if (ec || round != self->deadline_round_) return;
    self->is_timed_out_ = true;
    error_code ignored;
    self->socket_.cancel(ignored);
  });
}

void Connection::disarm() {
  ++deadline_round_;
  deadline_.cancel();
}

asio::awaitable<void> Connection::wait_until(SteadyTime time) {
  error_code ec;
  wake_.expires_at(time);
  co_await wake_.async_wait(asio::redirect_error(asio::use_awaitable, ec));
}

void Connection::close_if_idle() {
  is_stopping_ = true;
  if (is_idle_) abort();
}

void Connection::abort() {
  error_code ignored;
  socket_.close(ignored);
  client_gone();
}

void Connection::abandon() {
  if (!answer_.is_complete()) abort();
}

// ---- Connection: bytes, plain or through TLS ----------------------------------------------------

asio::awaitable<bool> Connection::shake_hands() {
  if (!tls_) co_return true;
  is_idle_ = false;
  arm(server_.options().header_timeout_s);
  error_code ec;
  co_await tls_->async_handshake(asio::ssl::stream_base::server,
                                 asio::redirect_error(asio::use_awaitable, ec));
  disarm();
  is_idle_ = true;
  co_return !ec;
}

asio::awaitable<size_t> Connection::read_some(asio::mutable_buffer into, error_code& ec) {
  // The kernel tells of an end once, and who reads behind it would wait for it to be told again.
  if (has_client_fin_) {
    ec = asio::error::eof;
    co_return 0;
  }
  size_t n = 0;
  if (tls_)
    n = co_await tls_->async_read_some(into, asio::redirect_error(asio::use_awaitable, ec));
  else
    n = co_await socket_.async_read_some(into, asio::redirect_error(asio::use_awaitable, ec));
  // A client that goes without TLS's own goodbye is gone all the same.
  if (ec == asio::ssl::error::stream_truncated) ec = asio::error::eof;
  has_client_fin_ = ec == asio::error::eof;
  co_return n;
}

asio::awaitable<size_t> Connection::write_some(asio::const_buffer from, error_code& ec) {
  if (tls_)
    co_return co_await tls_->async_write_some(from, asio::redirect_error(asio::use_awaitable, ec));
  co_return co_await socket_.async_write_some(from, asio::redirect_error(asio::use_awaitable, ec));
}

// ---- Connection: reading ------------------------------------------------------------------------

asio::awaitable<void> Connection::run() {
  error_code ignored;
  socket_.set_option(tcp::no_delay(true), ignored);
  socket_.non_blocking(true, ignored);  // of send_at_once; waiting is the coroutine's
  if (co_await shake_hands()) {
    while (co_await serve_one()) {
    }
  }
  if (is_refused_) {
    co_await send_pending();
    co_await linger();
  }
  disarm();
  socket_.shutdown(tcp::socket::shutdown_both, ignored);
  socket_.close(ignored);
  server_.remove(shared_from_this());
}

asio::awaitable<std::optional<HttpHead>> Connection::read_head() {
  const HttpOptions& options = server_.options();
  asked_ = HttpRequest();
  size_t n_seen = 0;
  bool is_armed_for_head = !is_first_request_ && buffer_.size() == 0;
  arm(is_armed_for_head ? options.idle_timeout_s : options.header_timeout_s);
  for (;;) {
    // Empty lines before a request are left over by some clients.
    auto text = [&] {
      return std::string_view(static_cast<const char*>(buffer_.data().data()), buffer_.size());
    };
    while (text().starts_with("\r\n")) buffer_.consume(2);
    if (const std::optional<size_t> end = find_head_end(text(), n_seen)) {
      Result<HttpHead> head = read_http_head(text().substr(0, *end));
      if (!head) {
        refuse(head.error().refusal, head.error().detail);
        co_return std::nullopt;
      }
      note_asked(text().substr(0, *end));
      co_return *head;
    }
    n_seen = buffer_.size();
    if (n_seen >= limits::kHeaderBytesMax) {
      const std::string detail = fmt::format("more than {} bytes", limits::kHeaderBytesMax);
      refuse(Refusal::HttpHeaderTooLarge, detail);
      co_return std::nullopt;
    }
    error_code ec;
    const size_t n = co_await read_some(
        buffer_.prepare(std::min(kHeadReadBytes, limits::kHeaderBytesMax - n_seen)), ec);
    if (ec && is_timed_out_ && n_seen > 0) {
      const std::string detail =
          fmt::format("{} bytes of a header in {} seconds", n_seen, options.header_timeout_s);
      refuse(Refusal::HttpReadTimeout, detail);
      co_return std::nullopt;
    }
    if (ec) co_return std::nullopt;
    buffer_.commit(n);
    is_idle_ = false;
    if (is_armed_for_head) arm(options.header_timeout_s);
    is_armed_for_head = false;
  }
}

// Why a body could not be read; nothing when the client is simply gone.
std::optional<Error> Connection::body_error(const error_code& ec, const HttpHead& head,
                                            size_t n_read, double took_s) const {
  const HttpOptions& options = server_.options();
  if (is_timed_out_)
    return Error{Refusal::HttpReadTimeout,
                 fmt::format("{} bytes of a body in {:.1f} seconds", n_read, took_s)};
  if (ec == http::error::body_limit)
    return Error{Refusal::HttpBodyTooLarge,
                 fmt::format("more than {} bytes, at most {}", options.body_bytes_max,
                             options.body_bytes_max)};
  if (ec.category() != http::make_error_code(http::error::bad_chunk).category() || !head.is_chunked)
    return std::nullopt;
  return Error{Refusal::HttpBadRequest, "the chunks are malformed"};
}

// ec: of the bytes that came with the head.
asio::awaitable<bool> Connection::read_body(const HttpHead& head, Parser& parser, error_code ec) {
  const HttpOptions& options = server_.options();
  const SteadyTime begin = now();
  while (!ec && !parser.is_done()) {
    // The deadline moves with what has come: 1 KiB/s after the grace, and a bound over all.
    const double n = static_cast<double>(parser.get().body().size());
    const double total = options.body_timeout_s * std::max(1.0, n / kBodyBytesPerTimeout);
    const double until = std::min(options.body_grace_s + n / kBodyBytesPerSecond, total);
    arm(std::max(0.001, until - std::chrono::duration<double>(now() - begin).count()));
    const size_t n_read = co_await read_some(buffer_.prepare(kBodyReadBytes), ec);
    if (ec) break;
    buffer_.commit(n_read);
    buffer_.consume(parser.put(buffer_.data(), ec));
    if (ec == http::error::need_more) ec = {};
  }
  if (buffer_.size() == 0) buffer_.shrink_to_fit();  // a connection that waits keeps little
  const double took_s = std::chrono::duration<double>(now() - begin).count();
  std::optional<Error> error;
  if (ec) error = body_error(ec, head, parser.get().body().size(), took_s);
  if (error) refuse(error->refusal, error->detail);
  if (!ec) disarm();
  co_return !ec;
}

// The absolute form names the host again; what counts is the Host line.
std::string origin_form(std::string_view target) {
  if (!target.starts_with("http://")) return std::string(target);
  const size_t slash = target.find('/', 7);
  return slash == std::string_view::npos ? "/" : std::string(target.substr(slash));
}

// What a refusal goes by before the request is read.
void Connection::note_asked(std::string_view block) {
  const std::string target = origin_form(target_in_head(block));
  asked_.path = target.substr(0, target.find('?'));
  asked_.headers = {{"x-request-id", std::string(field_in_head(block, "x-request-id"))}};
}

HttpRequest to_request(http::request<http::string_body>&& message, bool is_reserve) {
  HttpRequest out;
  out.method = std::string(message.method_string());
  const std::string target = origin_form(message.target());
  const size_t mark = std::min(target.find('?'), target.size());
  out.path = target.substr(0, mark);
  if (mark < target.size()) out.query = target.substr(mark + 1);
  for (const auto& field : message) {
    std::string name(field.name_string());
    std::transform(name.begin(), name.end(), name.begin(),
                   [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
    out.headers.emplace_back(std::move(name), std::string(field.value()));
  }
  out.body = std::move(message.body());
  out.is_reserve = is_reserve;
  return out;
}

// One request and its answer; true when another may follow on the connection.
asio::awaitable<bool> Connection::serve_one() {
  is_idle_ = buffer_.size() == 0;
  if (is_stopping_ && is_idle_) co_return false;
  const std::optional<HttpHead> head = co_await read_head();
  if (!head) co_return false;
  is_first_request_ = false;
  is_idle_ = false;
  begin_answer(*head);

  const size_t n_max = server_.options().body_bytes_max;
  if (head->content_length.value_or(0) > n_max) {
    const std::string detail =
        fmt::format("have {} bytes, at most {}", *head->content_length, n_max);
    refuse(Refusal::HttpBodyTooLarge, detail);
    co_return false;
  }
  Parser parser;
  parser.header_limit(static_cast<uint32_t>(limits::kHeaderBytesMax + 1));
  parser.body_limit(n_max);
  parser.eager(true);
  error_code ec;
  buffer_.consume(parser.put(buffer_.data(), ec));
  if (ec == http::error::need_more) ec = {};
  if (!parser.is_header_done()) {
    const std::string detail = "the header is malformed";
    refuse(Refusal::HttpBadRequest, detail);
    co_return false;
  }
  if (!ec && head->expects_continue && !parser.is_done() && parser.get().body().empty()) {
    answer_.interim(kContinue);
    if (!co_await send_pending()) co_return false;
  }
  if (!co_await read_body(*head, parser, ec)) co_return false;

  HttpRequest request = to_request(parser.release(), is_reserve_);
  answer_.set_head_method(request.method == "HEAD");
  server_.handlers().handle(std::move(request),
                            std::make_shared<Exchange>(shared_from_this(), exchange_id_));
  co_await send_answer();
  ++exchange_id_;
  gone_callback_ = sent_callback_ = nullptr;
  if (is_gone_) co_return false;
  if (!answer_.closes() && !is_stopping_) co_return true;
  co_await linger();
  co_return false;
}

// Makes a refusal of HTTP's own the connection's last answer: what follows of the request must not
// be taken for the next one. run() sends it, so that no text is alive across a co_await: g++ 12
// destroys the objects of a scope that co_return leaves twice.
void Connection::refuse(Refusal refusal, const std::string& detail) {
  begin_answer(head_);
  respond_refusal(refusal, detail);
  is_refused_ = true;
}

void Connection::respond_refusal(Refusal refusal, const std::string& detail) {
  HttpResponse response = server_.handlers().refuse(Error{refusal, detail}, asked_);
  response.closes = true;
  respond(std::move(response));
}

// Lets the client read the answer before the socket goes: closing on unread bytes would reset it.
asio::awaitable<void> Connection::linger() {
  error_code ec;
  if (tls_) {
    arm(kLingerSeconds);
    co_await tls_->async_shutdown(asio::redirect_error(asio::use_awaitable, ec));
    disarm();
  }
  socket_.shutdown(tcp::socket::shutdown_send, ec);
  if (ec || has_client_fin_) co_return;
  arm(kLingerSeconds);
  std::string sink(kHeadReadBytes, '\0');
  for (size_t n_total = 0; n_total < kLingerBytesMax && !is_timed_out_;) {
    const size_t n = co_await socket_.async_read_some(
        asio::buffer(sink), asio::redirect_error(asio::use_awaitable, ec));
    if (ec) break;
    n_total += n;
  }
  disarm();
}

// ---- Connection: answering ----------------------------------------------------------------------

void Connection::begin_answer(const HttpHead& head) {
  head_ = head;
  answer_ = HttpAnswer(head, false, is_stopping_);
  is_gone_ = false;
  n_in_flight_ = 0;
  gone_callback_ = sent_callback_ = nullptr;
}

void Connection::respond(HttpResponse response) {
  if (is_gone_) return;
  answer_.respond(response);
  wake_.cancel();
}

void Connection::begin_stream(HttpHeaders headers, std::function<std::string()> idle) {
  if (is_gone_) return;
  answer_.begin_stream(std::move(headers), std::move(idle));
  wake_.cancel();
}

void Connection::write(std::string bytes) {
  if (!answer_.is_stream() || answer_.is_complete() || is_gone_ || bytes.empty()) return;
  if (n_unsent() + bytes.size() > limits::kStreamBufferBytesMax) {
    log(LogLevel::kWarning, "slow_reader", {{"unsent", fmt::to_string(n_unsent())}});
    abort();
    return;
  }
  const bool is_first_in_line = n_unsent() == 0;
  answer_.write(bytes);
  if (is_first_in_line && !tls_) send_at_once();
  if (answer_.n_pending() > 0) wake_.cancel();
}

// Most events of a stream are taken by the socket without waiting: they need neither a timer nor
// the coroutine. Only what has nothing unsent in front of it goes this way, so that from the first
// byte that had to wait until the last one has left, the coroutine alone writes, and tells
// sent_callback_. An error is found again, and handled, there.
void Connection::send_at_once() {
  std::string bytes = answer_.take_pending();
  error_code ec;
  const size_t n_sent = socket_.write_some(asio::buffer(bytes), ec);
  if (n_sent > 0) last_sent_ = now();
  if (n_sent == bytes.size()) return;
  bytes.erase(0, n_sent);
  answer_.put_back(std::move(bytes));
}

void Connection::end_stream(bool keeps_connection) {
  if (is_gone_) return;
  answer_.end_stream(keeps_connection);
  wake_.cancel();
}

void Connection::on_gone(std::function<void()> callback) {
  if (answer_.is_complete()) return;
  if (is_gone_)
    callback();
  else
    gone_callback_ = std::move(callback);
}

void Connection::client_gone() {
  if (is_gone_) return;
  is_gone_ = true;
  answer_.drop();
  wake_.cancel();
  sent_callback_ = nullptr;
  if (const std::function<void()> callback = std::exchange(gone_callback_, nullptr))
    if (!answer_.is_complete()) callback();
}

// Writes what is pending; false when the client is gone.
asio::awaitable<bool> Connection::send_pending() {
  while (answer_.n_pending() > 0) {
    const std::string bytes = answer_.take_pending();
    size_t n_sent = 0;
    while (n_sent < bytes.size()) {
      n_in_flight_ = bytes.size() - n_sent;
      arm(server_.options().write_timeout_s);
      error_code ec;
      n_sent += co_await write_some(asio::buffer(bytes.data() + n_sent, bytes.size() - n_sent), ec);
      if (ec || is_gone_) {
        client_gone();
        co_return false;
      }
    }
    n_in_flight_ = 0;
    last_sent_ = now();
  }
  disarm();
  co_return true;
}

// Sends pieces as they come and idle bytes between them, until the answer is complete or the client
// gone; then waits for the watcher, which shares the socket and the buffer.
asio::awaitable<void> Connection::send_answer() {
  last_sent_ = now();
  // An answer that is complete already needs nobody to watch for its reader.
  if (!answer_.is_complete()) {
    is_watching_ = true;
    asio::co_spawn(
        strand(), [self = shared_from_this()] { return self->watch_client(); }, asio::detached);
  }
  while (!is_gone_) {
    if (answer_.n_pending() > 0) {
      if (!co_await send_pending()) break;
      if (const std::function<void()> callback = std::exchange(sent_callback_, nullptr)) callback();
      continue;
    }
    if (answer_.is_complete()) break;
    const SteadyTime idle_at = last_sent_ + seconds(server_.options().keepalive_s);
    if (answer_.is_stream() && now() >= idle_at) {
      last_sent_ = now();
      write(answer_.idle());
      continue;
    }
    co_await wait_until(answer_.is_stream() ? idle_at : SteadyTime::max());
  }
  const bool was_gone = is_gone_;
  answer_.end();
  while (is_watching_) {
    error_code ignored;
    socket_.cancel(ignored);
    co_await wait_until(SteadyTime::max());
  }
  is_gone_ = was_gone;
}

// Reads while the answer is in work: bytes are the next request, an end or an error is the client
// going.
asio::awaitable<void> Connection::watch_client() {
  error_code ec;
  while (!answer_.is_complete() && !is_gone_) {
    if (buffer_.size() >= limits::kHeaderBytesMax || has_client_fin_) {
      co_await probe_half_closed();
      break;
    }
    const size_t n = co_await read_some(buffer_.prepare(kHeadReadBytes), ec);
    if (!ec) {
      buffer_.commit(n);
    } else if (ec == asio::error::eof) {
      if (head_.is_http_1_0) client_gone();
    } else {
      if (ec != asio::error::operation_aborted) client_gone();
      break;
    }
  }
  is_watching_ = false;
  wake_.cancel();
}

// The client has sent its FIN (or so much that reading on would buffer it): a comment or an interim
// answer draws a reset if nobody is there, and the error event tells.
asio::awaitable<void> Connection::probe_half_closed() {
  if (has_client_fin_ && answer_.is_stream()) write(": \n\n");
  if (has_client_fin_ && !answer_.has_begun()) answer_.interim(kContinue);
  wake_.cancel();
  error_code ec;
  co_await socket_.async_wait(Socket::wait_error, asio::redirect_error(asio::use_awaitable, ec));
  if (ec != asio::error::operation_aborted) client_gone();
}

// ---- Server -------------------------------------------------------------------------------------

void BeastServer::add(const std::shared_ptr<Connection>& connection) {
  const std::lock_guard lock(mutex_);
  connections_.insert(connection);
}

void BeastServer::remove(const std::shared_ptr<Connection>& connection) {
  const std::lock_guard lock(mutex_);
  connections_.erase(connection);
  --n_connections_;
  if (connections_.empty()) is_empty_.notify_all();
}

Result<void> BeastServer::listen_on(const std::string& address, bool is_first) {
  error_code ec;
  const asio::ip::address ip = asio::ip::make_address(address, ec);
  if (ec) return Error{Refusal::FlagValue, fmt::format("{} is no IP address", address)};
  const tcp::endpoint endpoint(ip, is_first ? options_.port : port_);
  auto acceptor = std::make_shared<Acceptor>(asio::make_strand(context_));
  acceptor->open(endpoint.protocol(), ec);
  if (!ec) acceptor->set_option(asio::socket_base::reuse_address(true), ec);
  if (!ec && ip.is_v6()) acceptor->set_option(asio::ip::v6_only(true), ec);
  if (!ec) acceptor->bind(endpoint, ec);
  const bool is_absent = ec == asio::error::address_family_not_supported ||
                         ec == boost::system::errc::address_not_available;
  if (!ec) acceptor->listen(asio::socket_base::max_listen_connections, ec);
  // A port that the system chose may be taken at the further addresses: nobody asked for them.
  if (ec && !is_first && (is_absent || options_.port == 0)) return {};
  if (ec)
    return Error{Refusal::PortTaken,
                 fmt::format("{} port {}: {}", address, endpoint.port(), ec.message())};
  if (is_first) port_ = acceptor->local_endpoint().port();
  acceptors_.push_back(std::move(acceptor));
  return {};
}

Result<void> BeastServer::load_tls() {
  tls_.emplace(asio::ssl::context::tls_server);
  tls_->set_options(asio::ssl::context::default_workarounds | asio::ssl::context::no_tlsv1 |
                    asio::ssl::context::no_tlsv1_1);
  error_code ec;
  tls_->use_certificate_chain_file(options_.tls_certificate_file, ec);
  if (ec) return Error{Refusal::TlsFiles, "the certificate: " + ec.message()};
  tls_->use_private_key_file(options_.tls_key_file, asio::ssl::context::pem, ec);
  if (ec) return Error{Refusal::TlsFiles, "the key: " + ec.message()};
  return {};
}

Result<void> BeastServer::listen() {
  if (!options_.tls_certificate_file.empty()) ROOST_TRY_DO(load_tls());
  for (const std::string& address : options_.addresses)
    ROOST_TRY_DO(listen_on(address, acceptors_.empty()));
  for (const auto& acceptor : acceptors_)
    asio::co_spawn(acceptor->get_executor(), accept(acceptor), asio::detached);
  for (int i = 0; i < options_.n_threads; ++i) {
    threads_.emplace_back([this] {
      pthread_setname_np(pthread_self(), "roost-http");
      context_.run();
    });
  }
  return {};
}

asio::awaitable<void> BeastServer::accept(std::shared_ptr<Acceptor> acceptor) {
  for (;;) {
    error_code ec;
    Strand strand = asio::make_strand(context_);
    Socket socket(strand);
    co_await acceptor->async_accept(socket, asio::redirect_error(asio::use_awaitable, ec));
    if (ec == asio::error::operation_aborted || !acceptor->is_open()) co_return;
    if (ec) {
      // Out of descriptors, most likely: others must end before another can begin.
      log(LogLevel::kWarning, "accept_failed", {{"reason", ec.message()}});
      Timer pause(acceptor->get_executor(), std::chrono::milliseconds(100));
      co_await pause.async_wait(asio::redirect_error(asio::use_awaitable, ec));
      continue;
    }
    const size_t n = ++n_connections_;
    if (n > options_.connections_max + options_.reserve_connections) {
      --n_connections_;
      asio::co_spawn(strand, turn_away(std::move(socket)), asio::detached);
      continue;
    }
    auto connection = std::make_shared<Connection>(
        std::move(socket), *this, n > options_.connections_max, tls_ ? &*tls_ : nullptr);
    add(connection);
    asio::co_spawn(strand, [connection] { return connection->run(); }, asio::detached);
  }
}

// One short answer without reading anything; a flood of these is closed without a word.
asio::awaitable<void> BeastServer::turn_away(Socket socket) {
  if (++n_turned_away_ <= options_.reserve_connections && !tls_) {
    const HttpResponse response = handlers_.refuse(
        Error{Refusal::HttpConnections, fmt::format("at most {}", options_.connections_max)}, {});
    const std::string bytes = fmt::format(
        "HTTP/1.1 503 Service Unavailable\r\nServer: roost\r\nContent-Type: {}\r\nRetry-After: "
        "1\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{}",
        response.content_type, response.body.size(), response.body);
    error_code ec;
    socket.non_blocking(true, ec);
    socket.write_some(asio::buffer(bytes), ec);
    socket.shutdown(tcp::socket::shutdown_send, ec);
    // The client's request is on its way: taking it keeps the answer from being reset.
    Timer pause(socket.get_executor(), std::chrono::milliseconds(200));
    co_await pause.async_wait(asio::redirect_error(asio::use_awaitable, ec));
    std::string sink(kHeadReadBytes, '\0');
    socket.read_some(asio::buffer(sink), ec);
  }
  --n_turned_away_;
}

void BeastServer::stop(double timeout_s) {
  for (const auto& acceptor : acceptors_)
    asio::post(acceptor->get_executor(), [acceptor] {
      error_code ignored;
      acceptor->close(ignored);
    });
  std::unique_lock lock(mutex_);
  for (const auto& connection : connections_)
    asio::post(connection->strand(), [connection] { connection->close_if_idle(); });
  is_empty_.wait_for(lock, seconds(timeout_s), [this] { return connections_.empty(); });
}

// Ends every connection and waits until their coroutines have: none may outlive the handlers.
void BeastServer::close_all() {
  stop(0);
  std::unique_lock lock(mutex_);
  for (const auto& connection : connections_)
    asio::post(connection->strand(), [connection] { connection->abort(); });
  is_empty_.wait_for(lock, std::chrono::seconds(5), [this] { return connections_.empty(); });
}

}  // namespace

std::string_view HttpRequest::header(std::string_view lower_case_name) const {
  for (const auto& [name, value] : headers)
    if (name == lower_case_name) return value;
  return {};
}

Result<std::unique_ptr<HttpServer>> HttpServer::start(const HttpOptions& options,
                                                      HttpHandlers handlers) {
  auto server = std::make_unique<BeastServer>(options, std::move(handlers));
  ROOST_TRY_DO(server->listen());
  return std::unique_ptr<HttpServer>(std::move(server));
}

}  // namespace roost
