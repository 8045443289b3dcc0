// Many connections at once: no event is lost, and nothing stays behind of those that stall or die.
// ROOST_LOAD sets how many connections of the second kind there are.
#include <gtest/gtest.h>
#include <poll.h>

#include <cstdlib>
#include <thread>
#include <vector>

#include "base/json.h"
#include "tests/load/server_process.h"

namespace roost {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;
constexpr int kPatienceMs = 60'000;

// The text that a stream of chunks of the Chat dialect says, and how it ended.
struct Said {
  std::string content;
  bool is_done = false;
};

Said read_stream(const std::string& bytes) {
  Said out;
  for (size_t at = bytes.find("data: "); at != std::string::npos; at = bytes.find("data: ", at)) {
    at += 6;
    const std::string line = bytes.substr(at, bytes.find('\n', at) - at);
    if (line == "[DONE]") {
      out.is_done = true;
      continue;
    }
    const Result<json::Value> event = json::parse(line);
    EXPECT_TRUE(event) << line;
    if (!event || event->find("choices") == nullptr || event->find("choices")->items().empty())
      continue;
    const json::Value* delta = event->find("choices")->items()[0].find("delta");
    if (const json::Value* content = delta->find("content")) out.content += content->as_string();
  }
  return out;
}

// Reads every connection until it has ended or said `until`, all at once.
void read_all(std::vector<int>& fds, std::vector<std::string>& received, std::string_view until) {
  std::vector<pollfd> waiting;
  std::vector<bool> is_over(fds.size());
  size_t n_open = fds.size();
  std::string buffer(size_t{64} << 10, '\0');
  while (n_open > 0) {
    waiting.clear();
    for (size_t i = 0; i < fds.size(); ++i)
      waiting.push_back({is_over[i] ? -1 : fds[i], POLLIN, 0});
    ASSERT_GT(::poll(waiting.data(), waiting.size(), kPatienceMs), 0);
    for (size_t i = 0; i < fds.size(); ++i) {
      if (is_over[i] || waiting[i].revents == 0) continue;
      const ssize_t n = ::recv(fds[i], buffer.data(), buffer.size(), 0);
      if (n > 0) received[i].append(buffer, 0, static_cast<size_t>(n));
      const std::string_view tail =
          std::string_view(received[i])
              .substr(received[i].size() -
                      std::min<size_t>(received[i].size(),
                                       static_cast<size_t>(std::max<ssize_t>(n, 0)) + 16));
      if (n > 0 && tail.find(until) == std::string_view::npos) continue;
      is_over[i] = true;
      --n_open;
    }
  }
}

TEST(Load, a_thousand_streams_lose_no_event_and_need_little_memory) {
  constexpr size_t kStreams = 1000, kTokens = 40;
  raise_descriptor_limit();
  FakeEngineOptions engine = says("All is well, and one. ");
  engine.is_endless = true;
  engine.streams_max = engine.queue_max = kStreams + 10;
  engine.step = std::chrono::milliseconds(20);
  HttpOptions http;
  ServerProcess server(engine, http);
  const std::string request =
      chat_request(server.port(), R"("stream":true,"max_tokens":)" + std::to_string(kTokens));
  std::string expected;
  const std::vector<int32_t> script = fledgling_tokenizer().encode("All is well, and one. ");
  std::vector<int32_t> ids;
  for (size_t i = 0; i < kTokens; ++i) ids.push_back(script[i % script.size()]);
  expected = fledgling_tokenizer().decode(ids, false);

  const auto run = [&](size_t n, const std::function<void()>& when_open) {
    std::vector<int> fds;
    std::vector<std::string> received(n);
    server.hold();
    for (size_t i = 0; i < n; ++i) {
      fds.push_back(connect_to(server.port()));
      ASSERT_GE(fds.back(), 0);
      send_whole(fds.back(), request);
    }
    read_all(fds, received, "\"role\":\"assistant\"");
    when_open();
    server.release();
    read_all(fds, received, "[DONE]");
    for (size_t i = 0; i < n; ++i) {
      const Said said = read_stream(received[i]);
      EXPECT_EQ(said.content, expected) << "stream " << i;
      EXPECT_TRUE(said.is_done) << "stream " << i;
      ::close(fds[i]);
    }
  };
  run(1, [] {});
  const int64_t before = server.resident_bytes();
  int64_t open = 0;
  run(kStreams, [&] { open = server.resident_bytes(); });
  const int64_t after = server.resident_bytes();
  std::printf(
      "1 stream: %lld KiB; %zu more: %lld KiB open, %lld KiB behind them; %lld threads\n",
      static_cast<long long>(before >> 10), kStreams, static_cast<long long>((open - before) >> 10),
      static_cast<long long>((after - before) >> 10), static_cast<long long>(server.n_threads()));
  EXPECT_LT(std::max(open, after) - before, 64 * kMiB);
  EXPECT_LE(server.n_threads(), 5);
}

// What connections do instead of behaving.
void misbehave(size_t kind, int fd, uint16_t port) {
  const std::string chat = chat_request(port, R"("stream":true,"max_tokens":900)");
  switch (kind % 8) {
    case 0:  // says nothing
      return;
    case 1:  // half a header
      return send_whole(fd, chat.substr(0, 40));
    case 2:  // half a body
      return send_whole(fd, chat.substr(0, chat.size() - 20));
    case 3:  // a body far larger than what comes
      return send_whole(
          fd, "POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1:" + std::to_string(port) +
                  "\r\nContent-Type: application/json\r\nContent-Length: "
                  "60000000\r\n\r\n{\"messages\":");
    case 4:  // rubbish
      return send_whole(fd, std::string("\0\x16\x03\x01 rubbish\r\n\r\n", 18));
    case 5:  // a stream that is never read
      return send_whole(fd, chat);
    case 6:  // a whole reply that is never read
      return send_whole(fd, chat_request(port, R"("max_tokens":50)"));
    default:  // half-closed
      send_whole(fd, chat);
      ::shutdown(fd, SHUT_WR);
      return;
  }
}

constexpr int kWavesMax = 12;

TEST(Load, connections_that_stall_or_die_leave_nothing_behind) {
  const char* set = std::getenv("ROOST_LOAD");
  const size_t n_connections = set == nullptr ? 2000 : static_cast<size_t>(std::atoll(set));
  raise_descriptor_limit();
  FakeEngineOptions engine = says("All is well. ");
  engine.is_endless = true;
  engine.streams_max = 64;
  engine.queue_max = n_connections;
  engine.step = std::chrono::milliseconds(1);
  HttpOptions http;
  http.connections_max = n_connections + 100;
  http.header_timeout_s = http.body_grace_s = http.idle_timeout_s = 3;
  ServerProcess server(engine, http);

  const auto wait_until_clean = [&](int64_t n_descriptors) {
    for (int i = 0; i < kPatienceMs / 10 && server.n_descriptors() > n_descriptors; ++i)
      ::poll(nullptr, 0, 10);
    EXPECT_EQ(server.n_descriptors(), n_descriptors);
  };
  const auto wave = [&](size_t n) {
    std::vector<int> fds;
    for (size_t i = 0; i < n; ++i) {
      const int fd = connect_to(server.port());
      ASSERT_GE(fd, 0) << "connection " << i;
      misbehave(i, fd, server.port());
      fds.push_back(fd);
    }
    // Half of them die; the others stall until the server has had enough of them, or stay.
    for (size_t i = 0; i < n; ++i) {
      if (i / 8 % 4 == 0) reset(fds[i]);
      if (i / 8 % 4 == 1) ::close(fds[i]);
    }
    ::poll(nullptr, 0, 500);
    for (size_t i = 0; i < n; ++i)
      if (i / 8 % 4 >= 2) ::close(fds[i]);
  };
  // What the allocator keeps it keeps once, and the tokens of whole replies are kept for the next
  // turn: sooner or later a wave adds little. A connection that stays adds more to every one.
  const int64_t n_descriptors = server.n_descriptors();
  const auto leak = static_cast<int64_t>(1024 * n_connections);
  int64_t resident = 0, added = leak;
  for (int n_waves = 0; n_waves < kWavesMax && added >= leak; ++n_waves) {
    wave(n_connections);
    wait_until_clean(n_descriptors);
    const int64_t now = server.resident_bytes();
    added = now - std::exchange(resident, now);
    std::printf("%zu connections: %lld KiB resident, %+lld KiB\n", n_connections,
                static_cast<long long>(now >> 10), static_cast<long long>(added >> 10));
  }
  EXPECT_LT(added, leak);

  // Somebody who behaves is answered.
  const int fd = connect_to(server.port());
  send_whole(fd, chat_request(server.port(), R"("stream":true,"max_tokens":3)"));
  std::vector<int> fds = {fd};
  std::vector<std::string> received(1);
  read_all(fds, received, "[DONE]");
  EXPECT_TRUE(read_stream(received[0]).is_done);
  ::close(fd);
}

}  // namespace
}  // namespace roost
