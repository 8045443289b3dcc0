#include "apps/bench_client.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>

namespace roost {

namespace {

constexpr size_t kReadBytes = size_t{64} << 10;

class Socket {
 public:
  explicit Socket(const BenchTarget& target)
      : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(target.port);
    ::inet_pton(AF_INET, target.host.c_str(), &address.sin_addr);
    const int on = 1;
    ::setsockopt(fd_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    is_open_ =
        fd_ >= 0 && ::connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
  }
  ~Socket() {
    if (fd_ >= 0) ::close(fd_);
  }
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;

  bool is_open() const { return is_open_; }
  bool send(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t n = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (n <= 0) return false;
      bytes.remove_prefix(static_cast<size_t>(n));
    }
    return true;
  }
  // False at the end of the connection.
  bool read(std::string& into) {
    const size_t n_before = into.size();
    into.resize(n_before + kReadBytes);
    const ssize_t n = ::recv(fd_, into.data() + n_before, kReadBytes, 0);
    into.resize(n_before + static_cast<size_t>(std::max<ssize_t>(n, 0)));
    return n > 0;
  }

 private:
  int fd_;
  bool is_open_ = false;
};

// In HTTP/1.0 an answer ends with its connection, without chunks.
std::string request_bytes(const BenchTarget& target, std::string_view method, std::string_view path,
                          const std::string& body) {
  std::string out =
      fmt::format("{} {} HTTP/1.0\r\nHost: {}:{}\r\n", method, path, target.host, target.port);
  if (!target.key.empty()) out += fmt::format("Authorization: Bearer {}\r\n", target.key);
  if (method == "POST")
    out += fmt::format("Content-Type: application/json\r\nContent-Length: {}\r\n", body.size());
  return out + "\r\n" + body;
}

int status_of(std::string_view head) {
  return head.size() < 12 ? 0 : std::atoi(std::string(head.substr(9, 3)).c_str());
}

std::string refusal_in(const json::Value& body) {
  const json::Value* error = body.find("error");
  const json::Value* code = error == nullptr ? nullptr : error->find("refusal");
  return code == nullptr || !code->is_string() ? "client.no_refusal" : code->as_string();
}

double number_at(const json::Value* object, const char* key) {
  const json::Value* found = object == nullptr ? nullptr : object->find(key);
  return found == nullptr || !found->is_number() ? 0 : found->as_double();
}
int64_t count_at(const json::Value* object, const char* key) {
  return static_cast<int64_t>(number_at(object, key));
}

std::vector<double> numbers_at(const json::Value& object, const char* key) {
  std::vector<double> out;
  const json::Value* list = object.find(key);
  if (list == nullptr || !list->is_array()) return out;
  for (const json::Value& one : list->items()) out.push_back(one.is_number() ? one.as_double() : 0);
  return out;
}

bool has_text(const json::Value* delta, const char* key) {
  const json::Value* text = delta->find(key);
  return text != nullptr && text->is_string() && !text->as_string().empty();
}

void read_usage(const json::Value& event, BenchRecord& out) {
  if (const json::Value* usage = event.find("usage"); usage != nullptr && usage->is_object()) {
    out.n_prompt = count_at(usage, "prompt_tokens");
    out.n_reply = count_at(usage, "completion_tokens");
    out.n_cached = count_at(usage->find("prompt_tokens_details"), "cached_tokens");
  }
  const json::Value* extras = event.find("roost");
  if (extras == nullptr) return;
  out.queue_ms = number_at(extras, "queue_ms");
  out.n_rounds = count_at(extras, "rounds");
  out.accept_length = number_at(extras, "accept_length");
  if (const json::Value* sha = extras->find("token_sha256"); sha != nullptr && sha->is_string())
    out.token_sha256 = sha->as_string();
  out.accepted_per_position = numbers_at(*extras, "accepted_per_position");
  out.drafted_per_position = numbers_at(*extras, "drafted_per_position");
  out.n_drafted = count_at(event.find("timings"), "draft_n");
  out.n_accepted = count_at(event.find("timings"), "draft_n_accepted");
}

void read_event(const json::Value& event, double now, BenchRecord& out) {
  if (event.find("error") != nullptr) out.refusal = refusal_in(event);
  read_usage(event, out);
  const json::Value* choices = event.find("choices");
  if (choices == nullptr || choices->items().empty()) return;
  const json::Value* delta = choices->items()[0].find("delta");
  if (delta == nullptr) return;
  const bool is_call = delta->find("tool_calls") != nullptr;
  const bool is_content = has_text(delta, "content");
  if (is_content) out.text += delta->find("content")->as_string();
  if ((is_call || is_content) && out.first_output == 0) out.first_output = now;
  if (is_call || is_content || has_text(delta, "reasoning_content")) out.texts.push_back(now);
}

// Takes whole records off the front of `bytes`; true when the stream has said that it is done.
bool take_events(std::string& bytes, double now, BenchRecord& out) {
  bool is_done = false;
  size_t at = 0;
  for (size_t end; (end = bytes.find("\n\n", at)) != std::string::npos; at = end + 2) {
    const std::string_view record = std::string_view(bytes).substr(at, end - at);
    if (!record.starts_with("data: ")) continue;
    if (out.first_event == 0) out.first_event = now;
    if (record == "data: [DONE]") is_done = true;
    const Result<json::Value> event = json::parse(record.substr(6));
    if (event) read_event(*event, now, out);
  }
  bytes.erase(0, at);
  return is_done;
}

}  // namespace

Result<BenchTarget> parse_target(std::string_view url, std::string key) {
  BenchTarget out;
  out.key = std::move(key);
  std::string_view rest = url.substr(std::min<size_t>(url.size(), 7));
  while (rest.ends_with('/')) rest.remove_suffix(1);
  const size_t colon = rest.rfind(':');
  if (url.starts_with("http://") && colon != std::string_view::npos) {
    out.host = rest.substr(0, colon) == "localhost" ? "127.0.0.1" : rest.substr(0, colon);
    const int port = std::atoi(std::string(rest.substr(colon + 1)).c_str());
    in_addr address{};
    if (port > 0 && port < 65536 && ::inet_pton(AF_INET, out.host.c_str(), &address) == 1) {
      out.port = static_cast<uint16_t>(port);
      return out;
    }
  }
  return Error{
      Refusal::FlagValue,
      fmt::format("have {}, want http:// with an IPv4 address or localhost, and a port", url)};
}

double bench_now() {
  const auto since = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration<double>(since).count();
}

BenchRecord run_request(const BenchTarget& target, json::Value body) {
  body.set("stream", json::Value::boolean(true));
  json::Value options = json::Value::object();
  options.set("include_usage", json::Value::boolean(true));
  body.set("stream_options", std::move(options));
  const std::string bytes =
      request_bytes(target, "POST", "/v1/chat/completions", json::write(body));
  BenchRecord out;
  out.sent = bench_now();
  Socket socket(target);
  std::string received;
  size_t head_end = std::string::npos;
  const bool is_sent = socket.is_open() && socket.send(bytes);
  while (is_sent && head_end == std::string::npos && socket.read(received))
    head_end = received.find("\r\n\r\n");
  if (head_end == std::string::npos) {
    out.refusal = "client.no_answer";
    return out;
  }
  if (status_of(received) != 200) {
    while (socket.read(received)) continue;
    const Result<json::Value> error = json::parse(received.substr(head_end + 4));
    out.refusal = error ? refusal_in(*error) : "client.no_refusal";
    return out;
  }
  received.erase(0, head_end + 4);
  bool is_done = take_events(received, bench_now(), out);
  while (!is_done && socket.read(received)) is_done = take_events(received, bench_now(), out);
  if (!is_done && out.refusal.empty()) out.refusal = "client.cut_off";
  return out;
}

Result<std::string> ask(const BenchTarget& target, std::string_view method, std::string_view path,
                        const std::string& body) {
  Socket socket(target);
  std::string received;
  if (socket.is_open() && socket.send(request_bytes(target, method, path, body)))
    while (socket.read(received)) continue;
  const size_t head_end = received.find("\r\n\r\n");
  if (head_end == std::string::npos)
    return Error{Refusal::FlagValue,
                 fmt::format("nobody answers at {}:{}", target.host, target.port)};
  const int status = status_of(received);
  received.erase(0, head_end + 4);
  if (status / 100 != 2)
    return Error{Refusal::FlagValue, fmt::format("{} {}: {} {}", method, path, status, received)};
  return received;
}

Result<json::Value> ask_json(const BenchTarget& target, std::string_view method,
                             std::string_view path, const std::string& body) {
  ROOST_TRY(const std::string text, ask(target, method, path, body));
  return json::parse(text);
}

}  // namespace roost
