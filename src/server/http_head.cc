// Strict reading of header blocks (docs/SERVER.md, security, HTTP).
#include "server/http_head.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "base/limits.h"

namespace roost {

namespace {

constexpr size_t kLineBytesMax = size_t{16} << 10;
constexpr size_t kFieldsMax = 100;

Error bad(std::string_view detail) {
  return Error{Refusal::HttpBadRequest, std::string(detail)};
}

char lower(char c) {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}

std::string lower_case(std::string_view s) {
  std::string out(s);
  std::transform(out.begin(), out.end(), out.begin(), lower);
  return out;
}

bool is_token(std::string_view s) {
  constexpr std::string_view kMarks = "!#$%&'*+-.^_`|~";
  return !s.empty() && std::all_of(s.begin(), s.end(), [&](char c) {
    const bool is_alnum = (c >= '0' && c <= '9') || (lower(c) >= 'a' && lower(c) <= 'z');
    return is_alnum || kMarks.find(c) != std::string_view::npos;
  });
}

std::string_view trim(std::string_view s) {
  const size_t first = s.find_first_not_of(" \t");
  if (first == std::string_view::npos) return {};
  return s.substr(first, s.find_last_not_of(" \t") - first + 1);
}

Result<void> check_bytes(std::string_view block) {
  for (size_t i = 0; i < block.size(); ++i) {
    const char c = block[i];
    if (c == '\0') return bad("the header holds a NUL");
    if (c == '\r' && (i + 1 == block.size() || block[i + 1] != '\n'))
      return bad("the header holds a CR without LF");
    if (c == '\n' && (i == 0 || block[i - 1] != '\r'))
      return bad("the header holds an LF without CR");
  }
  return {};
}

Result<void> read_request_line(std::string_view line, HttpHead& head) {
  const size_t first = line.find(' ');
  const size_t last = line.rfind(' ');
  if (first == std::string_view::npos || first == last) return bad("the request line is malformed");
  const std::string_view method = line.substr(0, first);
  const std::string_view target = line.substr(first + 1, last - first - 1);
  const std::string_view version = line.substr(last + 1);
  if (!is_token(method)) return bad("the method is malformed");
  if (target.size() > limits::kTargetBytesMax)
    return Error{Refusal::HttpUriTooLong,
                 fmt::format("have {} bytes, at most {}", target.size(), limits::kTargetBytesMax)};
  const bool has_bad_byte = std::any_of(target.begin(), target.end(), [](char c) {
    return static_cast<unsigned char>(c) <= 0x20 || static_cast<unsigned char>(c) >= 0x7F;
  });
  if (target.empty() || has_bad_byte) return bad("the request target is malformed");
  if (version != "HTTP/1.1" && version != "HTTP/1.0") return bad("want HTTP/1.1 or HTTP/1.0");
  head.is_http_1_0 = version == "HTTP/1.0";
  return {};
}

// Collects over the fields of one header.
struct FieldReader {
  HttpHead& head;
  size_t n_hosts = 0;
  bool has_transfer_encoding = false;

  Result<void> read(std::string_view line) {
    if (line[0] == ' ' || line[0] == '\t') return bad("header lines must not be folded");
    const size_t colon = line.find(':');
    if (colon == std::string_view::npos || !is_token(line.substr(0, colon)))
      return bad("a header line is malformed");
    const std::string name = lower_case(line.substr(0, colon));
    const std::string_view value = trim(line.substr(colon + 1));
    if (name == "host") ++n_hosts;
    if (name == "content-length") return read_length(value);
    if (name == "transfer-encoding") return read_coding(value);
    if (name == "expect") return read_expect(value);
    if (name == "connection") read_connection(value);
    return {};
  }

  Result<void> read_length(std::string_view value) {
    const bool is_number = !value.empty() && value.size() <= 18 &&
                           value.find_first_not_of("0123456789") == std::string_view::npos;
    if (!is_number) return bad("Content-Length is not a number of at most 18 digits");
    if (head.content_length)
      return Error{Refusal::HttpLengthConflict, "Content-Length stands twice"};
    uint64_t n = 0;
    for (const char c : value) n = n * 10 + static_cast<uint64_t>(c - '0');
    head.content_length = n;
    return {};
  }

  Result<void> read_coding(std::string_view value) {
    if (has_transfer_encoding) return bad("Transfer-Encoding stands twice");
    has_transfer_encoding = true;
    if (lower_case(value) != "chunked") return bad("want the transfer coding chunked or none");
    if (head.is_http_1_0) return bad("HTTP/1.0 has no transfer coding");
    head.is_chunked = true;
    return {};
  }

  Result<void> read_expect(std::string_view value) {
    if (lower_case(value) != "100-continue")
      return bad("want the expectation 100-continue or none");
    head.expects_continue = !head.is_http_1_0;
    return {};
  }

  void read_connection(std::string_view value) {
    const std::string words = lower_case(value);
    head.closes = head.closes || words.find("close") != std::string::npos;
    head.keeps_alive = head.keeps_alive || words.find("keep-alive") != std::string::npos;
  }
};

}  // namespace

std::optional<size_t> find_head_end(std::string_view bytes, size_t from) {
  const size_t at = bytes.find("\r\n\r\n", from > 3 ? from - 3 : 0);
  if (at == std::string_view::npos) return std::nullopt;
  return at + 4;
}

std::string_view target_in_head(std::string_view block) {
  const std::string_view line = block.substr(0, block.find("\r\n"));
  const size_t first = line.find(' ');
  return line.substr(first + 1, line.rfind(' ') - first - 1);
}

std::string_view field_in_head(std::string_view block, std::string_view lower_case_name) {
  for (size_t end = block.find("\r\n"); end != std::string_view::npos; end = block.find("\r\n")) {
    block.remove_prefix(end + 2);
    const std::string_view line = block.substr(0, block.find("\r\n"));
    const size_t colon = std::min(line.find(':'), line.size());
    if (colon == lower_case_name.size() && lower_case(line.substr(0, colon)) == lower_case_name)
      return trim(line.substr(std::min(colon + 1, line.size())));
  }
  return {};
}

Result<HttpHead> read_http_head(std::string_view block) {
  ROOST_TRY_DO(check_bytes(block));
  HttpHead head;
  FieldReader fields{head};
  size_t n_lines = 0;
  while (!block.empty()) {
    const size_t end = block.find("\r\n");
    if (end == std::string_view::npos) return bad("the header does not end");
    const std::string_view line = block.substr(0, end);
    block.remove_prefix(end + 2);
    if (line.empty()) break;
    // A long request line is a long target: read_request_line says so with its own code.
    if (n_lines > 0 && line.size() > kLineBytesMax)
      return Error{Refusal::HttpHeaderTooLarge,
                   fmt::format("a line has {} bytes, at most {}", line.size(), kLineBytesMax)};
    if (n_lines > kFieldsMax)
      return Error{Refusal::HttpHeaderTooLarge,
                   fmt::format("more than {} header lines", kFieldsMax)};
    if (n_lines == 0)
      ROOST_TRY_DO(read_request_line(line, head));
    else
      ROOST_TRY_DO(fields.read(line));
    ++n_lines;
  }
  if (n_lines == 0) return bad("the request line is missing");
  if (head.is_chunked && head.content_length)
    return Error{Refusal::HttpLengthConflict, "both stand in the header"};
  if (fields.n_hosts > 1) return bad("Host stands twice");
  if (fields.n_hosts == 0 && !head.is_http_1_0) return bad("Host is missing");
  return head;
}

}  // namespace roost
