// The server over loopback with raw sockets: what HTTP allows, what it does not, and that the next
// plain request is answered after anything.
#include "server/http_server.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <thread>

#include "server/service.h"
#include "tests/sim/fledgling_text.h"

namespace roost {
namespace {

constexpr int kPatienceMs = 10'000;  // far more than anything here takes

class Client {
 public:
  explicit Client(uint16_t port) : socket_(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(::connect(socket_, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  }
  ~Client() { close(); }
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  void close() {
    if (socket_ >= 0) ::close(socket_);
    socket_ = -1;
  }
  void reset() {
    const linger hard{1, 0};
    ::setsockopt(socket_, SOL_SOCKET, SO_LINGER, &hard, sizeof hard);
    close();
  }
  void half_close() { ::shutdown(socket_, SHUT_WR); }
  void shrink_receive_buffer() {
    const int n = 4096;
    ::setsockopt(socket_, SOL_SOCKET, SO_RCVBUF, &n, sizeof n);
  }

  bool send(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t n = ::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (n <= 0) return false;
      bytes.remove_prefix(static_cast<size_t>(n));
    }
    return true;
  }

  // Everything up to `end`, or to the end of the connection.
  std::string read_until(std::string_view end) {
    while (buffer_.find(end) == std::string::npos && fill()) {
    }
    const size_t at = buffer_.find(end);
    const size_t n = at == std::string::npos ? buffer_.size() : at + end.size();
    std::string out = buffer_.substr(0, n);
    buffer_.erase(0, n);
    return out;
  }
  std::string read_all() {
    while (fill()) {
    }
    return std::exchange(buffer_, "");
  }
  bool is_at_end() { return buffer_.empty() && !fill(); }

  struct Answer {
    int status = 0;
    std::string head, body;
  };
  // One answer with a Content-Length, or chunked.
  Answer read_answer() {
    Answer out;
    out.head = read_until("\r\n\r\n");
    if (out.head.size() > 12) out.status = std::atoi(out.head.c_str() + 9);
    if (out.status == 100) return read_answer();
    const size_t length = out.head.find("Content-Length: ");
    if (length != std::string::npos) {
      const size_t n = static_cast<size_t>(std::atoll(out.head.c_str() + length + 16));
      while (buffer_.size() < n && fill()) {
      }
      out.body = buffer_.substr(0, n);
      buffer_.erase(0, n);
    } else if (out.head.find("Transfer-Encoding: chunked") != std::string::npos) {
      for (;;) {
        const std::string size = read_until("\r\n");
        const size_t n = std::strtoul(size.c_str(), nullptr, 16);
        while (buffer_.size() < n + 2 && fill()) {
        }
        out.body += buffer_.substr(0, n);
        buffer_.erase(0, std::min(n + 2, buffer_.size()));
        if (n == 0) break;
      }
    }
    return out;
  }

 private:
  bool fill() {
    pollfd waiting{socket_, POLLIN, 0};
    if (::poll(&waiting, 1, kPatienceMs) <= 0) return false;
    char bytes[65536];
    const ssize_t n = ::recv(socket_, bytes, sizeof bytes, 0);
    if (n <= 0) return false;
    buffer_.append(bytes, static_cast<size_t>(n));
    return true;
  }

  int socket_;
  std::string buffer_;
};

class HttpServerTest : public testing::Test {
 protected:
  void SetUp() override { options_.port = 0; }
  void TearDown() override {
    if (server_) server_->stop(5);
    if (fake_.model) fake_.model->engine.reset();
    server_.reset();
  }

  void start(FakeEngineOptions engine) {
    fake_ = fledgling_with(std::move(engine));
    service_.serve(fake_.model);
    HttpHandlers handlers;
    handlers.handle = [this](HttpRequest request, std::shared_ptr<HttpExchange> exchange) {
      service_.handle(std::move(request), std::move(exchange));
    };
    handlers.refuse = [this](const Error& error, const HttpRequest& asked) {
      return service_.refuse(error, asked);
    };
    Result<std::unique_ptr<HttpServer>> server = HttpServer::start(options_, std::move(handlers));
    ASSERT_TRUE(server) << to_string(server.error());
    server_ = std::move(server).value();
    service_.set_port(server_->port());
  }

  std::string host() const { return "Host: 127.0.0.1:" + std::to_string(server_->port()) + "\r\n"; }
  std::string get(const std::string& path, const std::string& more = "") const {
    return "GET " + path + " HTTP/1.1\r\n" + host() + more + "\r\n";
  }
  std::string post_head(size_t n_bytes) const {
    return "POST /v1/chat/completions HTTP/1.1\r\n" + host() +
           "Content-Type: application/json\r\nContent-Length: " + std::to_string(n_bytes) + "\r\n";
  }
  std::string chat(const std::string& members = "", const std::string& more_headers = "") const {
    const std::string body =
        R"({"messages":[{"role":"user","content":"Hi"}],"enable_thinking":false)" +
        (members.empty() ? "" : "," + members) + "}";
    return post_head(body.size()) + more_headers + "\r\n" + body;
  }

  // The next plain request is answered right, on a connection of its own.
  void expect_alive() {
    Client client(server_->port());
    client.send(chat());
    const Client::Answer answer = client.read_answer();
    EXPECT_EQ(answer.status, 200) << answer.body;
    EXPECT_NE(answer.body.find("\"content\":\"All is well.\""), std::string::npos) << answer.body;
  }

  void expect_refused(const std::string& bytes, int status, const std::string& code) {
    Client client(server_->port());
    client.send(bytes);
    const Client::Answer answer = client.read_answer();
    EXPECT_EQ(answer.status, status) << bytes.substr(0, 100);
    EXPECT_NE(answer.body.find("\"refusal\":\"" + code + "\""), std::string::npos)
        << bytes.substr(0, 100) << "\n"
        << answer.body;
    expect_alive();
  }

  HttpOptions options_;
  Service service_{ServiceOptions(), system_clock(), system_random()};
  FakeModel fake_;
  std::unique_ptr<HttpServer> server_;
};

const FakeEngineOptions& well() {
  static const FakeEngineOptions kOptions = says("All is well.");
  return kOptions;
}

TEST_F(HttpServerTest, several_requests_follow_each_other_on_one_connection) {
  start(well());
  Client client(server_->port());
  for (int i = 0; i < 3; ++i) {
    client.send(get("/health"));
    const Client::Answer answer = client.read_answer();
    EXPECT_EQ(answer.status, 200);
    EXPECT_EQ(answer.body, R"({"status":"ok"})");
    EXPECT_NE(answer.head.find("Server: roost\r\n"), std::string::npos);
    client.send(chat());
    EXPECT_EQ(client.read_answer().status, 200);
  }
}

TEST_F(HttpServerTest, pipelined_requests_are_answered_in_order) {
  start(well());
  Client client(server_->port());
  client.send(get("/version") + chat() + chat(R"("stream":true)") + get("/health") + get("/nope"));
  EXPECT_NE(client.read_answer().body.find("version"), std::string::npos);
  EXPECT_NE(client.read_answer().body.find("All is well."), std::string::npos);
  EXPECT_NE(client.read_answer().body.find("data: [DONE]"), std::string::npos);
  EXPECT_EQ(client.read_answer().status, 200);
  EXPECT_EQ(client.read_answer().status, 404);
}

TEST_F(HttpServerTest, a_refused_request_is_read_to_its_end) {
  start(well());
  Client client(server_->port());
  const std::string evil = get("/evil");
  client.send("POST /v1/chat/completions HTTP/1.1\r\n" + host() +
              "Content-Type: text/plain\r\nContent-Length: " + std::to_string(evil.size()) +
              "\r\n\r\n" + evil + chat());
  EXPECT_EQ(client.read_answer().status, 415);
  EXPECT_EQ(client.read_answer().status, 200);
}

TEST_F(HttpServerTest, a_stream_has_its_headers_and_ends_with_done) {
  start(well());
  Client client(server_->port());
  client.send(chat(R"("stream":true)"));
  const Client::Answer answer = client.read_answer();
  EXPECT_EQ(answer.status, 200);
  for (const char* line : {"Content-Type: text/event-stream; charset=utf-8",
                           "X-Request-Id: ", "Cache-Control: no-store", "X-Accel-Buffering: no"})
    EXPECT_NE(answer.head.find(line), std::string::npos) << line;
  EXPECT_TRUE(answer.body.ends_with("data: [DONE]\n\n"));
  client.send(get("/health"));
  EXPECT_EQ(client.read_answer().status, 200);
}

TEST_F(HttpServerTest, chunked_bodies_are_read_whatever_their_cut) {
  start(well());
  const std::string body =
      R"({"messages":[{"role":"user","content":"Hi"}],"enable_thinking":false})";
  for (const size_t n_chunk : {1, 7, 1000}) {
    Client client(server_->port());
    client.send("POST /v1/chat/completions HTTP/1.1\r\n" + host() +
                "Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n");
    for (size_t at = 0; at < body.size(); at += n_chunk) {
      const std::string piece = body.substr(at, n_chunk);
      char size[32];
      std::snprintf(size, sizeof size, "%zx\r\n", piece.size());
      client.send(size + piece + "\r\n");
    }
    client.send("0\r\n\r\n");
    EXPECT_EQ(client.read_answer().status, 200) << n_chunk;
    client.send(get("/health"));
    EXPECT_EQ(client.read_answer().status, 200) << n_chunk;
  }
}

TEST_F(HttpServerTest, a_request_may_come_byte_by_byte) {
  start(well());
  Client client(server_->port());
  for (const char c : chat()) client.send(std::string_view(&c, 1));
  EXPECT_EQ(client.read_answer().status, 200);
}

TEST_F(HttpServerTest, hostile_requests_are_refused_by_name_and_hurt_nobody) {
  start(well());
  const std::string lines = "POST /v1/chat/completions HTTP/1.1\r\n" + host();
  expect_refused("rubbish\r\n\r\n", 400, "http.bad_request");
  expect_refused("GET / HTTP/1.1\r\n\r\n", 400, "http.bad_request");
  expect_refused("GET / HTTP/1.1\r\n" + host() + host() + "\r\n", 400, "http.bad_request");
  expect_refused("GET / HTTP/3.0\r\n" + host() + "\r\n", 400, "http.bad_request");
  expect_refused("GET / HTTP/1.1\r\n" + host() + " fold\r\n\r\n", 400, "http.bad_request");
  expect_refused("GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n", 421, "http.host_not_allowed");
  expect_refused(lines + "Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n{}", 400,
                 "http.length_conflict");
  expect_refused(lines + "Transfer-Encoding: chunked\r\n\r\nzz\r\n", 400, "http.bad_request");
  expect_refused("GET /" + std::string(9000, 'a') + " HTTP/1.1\r\n" + host() + "\r\n", 414,
                 "http.uri_too_long");
  expect_refused("GET / HTTP/1.1\r\n" + host() + "A: " + std::string(70'000, 'a') + "\r\n\r\n", 431,
                 "http.header_too_large");
  std::string many = "GET / HTTP/1.1\r\n" + host();
  for (int i = 0; i < 20'000; ++i) many += "A: b\r\n";
  expect_refused(many + "\r\n", 431, "http.header_too_large");
  expect_refused(get("/nothing"), 404, "http.unknown_path");
  expect_refused(get("/v1/chat/completions"), 405, "http.method_not_allowed");
  expect_refused("BREW / HTTP/1.1\r\n" + host() + "\r\n", 405, "http.method_not_allowed");
  expect_refused(post_head(5) + "\r\n{bad}", 400, "json.invalid");
  expect_refused(post_head(3) + "\r\n\"\xFF\"", 400, "json.invalid_unicode");
  expect_refused(post_head(400) + "\r\n" + std::string(200, '[') + std::string(200, ']'), 400,
                 "json.too_deep");
  expect_refused(lines + "Content-Type: text/plain\r\nContent-Length: 2\r\n\r\n{}", 415,
                 "http.content_type");
  expect_refused(lines +
                     "Content-Type: application/json\r\nContent-Encoding: gzip\r\n"
                     "Content-Length: 2\r\n\r\n{}",
                 415, "http.content_encoding");
}

TEST_F(HttpServerTest, a_body_too_large_is_refused_with_both_numbers_while_it_is_read) {
  options_.body_bytes_max = 1000;
  start(well());
  {
    Client client(server_->port());
    client.send(post_head(1'073'741'824) + "\r\n");
    const Client::Answer answer = client.read_answer();
    EXPECT_EQ(answer.status, 413);
    EXPECT_NE(answer.body.find("have 1073741824 bytes, at most 1000"), std::string::npos)
        << answer.body;
    EXPECT_NE(answer.head.find("Connection: close"), std::string::npos);
    EXPECT_TRUE(client.is_at_end());
  }
  {  // In the shape of its dialect, with the client's own id.
    Client client(server_->port());
    client.send("POST /v1/messages?beta=true HTTP/1.1\r\n" + host() +
                "X-Request-ID: mine\r\nContent-Length: 9999\r\n\r\n");
    const Client::Answer answer = client.read_answer();
    EXPECT_EQ(answer.status, 413);
    EXPECT_TRUE(answer.body.starts_with(R"({"type":"error","error":{"type":"request_too_large")"))
        << answer.body;
    EXPECT_NE(answer.body.find(R"("request_id":"mine")"), std::string::npos) << answer.body;
    EXPECT_NE(answer.head.find("request-id: mine\r\n"), std::string::npos) << answer.head;
  }
  Client client(server_->port());
  client.send("POST /v1/chat/completions HTTP/1.1\r\n" + host() +
              "Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n");
  for (int i = 0; i < 11; ++i) client.send("64\r\n" + std::string(100, ' ') + "\r\n");
  const Client::Answer answer = client.read_answer();
  EXPECT_EQ(answer.status, 413) << answer.body;
  EXPECT_NE(answer.body.find("http.body_too_large"), std::string::npos) << answer.body;
  EXPECT_NE(answer.body.find("at most 1000"), std::string::npos) << answer.body;
  expect_alive();
}

TEST_F(HttpServerTest, a_header_or_a_body_that_does_not_come_is_timed_out) {
  options_.header_timeout_s = options_.body_grace_s = 0.2;
  start(well());
  Client header(server_->port()), body(server_->port());
  header.send("GET / HTTP/1.1\r\nHo");
  body.send(post_head(100) + "\r\n{\"messages\"");
  const Client::Answer first = header.read_answer(), second = body.read_answer();
  EXPECT_EQ(first.status, 408);
  EXPECT_NE(first.body.find("http.read_timeout"), std::string::npos) << first.body;
  EXPECT_NE(first.body.find("18 bytes of a header"), std::string::npos) << first.body;
  EXPECT_EQ(second.status, 408);
  EXPECT_NE(second.body.find("11 bytes of a body"), std::string::npos) << second.body;
  EXPECT_TRUE(header.is_at_end());
  expect_alive();
}

TEST_F(HttpServerTest, an_idle_connection_is_closed_without_a_word) {
  options_.idle_timeout_s = 0.2;
  start(well());
  Client client(server_->port());
  client.send(get("/health"));
  EXPECT_EQ(client.read_answer().status, 200);
  EXPECT_TRUE(client.is_at_end());
}

TEST_F(HttpServerTest, expect_continue_is_honoured) {
  start(well());
  const std::string whole = chat("", "Expect: 100-continue\r\n");
  const size_t end = whole.find("\r\n\r\n") + 4;
  Client client(server_->port());
  client.send(whole.substr(0, end));
  EXPECT_EQ(client.read_until("\r\n\r\n"), "HTTP/1.1 100 Continue\r\n\r\n");
  client.send(whole.substr(end));
  EXPECT_EQ(client.read_answer().status, 200);
}

TEST_F(HttpServerTest, http_1_0_gets_its_answer_and_the_end) {
  start(well());
  Client plain(server_->port());
  plain.send("GET /health HTTP/1.0\r\n\r\n");
  EXPECT_TRUE(plain.read_all().ends_with(R"({"status":"ok"})"));
  const std::string body = R"({"messages":[{"role":"user","content":"Hi"}],"stream":true})";
  Client stream(server_->port());
  stream.send(
      "POST /v1/chat/completions HTTP/1.0\r\nContent-Type: application/json\r\n"
      "Content-Length: " +
      std::to_string(body.size()) + "\r\n\r\n" + body);
  const std::string all = stream.read_all();
  EXPECT_EQ(all.find("Transfer-Encoding"), std::string::npos);
  EXPECT_TRUE(all.ends_with("data: [DONE]\n\n")) << all;
}

TEST_F(HttpServerTest, head_has_the_headers_of_get_and_no_body) {
  start(well());
  Client client(server_->port());
  client.send("HEAD / HTTP/1.1\r\n" + host() + "Connection: close\r\n\r\n");
  const std::string all = client.read_all();
  EXPECT_TRUE(all.starts_with("HTTP/1.1 200 OK\r\n"));
  EXPECT_TRUE(all.ends_with("\r\n\r\n"));
  EXPECT_NE(all.find("Content-Type: text/html"), std::string::npos);
}

TEST_F(HttpServerTest, a_silent_stream_says_that_it_lives) {
  options_.keepalive_s = 0.05;
  start(well());
  fake_.engine->hold();
  Client client(server_->port());
  client.send(chat(R"("stream":true)"));
  EXPECT_NE(client.read_until(": keep-alive\n\n").find("\"role\":\"assistant\""),
            std::string::npos);
  EXPECT_NE(client.read_until("\n\n").find("\"delta\":{}"), std::string::npos);
  client.read_until(": keep-alive\n\n");
  fake_.engine->release();
  EXPECT_NE(client.read_until("[DONE]").find("\"finish_reason\":\"stop\""), std::string::npos);
}

TEST_F(HttpServerTest, a_client_that_closes_or_resets_cancels_its_request) {
  options_.keepalive_s = 0.05;
  start(well());
  fake_.engine->hold();
  size_t n = 0;
  for (const bool is_stream : {true, false}) {
    for (const bool is_reset : {true, false}) {
      Client client(server_->port());
      client.send(chat(is_stream ? R"("stream":true)" : ""));
      if (is_stream) client.read_until("\n\n");
      while (fake_.engine->counts().n_waiting == 0) std::this_thread::yield();
      if (is_reset)
        client.reset();
      else
        client.close();
      fake_.engine->wait_for_cancelled(++n);
    }
  }
  fake_.engine->release();
  expect_alive();
}

TEST_F(HttpServerTest, a_half_closed_client_gets_its_reply) {
  start(well());
  fake_.engine->hold();
  Client whole(server_->port()), stream(server_->port());
  whole.send(chat());
  whole.half_close();
  stream.send(chat(R"("stream":true)"));
  stream.half_close();
  EXPECT_NE(stream.read_until(": \n\n").find("\"role\""), std::string::npos);  // the probe
  EXPECT_EQ(whole.read_until("\r\n\r\n"), "HTTP/1.1 100 Continue\r\n\r\n");
  fake_.engine->release();
  EXPECT_NE(whole.read_all().find("All is well."), std::string::npos);
  EXPECT_NE(stream.read_all().find("[DONE]"), std::string::npos);
  EXPECT_EQ(fake_.engine->n_cancelled(), 0u);
}

// The end of a client may be read while its answer is being completed, in one of some hundred
// cases.
TEST_F(HttpServerTest, clients_that_go_at_the_end_of_their_stream_leave_no_connection) {
  start(well());
  for (int i = 0; i < 1000; ++i) {
    Client client(server_->port());
    client.send(chat(R"("stream":true)"));
    if (i % 2 == 0) client.read_until("[DONE]");
    if (i % 2 == 1) client.read_answer();
  }
  for (int ms = 0; ms < kPatienceMs && server_->n_connections() > 0; ++ms) ::poll(nullptr, 0, 1);
  EXPECT_EQ(server_->n_connections(), 0u);
}

TEST_F(HttpServerTest, a_reader_that_stalls_is_cancelled_and_holds_up_nobody) {
  FakeEngineOptions endless = says("All is well.");
  endless.is_endless = true;
  endless.tokens_per_event = 512;  // what is held for the reader must pass its bound soon
  endless.context_max = 100'000'000;
  endless.step =
      std::chrono::microseconds(20);  // an engine that never pauses would starve all others
  start(endless);
  Client slow(server_->port());
  slow.shrink_receive_buffer();
  slow.send(chat(R"("stream":true)"));
  fake_.engine->wait_for_cancelled(1);
  Client client(server_->port());
  client.send(get("/health"));
  EXPECT_EQ(client.read_answer().status, 200);
}

TEST_F(HttpServerTest, more_connections_than_allowed_leave_room_for_probes) {
  options_.connections_max = 2;
  options_.reserve_connections = 1;
  start(well());
  Client a(server_->port()), b(server_->port());
  for (Client* client : {&a, &b}) {
    client->send(get("/health"));
    EXPECT_EQ(client->read_answer().status, 200);
  }
  Client probe(server_->port());
  probe.send(get("/v1/models"));
  EXPECT_EQ(probe.read_answer().status, 503);
  probe.send(get("/health"));
  EXPECT_EQ(probe.read_answer().status, 200);
  Client over(server_->port());
  over.send(get("/health"));
  const Client::Answer answer = over.read_answer();
  EXPECT_EQ(answer.status, 503);
  EXPECT_NE(answer.body.find("http.too_many_connections"), std::string::npos);
  EXPECT_NE(answer.head.find("Retry-After: 1"), std::string::npos);
}

TEST_F(HttpServerTest, many_streams_run_on_few_threads) {
  FakeEngineOptions engine = well();
  engine.streams_max = 64;
  engine.queue_max = 1000;
  start(engine);
  std::vector<std::unique_ptr<Client>> clients;
  for (int i = 0; i < 200; ++i) {
    clients.push_back(std::make_unique<Client>(server_->port()));
    clients.back()->send(chat(R"("stream":true)"));
  }
  for (const auto& client : clients)
    EXPECT_TRUE(client->read_answer().body.ends_with("data: [DONE]\n\n"));
}

TEST_F(HttpServerTest, stopping_lets_the_reply_in_work_end) {
  start(well());
  fake_.engine->hold();
  Client busy(server_->port()), idle(server_->port());
  idle.send(get("/health"));
  EXPECT_EQ(idle.read_answer().status, 200);
  busy.send(chat(R"("stream":true)"));
  busy.read_until("\n\n");
  std::thread stopping([this] { server_->stop(10); });
  EXPECT_TRUE(idle.is_at_end());
  fake_.engine->release();
  EXPECT_NE(busy.read_all().find("[DONE]"), std::string::npos);
  stopping.join();
  EXPECT_EQ(server_->n_connections(), 0u);
}

TEST_F(HttpServerTest, a_taken_port_is_refused_with_its_number) {
  start(well());
  HttpOptions same;
  same.port = server_->port();
  const Result<std::unique_ptr<HttpServer>> second = HttpServer::start(same, HttpHandlers());
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().refusal, Refusal::PortTaken);
  EXPECT_NE(second.error().detail.find(std::to_string(same.port)), std::string::npos);
}

}  // namespace
}  // namespace roost
