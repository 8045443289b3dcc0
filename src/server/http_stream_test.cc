// Who writes to a socket, and when: streams whose producers and readers meet in every order.
#include <gtest/gtest.h>
#include <poll.h>

#include <atomic>
#include <thread>
#include <vector>

#include "base/random.h"
#include "server/http_server.h"
#include "tests/load/server_process.h"

namespace roost {
namespace {

constexpr int kPatienceMs = 20'000;  // far more than anything here takes
constexpr size_t kHoldBytes = 2000;

// A stream of numbered lines. Like a reply it holds what a slow reader has not room for, and goes
// on when it is told that everything was sent.
class Lines : public std::enable_shared_from_this<Lines> {
 public:
  Lines(std::shared_ptr<HttpExchange> exchange, uint64_t seed, int n_lines)
      : exchange_(std::move(exchange)), random_(seed), n_lines_(n_lines) {}

  void begin() {
    exchange_->begin_stream({}, [] { return std::string(); });
  }
  // Any thread.
  void post_one() {
    exchange_->post([self = shared_from_this()] { self->say_one(); });
  }
  bool is_over() const { return is_over_; }

 private:
  void say_one() {
    if (n_said_ == n_lines_) return;
    held_ += std::to_string(n_said_++) + ' ' + std::string(random_.next_u64() % 3000, 'x') + '\n';
    const bool is_last = n_said_ == n_lines_;
    if (!is_last && exchange_->n_unsent() > kHoldBytes) {
      if (!std::exchange(awaits_room_, true))
        exchange_->on_sent([weak = weak_from_this()] {
          const std::shared_ptr<Lines> self = weak.lock();
          if (!self) return;
          self->awaits_room_ = false;
          self->say_held();
        });
      return;
    }
    say_held();
    if (!is_last) return;
    exchange_->end_stream(true);
    is_over_ = true;
  }
  void say_held() {
    if (!held_.empty()) exchange_->write(std::exchange(held_, std::string()));
  }

  const std::shared_ptr<HttpExchange> exchange_;
  SeededRandom random_;
  const int n_lines_;
  int n_said_ = 0;
  std::string held_;
  bool awaits_room_ = false;
  std::atomic<bool> is_over_ = false;
};

// The numbers of a chunked stream's lines, in order; -1 where a line is damaged.
std::vector<int> numbers_in(const std::string& received) {
  std::string body;
  for (size_t at = received.find("\r\n\r\n") + 4; at < received.size();) {
    char* end = nullptr;
    const size_t n = std::strtoul(received.c_str() + at, &end, 16);
    at = static_cast<size_t>(end - received.c_str()) + 2;
    body.append(received, at, n);
    at += n + 2;
  }
  std::vector<int> out;
  for (size_t at = 0; at < body.size();) {
    const size_t end = body.find('\n', at), space = body.find(' ', at);
    const bool is_whole =
        end != std::string::npos && space < end && body.find_first_not_of('x', space + 1) == end;
    out.push_back(is_whole ? std::atoi(body.c_str() + at) : -1);
    at = end == std::string::npos ? body.size() : end + 1;
  }
  return out;
}

TEST(HttpStream, lines_of_several_threads_reach_slow_readers_whole_and_in_order) {
  constexpr size_t kStreams = 24, kProducers = 3;
  constexpr int kLines = 150;
  std::mutex mutex;
  std::vector<std::shared_ptr<Lines>> streams;
  std::atomic<size_t> n_begun = 0;
  HttpOptions options;
  options.port = 0;
  options.keepalive_s = 1000;  // idle bytes would hide a stream that nobody wakes
  HttpHandlers handlers;
  handlers.handle = [&](HttpRequest, std::shared_ptr<HttpExchange> exchange) {
    const std::lock_guard lock(mutex);
    streams.push_back(std::make_shared<Lines>(std::move(exchange), streams.size(), kLines));
    streams.back()->begin();
    ++n_begun;
  };
  handlers.refuse = [](const Error&, const HttpRequest&) { return HttpResponse(); };
  Result<std::unique_ptr<HttpServer>> server = HttpServer::start(options, std::move(handlers));
  ASSERT_TRUE(server);

  std::vector<pollfd> readers;
  for (size_t i = 0; i < kStreams; ++i) {
    readers.push_back({connect_to((*server)->port(), true), POLLIN, 0});
    ASSERT_GE(readers.back().fd, 0);
    send_whole(readers.back().fd, "GET / HTTP/1.1\r\nHost: a\r\n\r\n");
  }
  while (n_begun < kStreams) std::this_thread::yield();
  std::vector<std::thread> producers;
  for (size_t t = 0; t < kProducers; ++t)
    producers.emplace_back([&, t] {
      for (int i = 0; i < kLines; ++i)
        for (size_t k = t; k < kStreams; k += kProducers) streams[k]->post_one();
    });

  // Each readable stream in turn gives a few bytes, some far fewer than others.
  std::vector<std::string> received(kStreams);
  SeededRandom random(7);
  char bytes[4096];
  for (size_t n_open = kStreams; n_open > 0;) {
    ASSERT_GT(::poll(readers.data(), readers.size(), kPatienceMs), 0) << n_open << " streams stall";
    for (size_t i = 0; i < kStreams; ++i) {
      if (readers[i].revents == 0) continue;
      const size_t most = 1 + random.next_u64() % (i % 3 == 0 ? sizeof bytes : 700);
      const ssize_t n = ::recv(readers[i].fd, bytes, most, 0);
      ASSERT_GT(n, 0) << "stream " << i;
      received[i].append(bytes, static_cast<size_t>(n));
      if (!received[i].ends_with("\r\n0\r\n\r\n")) continue;
      ::close(std::exchange(readers[i].fd, -1));
      --n_open;
    }
  }
  for (std::thread& producer : producers) producer.join();
  for (size_t i = 0; i < kStreams; ++i) {
    const std::vector<int> numbers = numbers_in(received[i]);
    ASSERT_EQ(numbers.size(), static_cast<size_t>(kLines)) << "stream " << i;
    for (int k = 0; k < kLines; ++k) ASSERT_EQ(numbers[static_cast<size_t>(k)], k) << i;
    EXPECT_TRUE(streams[i]->is_over());
  }
  streams.clear();
}

}  // namespace
}  // namespace roost
