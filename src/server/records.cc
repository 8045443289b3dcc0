#include "server/records.h"

#include <utility>

#include "base/json.h"

namespace roost {

namespace {

json::Value text(std::string_view s) {
  return json::Value::string(std::string(s));
}

}  // namespace

std::string trace_lines(uint64_t lane, const std::string& request_id, const std::string& trace_id,
                        const std::vector<TraceSpan>& spans) {
  std::string out;
  for (const TraceSpan& span : spans) {
    if (span.from_ns == 0 || span.to_ns <= span.from_ns) continue;
    json::Value arguments = json::Value::object();
    arguments.set("request_id", text(request_id));
    arguments.set("trace_id", text(trace_id));
    json::Value event = json::Value::object();
    event.set("name", text(span.name));
    event.set("ph", text("X"));  // a span with its length
    event.set("ts", json::Value::real(static_cast<double>(span.from_ns) / 1e3));
    event.set("dur", json::Value::real(static_cast<double>(span.to_ns - span.from_ns) / 1e3));
    event.set("pid", json::Value::integer(1));
    event.set("tid", json::Value::unsigned_integer(lane));
    event.set("args", std::move(arguments));
    if (!out.empty()) out += '\n';
    out += json::write(event) + ',';
  }
  return out;
}

std::string request_record(const std::string& request_id, std::string_view path,
                           const std::string& body) {
  Result<json::Value> value = json::parse(body);
  json::Value out = json::Value::object();
  out.set("request_id", text(request_id));
  out.set("path", text(path));
  out.set("body", value ? std::move(*value) : text(body));
  return json::write(out);
}

std::string reply_record(const std::string& request_id, const std::string& finish_detail,
                         const std::vector<FinishedChoice>& choices) {
  json::Value list = json::Value::array();
  for (const FinishedChoice& choice : choices) {
    json::Value calls = json::Value::array();
    for (const ReplyItem& item : choice.machine->items()) {
      if (item.kind != ReplyItem::Kind::kCall) continue;
      json::Value call = json::Value::object();
      call.set("name", text(item.name));
      call.set("arguments", text(item.text));
      calls.push(std::move(call));
    }
    json::Value one = json::Value::object();
    one.set("reasoning", text(choice.machine->reasoning()));
    one.set("content", text(choice.machine->content()));
    one.set("calls", std::move(calls));
    list.push(std::move(one));
  }
  json::Value out = json::Value::object();
  out.set("request_id", text(request_id));
  out.set("finish_detail", text(finish_detail));
  out.set("choices", std::move(list));
  return json::write(out);
}

}  // namespace roost
