// Inside of the service: one request on its way, and the routes.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "server/service.h"

namespace roost {

struct Service::Call {
  HttpRequest request;
  std::shared_ptr<HttpExchange> exchange;
  std::string request_id;
  std::string traceparent;  // the client's when it is valid, else made here
  Caller caller;
  ParseNotes notes;
  std::string_view route = "(unknown)";  // the pattern of its path, for the metrics
  int64_t arrived_ns = 0;
  std::string_view trace_id() const { return std::string_view(traceparent).substr(3, 32); }
  HttpHeaders headers;        // further ones of its answer
  int64_t retry_after_s = 0;  // known better than by the refusal; 0: not known

  // Errors of these paths have another shape.
  bool is_messages() const { return request.path.starts_with("/v1/messages"); }
  std::string cache_owner;  // the key's label, where keys do not share
  // Who shares prefixes and replies with whom: one key and one salt.
  std::string owner(const std::string& cache_salt) const { return cache_owner + '\n' + cache_salt; }
};

struct Service::Route {
  std::string_view method, path;
  void (Service::*handler)(Call&);
};

// What a generating request of any dialect becomes.
struct Service::Job {
  const char* dialect = "";
  std::string reply_id;
  const char* call_prefix = "call_";
  std::vector<std::vector<int32_t>> prompts;  // each with fields.n choices
  bool starts_in_reasoning = false;
  bool continues_turn = false;  // of the assistant, behind its reasoning
  bool finds_markers = true;
  std::shared_ptr<const ToolTable> tools;
  bool ends_at_first_call = false;
  bool is_call_named = false;
  GenerationFields fields;
  ReplyForm form;
  std::vector<std::string> tool_pointers;                // of the parameters of each of form.tools
  GrammarUse grammar;                                    // of the form, compiled
  int64_t n_replayed = 0;                                // prompt tokens of past replies
  std::vector<int64_t> places;                           // of the prompt, for the prefix cache
  std::function<void(const FinishedChoice&)> on_choice;  // may be empty
  Hash128 cache_salt, sharer;
  bool is_stream = false;
  std::function<std::unique_ptr<ReplyCodec>(ReplyHead)> make_codec;
};

bool asks_deep(const HttpRequest& request);  // of /health
bool is_printable_label(std::string_view s);
std::string percent_decoded(std::string_view s);
HttpResponse json_response(int status, const json::Value& body);

}  // namespace roost
