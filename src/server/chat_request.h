// The one internal request that every dialect becomes: messages, tools and generation fields,
// checked, with everything that the prompt and the reply depend on.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "server/structured_output.h"

namespace roost {

enum class Role { kSystem, kUser, kAssistant, kTool };

struct PastCall {
  std::string id, name;
  json::Value arguments;  // an object
};

struct Message {
  Role role = Role::kUser;
  std::string text;
  std::string reasoning;        // assistant only
  std::vector<PastCall> calls;  // assistant only
  std::string call_id;          // tool only
};

enum class ReasoningField { kReasoningContent, kReasoning, kBoth };

// Fields that mean the same in every dialect.
struct GenerationFields {
  std::optional<int64_t> max_tokens;  // absent: what fits the context
  std::optional<double> temperature, top_p, min_p;
  std::optional<int64_t> top_k;  // 0: off
  std::optional<uint64_t> seed;  // absent: a random one
  std::vector<std::string> stops;
  std::vector<int32_t> stop_tokens;
  bool ignore_end_tokens = false;
  bool keeps_stop_text = false;
  bool return_token_ids = false;
  bool include_reasoning = true;
  ReasoningField reasoning_field = ReasoningField::kReasoningContent;
  std::optional<bool> thinking;                // absent: the server's default
  std::vector<json::Member> template_members;  // further globals of the template
  std::string request_id;                      // empty: generated
  OutputFormat output;                         // what the reply must look like
};

struct ChatRequest {
  std::string model;  // as the client wrote it; may be empty
  std::vector<Message> messages;
  std::vector<json::Value> tools;  // as the template prints them
  GenerationFields generation;
  bool is_stream = false;
  bool include_usage = false;
};

// What of the served model a request is checked against.
struct RequestRules {
  int64_t n_tokens = 0;                         // ids are in [0, n_tokens)
  std::vector<std::string> template_variables;  // sorted
  std::vector<std::string> effort_levels;       // named by the template, lowest first
  std::vector<std::string> model_ids;           // the first one is the served id
  bool is_strict_model = false;                 // other names are refused

  bool template_reads(const std::string& name) const;
};

}  // namespace roost
