// A client that measures: one request of the Chat dialect over plain HTTP, with the time of every
// event.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"

namespace roost {

struct BenchTarget {
  std::string host = "127.0.0.1";  // an IPv4 address
  uint16_t port = 8080;
  std::string key;  // empty: none
};

// "http://127.0.0.1:8080"; localhost is 127.0.0.1. Refuses flag.value.
Result<BenchTarget> parse_target(std::string_view url, std::string key);

// Seconds on the client's clock.
double bench_now();

// What a client saw of one request.
struct BenchRecord {
  std::string refusal;  // code, or "client.…"; empty: the reply ended well
  double sent = 0;      // before connecting
  double first_event = 0;
  double first_output = 0;    // of content or of a call; 0: none came
  std::vector<double> texts;  // of events with bytes of reasoning, content or calls
  int64_t n_prompt = 0, n_cached = 0, n_reply = 0;
  double queue_ms = 0, accept_length = 0;  // 0: nothing was drafted
  int64_t n_rounds = 0, n_drafted = 0, n_accepted = 0;
  // Of draft i + 1: the share of rounds with it in which it held, and how many those were.
  std::vector<double> accepted_per_position, drafted_per_position;
  std::string text, token_sha256;  // text: content alone

  bool is_ok() const { return refusal.empty(); }
  double ttft() const { return texts.empty() ? 0 : texts.front() - sent; }
  double e2e() const { return texts.empty() ? 0 : texts.back() - sent; }
};

// body: of /v1/chat/completions; the members that a measured stream needs are set.
BenchRecord run_request(const BenchTarget& target, json::Value body);

// A whole answer of status 200 with this body. Refuses flag.value: what came instead.
Result<std::string> ask(const BenchTarget& target, std::string_view method, std::string_view path,
                        const std::string& body = "");
Result<json::Value> ask_json(const BenchTarget& target, std::string_view method,
                             std::string_view path, const std::string& body = "");

}  // namespace roost
