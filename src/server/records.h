// What the server writes down of each request when it was asked to: spans of time, and texts.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "server/reply_codec.h"

namespace roost {

struct TraceSpan {
  const char* name;
  int64_t from_ns = 0, to_ns = 0;  // on the engine's clock; a span that never began has 0
};

// A line of the Chrome trace format for each span that is not empty, each with a comma behind it:
// behind a line "[" they are an array that its readers take without an end. lane: of the request.
std::string trace_lines(uint64_t lane, const std::string& request_id, const std::string& trace_id,
                        const std::vector<TraceSpan>& spans);

// {"request_id","path","body"}; a body that is no JSON is a text.
std::string request_record(const std::string& request_id, std::string_view path,
                           const std::string& body);
// {"request_id","finish_detail","choices":[{"reasoning","content","calls":[{"name","arguments"}]}]}
std::string reply_record(const std::string& request_id, const std::string& finish_detail,
                         const std::vector<FinishedChoice>& choices);

}  // namespace roost
