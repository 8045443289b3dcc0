// The server over a fake model in a process of its own, so that what it uses can be read from
// outside, and clients of many connections for it.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <utility>

#include "base/check.h"
#include "base/log.h"
#include "server/service.h"
#include "tests/sim/fledgling_text.h"

namespace roost {

// Forked before this process has threads. The child serves until its pipe closes; bytes on it hold
// ('h') and release ('r') the engine.
class ServerProcess {
 public:
  ServerProcess(const FakeEngineOptions& engine, HttpOptions http, ServiceOptions service = {}) {
    int commands[2], answers[2];
    ROOST_CHECK(::pipe(commands) == 0 && ::pipe(answers) == 0);
    pid_ = ::fork();
    ROOST_CHECK(pid_ >= 0);
    if (pid_ == 0) {
      ::close(commands[1]), ::close(answers[0]);
      serve(engine, std::move(http), std::move(service), commands[0], answers[1]);
      ::_exit(0);
    }
    ::close(commands[0]), ::close(answers[1]);
    commands_ = commands[1];
    ROOST_CHECK(::read(answers[0], &port_, sizeof port_) == sizeof port_);
    ::close(answers[0]);
  }
  ~ServerProcess() {
    ::close(commands_);
    int status = 0;
    ::waitpid(pid_, &status, 0);
  }
  ServerProcess(const ServerProcess&) = delete;
  ServerProcess& operator=(const ServerProcess&) = delete;

  uint16_t port() const { return port_; }
  void hold() { command('h'); }
  void release() { command('r'); }

  int64_t resident_bytes() const {
    int64_t n_pages = 0, n_resident = 0;
    std::ifstream(path("statm")) >> n_pages >> n_resident;
    return n_resident * ::sysconf(_SC_PAGESIZE);
  }
  int64_t n_descriptors() const {
    int64_t n = 0;
    for (const auto& entry : std::filesystem::directory_iterator(path("fd")))
      n += !entry.path().empty();
    return n;
  }
  int64_t n_threads() const {
    int64_t n = 0;
    for (const auto& entry : std::filesystem::directory_iterator(path("task")))
      n += !entry.path().empty();
    return n;
  }
  // User and system time of its threads that read requests and write replies.
  double cpu_seconds() const {
    double sum = 0;
    for (const auto& task : std::filesystem::directory_iterator(path("task"))) {
      std::string name;
      std::getline(std::ifstream(task.path() / "comm") >> std::ws, name);
      if (name != "roost-http") continue;
      uint64_t ran_ns = 0;
      std::ifstream(task.path() / "schedstat") >> ran_ns;
      sum += static_cast<double>(ran_ns) / 1e9;
    }
    return sum;
  }

 private:
  std::string path(const char* name) const { return "/proc/" + std::to_string(pid_) + "/" + name; }
  void command(char c) { ROOST_CHECK(::write(commands_, &c, 1) == 1); }

  static void serve(const FakeEngineOptions& engine, HttpOptions http, ServiceOptions options,
                    int commands, int answers) {
    set_log_level(LogLevel::kError);
    Service service(std::move(options), system_clock(), system_random());
    FakeModel fake = fledgling_with(engine);
    service.serve(fake.model);
    http.port = 0;
    HttpHandlers handlers;
    handlers.handle = [&](HttpRequest request, std::shared_ptr<HttpExchange> exchange) {
      service.handle(std::move(request), std::move(exchange));
    };
    handlers.refuse = [&](const Error& error, const HttpRequest& asked) {
      return service.refuse(error, asked);
    };
    Result<std::unique_ptr<HttpServer>> server = HttpServer::start(http, std::move(handlers));
    ROOST_CHECK(bool(server));
    const uint16_t port = (*server)->port();
    service.set_port(port);
    ROOST_CHECK(::write(answers, &port, sizeof port) == sizeof port);
    char c = 0;
    while (::read(commands, &c, 1) == 1) {
      if (c == 'h') fake.engine->hold();
      if (c == 'r') fake.engine->release();
    }
    ::_exit(0);  // the tests of the server look at its end; here it only goes away
  }

  pid_t pid_ = -1;
  int commands_ = -1;
  uint16_t port_ = 0;
};

// A connection to 127.0.0.1, or -1. is_narrow: with small buffers at both ends, so that a server
// which writes more than is read must wait.
inline int connect_to(uint16_t port, bool is_narrow = false) {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const int on = 1;
  ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  const int n_segment = 536, n_window = 4096;  // the server's buffer grows with its segments
  if (is_narrow) {
    ::setsockopt(fd, IPPROTO_TCP, TCP_MAXSEG, &n_segment, sizeof n_segment);
    ::setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &n_window, sizeof n_window);
  }
  if (fd >= 0 && ::connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0)
    return fd;
  if (fd >= 0) ::close(fd);
  return -1;
}

inline void send_whole(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (n <= 0) return;  // the server has closed: what it says is read
    bytes.remove_prefix(static_cast<size_t>(n));
  }
}

// Ends with a reset instead of a goodbye.
inline void reset(int fd) {
  const linger hard{1, 0};
  ::setsockopt(fd, SOL_SOCKET, SO_LINGER, &hard, sizeof hard);
  ::close(fd);
}

inline std::string chat_request(uint16_t port, const std::string& members) {
  const std::string body =
      R"({"messages":[{"role":"user","content":"Hi"}],"enable_thinking":false,)" + members + "}";
  return "POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1:" + std::to_string(port) +
         "\r\nContent-Type: application/json\r\nContent-Length: " + std::to_string(body.size()) +
         "\r\n\r\n" + body;
}

// Files that this process may open: as many as the system lets it.
inline void raise_descriptor_limit() {
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

}  // namespace roost
