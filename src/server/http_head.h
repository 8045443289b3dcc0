// The header block of a request, judged before a parser sees it: strict where HTTP lets two readers
// disagree.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "base/result.h"

namespace roost {

struct HttpHead {
  bool is_http_1_0 = false;
  bool is_chunked = false;
  bool expects_continue = false;
  bool closes = false;       // the client asks for the connection to end
  bool keeps_alive = false;  // an HTTP/1.0 client asks for it to go on
  std::optional<uint64_t> content_length;
};

// `block` ends with the empty line. Refuses http.bad_request (folding, bare CR or LF, NUL, a bad
// version or name, Host missing or repeated on 1.1), http.length_conflict, http.uri_too_long,
// http.header_too_large.
Result<HttpHead> read_http_head(std::string_view block);

// The request target of a good block, and the value of its first field of that name ("": none).
std::string_view target_in_head(std::string_view block);
std::string_view field_in_head(std::string_view block, std::string_view lower_case_name);

// Where the header block ends (behind its empty line), looking from byte `from` on.
std::optional<size_t> find_head_end(std::string_view bytes, size_t from);

}  // namespace roost
