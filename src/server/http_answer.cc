#include "server/http_answer.h"

#include <fmt/format.h>

#include <iterator>
#include <utility>

namespace roost {

HttpAnswer::HttpAnswer(const HttpHead& request, bool is_head_method, bool closes)
    : request_(request), is_head_method_(is_head_method) {
  closes_ = closes || request.closes || (request.is_http_1_0 && !request.keeps_alive);
}

std::string_view http_reason(int status) {
  switch (status) {
    case 200:
      return "OK";
    case 204:
      return "No Content";
    case 400:
      return "Bad Request";
    case 401:
      return "Unauthorized";
    case 403:
      return "Forbidden";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 408:
      return "Request Timeout";
    case 413:
      return "Content Too Large";
    case 414:
      return "URI Too Long";
    case 415:
      return "Unsupported Media Type";
    case 421:
      return "Misdirected Request";
    case 429:
      return "Too Many Requests";
    case 431:
      return "Request Header Fields Too Large";
    case 500:
      return "Internal Server Error";
    case 501:
      return "Not Implemented";
    case 503:
      return "Service Unavailable";
    case 504:
      return "Gateway Timeout";
    default:
      return "Answer";
  }
}

std::string HttpAnswer::head_lines(int status, const std::string& content_type,
                                   const HttpHeaders& headers) {
  std::string out = fmt::format("HTTP/1.1 {} {}\r\nServer: roost\r\n", status, http_reason(status));
  if (!content_type.empty()) out += fmt::format("Content-Type: {}\r\n", content_type);
  for (const auto& [name, value] : headers) out += fmt::format("{}: {}\r\n", name, value);
  if (closes_)
    out += "Connection: close\r\n";
  else if (request_.is_http_1_0)
    out += "Connection: keep-alive\r\n";
  return out;
}

void HttpAnswer::respond(const HttpResponse& response) {
  if (has_begun_) return;
  has_begun_ = is_complete_ = true;
  closes_ = closes_ || response.closes;
  pending_ += head_lines(response.status, response.content_type, response.headers);
  if (response.status != 204)
    pending_ += fmt::format("Content-Length: {}\r\n", response.body.size());
  pending_ += "\r\n";
  if (!is_head_method_) pending_ += response.body;
}

void HttpAnswer::begin_stream(HttpHeaders headers, std::function<std::string()> idle) {
  if (has_begun_) return;
  has_begun_ = is_stream_ = true;
  idle_ = std::move(idle);
  // No chunks: the end of the connection ends the stream.
  closes_ = closes_ || request_.is_http_1_0;
  headers.emplace_back("Cache-Control", "no-store");
  headers.emplace_back("X-Accel-Buffering", "no");
  pending_ += head_lines(200, "text/event-stream; charset=utf-8", headers);
  pending_ += request_.is_http_1_0 ? "\r\n" : "Transfer-Encoding: chunked\r\n\r\n";
}

void HttpAnswer::write(std::string_view bytes) {
  if (!is_stream_ || is_complete_ || bytes.empty()) return;
  if (request_.is_http_1_0) {
    pending_ += bytes;
    return;
  }
  fmt::format_to(std::back_inserter(pending_), "{:x}\r\n", bytes.size());
  pending_ += bytes;
  pending_ += "\r\n";
}

void HttpAnswer::end_stream(bool keeps_connection) {
  if (!is_stream_ || is_complete_) return;
  is_complete_ = true;
  closes_ = closes_ || !keeps_connection;
  if (!request_.is_http_1_0) pending_ += "0\r\n\r\n";
}

}  // namespace roost
