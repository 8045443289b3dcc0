// What the server adds to the engine's own time, over a fake model of no time: per token at one
// stream, to the first byte, and along a long reply. Prints the figures, and fails when one misses
// its bar. Needs a quiet machine; ./check full runs it.
#include <poll.h>

#include <algorithm>
#include <chrono>
#include <vector>

#include "tests/load/server_process.h"

namespace roost {
namespace {

constexpr double kTokenBarUs = 30, kFirstByteBarMs = 2, kGrowthBar = 1.25;

double now_s() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Reads until `until` has come; `held` is what came behind it.
bool skip_until(int fd, std::string& held, std::string_view until) {
  std::string buffer(size_t{1} << 16, '\0');
  for (;;) {
    const size_t at = held.find(until);
    if (at != std::string::npos) {
      held.erase(0, at + until.size());
      return true;
    }
    const ssize_t n = ::recv(fd, buffer.data(), buffer.size(), 0);
    if (n <= 0) return false;
    held.append(buffer, 0, static_cast<size_t>(n));
  }
}

// Time of a reply, and the server's own at certain counts of tokens.
struct Costs {
  double wall_s = 0, cpu_s = 0, first_tenth_s = 0, last_tenth_s = 0;
};

Costs run_reply(const ServerProcess& server, size_t n_tokens) {
  const int fd = connect_to(server.port());
  const std::string request =
      chat_request(server.port(), R"("stream":true,"max_tokens":)" + std::to_string(n_tokens));
  Costs out;
  const double begin = now_s(), cpu_begin = server.cpu_seconds();
  send_whole(fd, request);
  std::string buffer(size_t{1} << 16, '\0'), tail;
  size_t n_seen = 0;
  double cpu_first = 0, cpu_ninth = 0;
  bool is_done = false;
  while (!is_done) {
    const ssize_t n = ::recv(fd, buffer.data(), buffer.size(), 0);
    if (n <= 0) break;
    tail.append(buffer, 0, static_cast<size_t>(n));
    const size_t whole = tail.rfind("\n\n");
    if (whole == std::string::npos) continue;
    for (size_t at = tail.find("\"content\":\""); at < whole;
         at = tail.find("\"content\":\"", at + 1))
      ++n_seen;
    is_done = tail.find("[DONE]") != std::string::npos;
    tail.erase(0, whole);
    if (cpu_first == 0 && n_seen >= n_tokens / 10) cpu_first = server.cpu_seconds();
    if (cpu_ninth == 0 && n_seen >= n_tokens / 10 * 9) cpu_ninth = server.cpu_seconds();
  }
  out.cpu_s = server.cpu_seconds() - cpu_begin;
  out.wall_s = now_s() - begin;
  out.first_tenth_s = cpu_first - cpu_begin;
  out.last_tenth_s = out.cpu_s - (cpu_ninth - cpu_begin);
  ::close(fd);
  return out;
}

// Milliseconds from the request to the first byte of a token, one request after the other on one
// connection; the fake model has its first token at once.
std::vector<double> first_byte_ms(const ServerProcess& server, int n) {
  std::vector<double> out;
  std::string held;
  const int fd = connect_to(server.port());
  const std::string request = chat_request(server.port(), R"("stream":true,"max_tokens":1)");
  for (int i = 0; i < n; ++i) {
    const double begin = now_s();
    send_whole(fd, request);
    if (!skip_until(fd, held, "\"content\":\"A")) break;
    out.push_back((now_s() - begin) * 1e3);
    skip_until(fd, held, "\r\n0\r\n\r\n");
  }
  ::close(fd);
  std::sort(out.begin(), out.end());
  return out;
}

int run() {
  constexpr size_t kTokens = 20'000, kLong = 100'000;
  constexpr int kRequests = 500;
  FakeEngineOptions engine = says("All is well, and one. ");
  engine.is_endless = true;
  engine.context_max = 1'000'000;
  // A token each 50 us: no more than a client can read, so that no delta is merged.
  engine.step = std::chrono::microseconds(50);
  const ServerProcess paced(engine, HttpOptions());
  run_reply(paced, 2000);
  const Costs costs = run_reply(paced, kTokens);
  const Costs along = run_reply(paced, kLong);
  engine.step = std::chrono::microseconds(0);
  const ServerProcess quick(engine, HttpOptions());
  first_byte_ms(quick, 50);
  const std::vector<double> first = first_byte_ms(quick, kRequests);
  if (first.size() != kRequests) return std::puts("a reply did not come"), 1;
  const double token_us = costs.cpu_s / kTokens * 1e6;
  const double growth = along.last_tenth_s / along.first_tenth_s;
  const double median_ms = first[kRequests / 2], p90_ms = first[kRequests * 9 / 10];
  std::printf("cpu time of the network threads per token, one stream: %.1f us (bar %.0f)\n",
              token_us, kTokenBarUs);
  std::printf("request to first token byte: median %.2f ms, p90 %.2f ms (bar %.0f)\n", median_ms,
              p90_ms, kFirstByteBarMs);
  std::printf("%zu tokens: the last tenth costs %.2f of the first (bar %.2f)\n", kLong, growth,
              kGrowthBar);
  return token_us < kTokenBarUs && median_ms < kFirstByteBarMs && growth < kGrowthBar ? 0 : 1;
}

}  // namespace
}  // namespace roost

int main() {
  return roost::run();
}
