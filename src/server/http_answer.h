// The bytes of one HTTP answer on their way to the socket: status line, headers, chunks.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>
#include <utility>

#include "server/http_head.h"
#include "server/http_server.h"

namespace roost {

// What the handler says goes in, bytes in HTTP's form come out. Either one whole answer, or a
// stream.
class HttpAnswer {
 public:
  HttpAnswer() = default;
  // closes: the connection ends behind it whatever it says.
  HttpAnswer(const HttpHead& request, bool is_head_method, bool closes);

  void set_head_method(bool is_head_method) { is_head_method_ = is_head_method; }
  void respond(const HttpResponse& response);
  void begin_stream(HttpHeaders headers, std::function<std::string()> idle);
  void write(std::string_view bytes);  // of a stream; nothing in any other state
  void end_stream(bool keeps_connection);
  void interim(std::string_view bytes) { pending_ += bytes; }  // before the status line
  void end() { is_complete_ = true; }                          // nobody reads it any more
  void drop() { pending_.clear(); }

  bool has_begun() const { return has_begun_; }
  bool is_stream() const { return is_stream_; }
  bool is_complete() const { return is_complete_; }
  bool closes() const { return closes_; }
  std::string idle() const { return idle_(); }
  size_t n_pending() const { return pending_.size(); }
  std::string take_pending() { return std::exchange(pending_, std::string()); }
  void put_back(std::string bytes) { pending_ = std::move(bytes); }  // taken, and not sent

 private:
  std::string head_lines(int status, const std::string& content_type, const HttpHeaders& headers);

  HttpHead request_;
  bool is_head_method_ = false;
  bool has_begun_ = false, is_stream_ = false, is_complete_ = false, closes_ = false;
  std::string pending_;
  std::function<std::string()> idle_;
};

std::string_view http_reason(int status);

}  // namespace roost
