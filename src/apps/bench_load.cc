#include "apps/bench_load.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <thread>

namespace roost {

namespace {

constexpr double kTokensPerWord = 1.35;
constexpr size_t kWarmPrompts = 4;

constexpr const char* kWords[] = {"river",   "stone",  "window",  "quiet",   "engine",   "paper",
                                  "follow",  "bright", "market",  "answer",  "winter",   "garden",
                                  "carry",   "number", "simple",  "letter",  "mountain", "remember",
                                  "several", "before", "against", "morning", "travel",   "yellow",
                                  "the",     "of",     "and",     "with",    "under",    "after"};

std::string word(SeededRandom& random) {
  return kWords[random.next_u64() % std::size(kWords)];
}

// One line of a kind of text, and about how many tokens it has.
std::pair<std::string, double> line_of(const std::string& kind, SeededRandom& random) {
  const uint64_t n = random.next_u64() % 1000;
  if (kind == "code")
    return {fmt::format("int {}_{}(int x) {{ return x * {} + {}(x); }}\n", word(random), n, n,
                        word(random)),
            22};
  if (kind == "structured")
    return {fmt::format("{{\"{}\": {}, \"{}\": \"{}\"}}\n", word(random), n, word(random),
                        word(random)),
            16};
  if (kind == "list") return {fmt::format("{}. {} {}\n", n, word(random), word(random)), 6};
  std::string out;
  for (int i = 0; i < 12; ++i) out += word(random) + (i == 11 ? ". " : " ");
  return {out, 12 * kTokensPerWord};
}

json::Value message(const char* role, const std::string& content) {
  json::Value out = json::Value::object();
  out.set("role", json::Value::string(role));
  out.set("content", json::Value::string(content));
  return out;
}

// A greedy reply of exactly so many tokens without reasoning.
json::Value body_with(json::Value messages, int64_t reply_tokens) {
  json::Value body = json::Value::object();
  body.set("messages", std::move(messages));
  body.set("max_tokens", json::Value::integer(reply_tokens));
  body.set("temperature", json::Value::integer(0));
  body.set("ignore_eos", json::Value::boolean(true));
  body.set("enable_thinking", json::Value::boolean(false));
  return body;
}

double uniform(SeededRandom& random) {
  return (static_cast<double>(random.next_u64() >> 11) + 0.5) / 9007199254740992.0;
}

// Largest time without an event, from the sending on.
double silence_of(const BenchRecord& r) {
  double out = r.first_event - r.sent;
  double before = r.first_event;
  for (const double t : r.texts) {
    out = std::max(out, t - before);
    before = t;
  }
  return out;
}

}  // namespace

std::string BenchPrompts::text(const std::string& kind, int64_t n_tokens) {
  if (kind == "real" && !options_.real_text.empty()) {
    const auto n_bytes = static_cast<size_t>(n_tokens) * 4;
    const size_t from = random_.next_u64() % options_.real_text.size();
    std::string out;
    while (out.size() < n_bytes) out += options_.real_text.substr(out.empty() ? from : 0, n_bytes);
    out.resize(n_bytes);
    // The cut may have halved a character at either end.
    while (!out.empty() && (out.back() & 0x80) != 0) out.pop_back();
    while (!out.empty() && (out.front() & 0xC0) == 0x80) out.erase(0, 1);
    return out;
  }
  std::string out;
  for (double n = 0; n < static_cast<double>(n_tokens);) {
    const auto [line, n_line] = line_of(kind, random_);
    out += line;
    n += n_line;
  }
  return out;
}

json::Value BenchPrompts::body_of(const std::string& text) const {
  json::Value messages = json::Value::array();
  messages.push(message("user", text));
  return body_with(std::move(messages), options_.reply_tokens);
}

json::Value BenchPrompts::cold() {
  const std::string& kind = options_.kinds[n_made_++ % options_.kinds.size()];
  const std::string nonce = fmt::format("{:016x} ", random_.next_u64());
  return body_of(nonce + text(kind, options_.prompt_tokens));
}

json::Value BenchPrompts::warm() {
  const size_t idx = n_made_++ % kWarmPrompts;
  BenchPrompts same(options_, idx);
  return body_of(same.text(options_.kinds[idx % options_.kinds.size()], options_.prompt_tokens));
}

std::vector<BenchRecord> run_closed(const BenchTarget& target,
                                    const std::vector<json::Value>& bodies, int64_t n_at_once) {
  std::vector<BenchRecord> out(bodies.size());
  std::atomic<size_t> next = 0;
  std::vector<std::thread> clients;
  for (int64_t c = 0; c < n_at_once; ++c)
    clients.emplace_back([&] {
      for (size_t i = next++; i < bodies.size(); i = next++)
        out[i] = run_request(target, bodies[i]);
    });
  for (std::thread& client : clients) client.join();
  return out;
}

std::vector<BenchRecord> run_poisson(const BenchTarget& target,
                                     const std::vector<json::Value>& bodies, double per_second,
                                     uint64_t seed) {
  SeededRandom random(seed);
  std::vector<BenchRecord> out(bodies.size());
  std::vector<std::thread> clients;
  auto at = std::chrono::steady_clock::now();
  for (size_t i = 0; i < bodies.size(); ++i) {
    at += std::chrono::nanoseconds(
        static_cast<int64_t>(-std::log(uniform(random)) / per_second * 1e9));
    std::this_thread::sleep_until(at);
    clients.emplace_back([&, i] { out[i] = run_request(target, bodies[i]); });
  }
  for (std::thread& client : clients) client.join();
  return out;
}

AgentTrace run_agent(const BenchTarget& target, BenchPrompts& prompts, double scale,
                     int64_t n_turns, int64_t reply_tokens, uint64_t seed) {
  SeededRandom random(seed);
  const auto scaled = [&](double n) {
    return std::max<int64_t>(static_cast<int64_t>(n * scale), 1);
  };
  AgentTrace out;
  std::vector<std::thread> beside;
  out.beside.resize(7);  // two sub-agents of three turns, and the title
  json::Value messages = json::Value::array();
  const std::string system = prompts.text("structured", scaled(20'000));
  messages.push(message("system", system));
  messages.push(message("user", prompts.text("prose", scaled(5'000))));
  // They have the system text in common with the agent, and nothing else.
  const auto sub_agent = [&](size_t first, const std::string& task) {
    beside.emplace_back([&, first, task] {
      json::Value own = json::Value::array();
      own.push(message("system", system));
      own.push(message("user", task));
      for (size_t turn = 0; turn < 3; ++turn) {
        BenchRecord& record = out.beside[first + turn];
        record = run_request(target, body_with(own, reply_tokens));
        own.push(message("assistant", record.text));
        own.push(message("tool", task));
      }
    });
  };
  const double begin = bench_now();
  for (int64_t turn = 0; turn < n_turns; ++turn) {
    if (turn == 1) {
      const std::string title = prompts.text("prose", scaled(300));
      beside.emplace_back([&, title] {
        json::Value own = json::Value::array();
        own.push(message("user", title));
        out.beside[6] = run_request(target, body_with(own, 12));
      });
    }
    if (turn == n_turns / 3) sub_agent(0, prompts.text("prose", scaled(1'000)));
    if (turn == n_turns * 2 / 3) sub_agent(3, prompts.text("code", scaled(1'000)));
    out.turns.push_back(run_request(target, body_with(messages, reply_tokens)));
    messages.push(message("assistant", out.turns.back().text));
    // As many short results as long ones, by their logarithm.
    const double n = 200 * std::pow(40.0, uniform(random));
    messages.push(message("tool", prompts.text("code", scaled(n))));
  }
  for (std::thread& one : beside) one.join();
  out.total_s = bench_now() - begin;
  for (const BenchRecord& r : out.turns) {
    out.n_recomputed += r.n_prompt - r.n_cached;
    out.largest_silence_s = std::max(out.largest_silence_s, silence_of(r));
  }
  return out;
}

}  // namespace roost
