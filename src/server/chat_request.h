// The one internal request that every dialect becomes: messages, tools and generation fields,
// checked, with everything that the prompt and the reply depend on.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "engine/speculation/acceptance.h"
#include "server/structured_output.h"

namespace roost {

enum class Role { kSystem, kUser, kAssistant, kTool };

struct PastCall {
  std::string id, name;
  json::Value arguments;  // an object
};

// The first picture of a message for which a note stands in the text, until it is settled.
struct RefusedPicture {
  std::string pointer, detail;
};

struct Message {
  Role role = Role::kUser;
  std::string text;
  std::optional<RefusedPicture> refused_picture;
  std::string reasoning;        // assistant only
  std::vector<PastCall> calls;  // assistant only
  std::string call_id;          // tool only
};

struct Tool {
  json::Value printed;             // as the template prints it
  std::string name;                // as the model sees it
  json::Value parameters;          // a JSON schema, or null
  std::string parameters_pointer;  // where the body has it
  bool is_strict = false;          // its calls are bound by the schema
  bool is_free_text = false;       // its input is one text
  std::string name_space;          // Responses: calls come back with this and own_name apart
  std::string own_name;
};

enum class ReasoningField { kReasoningContent, kReasoning, kBoth };

// Fields that mean the same in every dialect.
struct GenerationFields {
  std::optional<int64_t> max_tokens;  // absent: what fits the context
  std::optional<double> temperature, top_p, min_p;
  std::optional<double> presence_penalty, frequency_penalty, repetition_penalty;
  std::optional<int64_t> top_k;  // 0: off
  std::vector<std::pair<int32_t, double>> logit_bias;
  int64_t min_tokens = 0;
  int64_t n = 1;                      // choices
  std::optional<int64_t> n_logprobs;  // likeliest tokens told with each; absent: no logprobs
  bool tells_prompt = false;          // with those of the prompt's tokens
  std::optional<uint64_t> seed;       // absent: a random one
  std::vector<std::string> stops;
  std::vector<int32_t> stop_tokens;
  int32_t drafts_max = kDraftsMax;  // guesses of a round; 0: none
  bool ignore_end_tokens = false;
  bool keeps_stop_text = false;
  bool shows_special_tokens = false;
  bool return_token_ids = false;
  bool returns_progress = false;  // events of how far the prompt is
  bool has_running_timings = false;
  bool include_reasoning = true;
  ReasoningField reasoning_field = ReasoningField::kReasoningContent;
  std::optional<bool> thinking;  // absent: the server's default
  bool says_thinking = false;    // some field spoke of it
  std::optional<int64_t>
      reasoning_budget;              // kept tokens of reasoning, -1: any; absent: the server's
  std::optional<bool> guards_loops;  // reasoning that repeats itself is closed
  std::vector<json::Member> template_members;  // further globals of the template
  std::string request_id;                      // empty: generated
  bool uses_cache = true;
  bool uses_replay = true;          // past replies keep the tokens with which they were drawn
  std::string cache_salt;           // hits only between equal salts
  int32_t priority = 0;             // lower goes first
  std::optional<double> timeout_s;  // from arrival
  OutputFormat output;              // what the reply must look like
};

struct ChatRequest {
  std::string model;  // as the client wrote it; may be empty
  std::vector<Message> messages;
  std::vector<Tool> tools;
  bool looks_for_calls = true;        // false: text that looks like a call is content
  bool ends_at_first_call = false;    // no parallel calls
  bool must_call = false;             // the reply is a call, or several
  bool is_call_named = false;         // of one tool
  std::vector<std::string> callable;  // the subset that may be called; empty: all
  bool has_header = true;             // the prompt ends in the header of the reply
  bool continues_last = false;  // the last message is the assistant's: the reply goes on with it
  GenerationFields generation;
  bool is_stream = false;
  bool include_usage = false;
  bool has_running_usage = false;  // usage so far on every event
};

// Efforts, lowest first.
inline constexpr std::string_view kEffortLevels[] = {"minimal", "low",   "medium",
                                                     "high",    "xhigh", "max"};
bool is_effort_level(std::string_view name);
// Most tokens of reasoning for an effort; one that is absent has no bound.
using EffortBudgets = std::map<std::string, int64_t, std::less<>>;
// "minimal=1024,low=4096,…". Refuses flag.value.
Result<EffortBudgets> parse_effort_budgets(std::string_view text);

// What of the served model a request is checked against.
struct RequestRules {
  int64_t n_tokens = 0;                         // ids are in [0, n_tokens)
  std::vector<std::string> template_variables;  // sorted
  std::vector<std::string> effort_levels;       // named by the template, lowest first
  EffortBudgets effort_budgets;                 // where the template names no level
  std::vector<std::string> model_ids;           // the first one is the served id
  bool is_strict_model = false;                 // other names are refused

  bool template_reads(const std::string& name) const;
};

}  // namespace roost
