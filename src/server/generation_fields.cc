// The table of generation fields (docs/SERVER.md, generation fields).
#include "server/generation_fields.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "base/limits.h"
#include "engine/engine.h"
#include "server/structured_output.h"

namespace roost {

namespace {

// Values of a refused field that change nothing.
enum class Neutral { kNone, kFalse, kZero, kOne, kEmpty, kMinusOneOrZero };

struct ForeignField {
  const char* key;
  Neutral neutral;
  const char* advice;
};

// Fields of other servers that would change the reply and that no plan of this server knows.
constexpr ForeignField kForeignFields[] = {
    {"use_beam_search", Neutral::kFalse, "beams are not searched"},
    {"length_penalty", Neutral::kOne, "beams are not searched"},
    {"early_stopping", Neutral::kFalse, "beams are not searched"},
    {"typical_p", Neutral::kOne, "use top_p or min_p"},
    {"tfs_z", Neutral::kOne, "use top_p or min_p"},
    {"top_a", Neutral::kZero, "use top_p or min_p"},
    {"mirostat", Neutral::kZero, "use temperature and top_p"},
    {"mirostat_mode", Neutral::kZero, "use temperature and top_p"},
    {"dry_multiplier", Neutral::kZero, "there is no such sampler"},
    {"xtc_probability", Neutral::kZero, "there is no such sampler"},
    {"top_n_sigma", Neutral::kMinusOneOrZero, "use min_p"},
    {"dynatemp_range", Neutral::kZero, "use temperature"},
    {"penalty_last_n", Neutral::kZero, "there is no window of penalties"},
    {"repeat_last_n", Neutral::kZero, "there is no window of penalties"},
    {"samplers", Neutral::kEmpty, "the order of samplers is fixed"},
    {"bad_words", Neutral::kEmpty, "use logit_bias"},
    {"allowed_token_ids", Neutral::kEmpty, "there is no such mask"},
    {"logits_processors", Neutral::kEmpty, "no code is taken from requests"},
    {"custom_logit_processor", Neutral::kEmpty, "no code is taken from requests"},
    {"prompt_logprobs", Neutral::kNone, "use echo with logprobs of /v1/completions"},
    {"truncate_prompt_tokens", Neutral::kNone, "a prompt is never cut in silence"},
    {"guided_json", Neutral::kNone, "use structured_outputs"},
    {"guided_regex", Neutral::kNone, "use structured_outputs"},
    {"guided_choice", Neutral::kNone, "use structured_outputs"},
    {"guided_grammar", Neutral::kNone, "use structured_outputs"},
    {"grammar", Neutral::kEmpty, "use structured_outputs"},
    {"json_schema", Neutral::kNone, "use response_format"},
    {"structural_tag", Neutral::kNone, "use structured_outputs"},
    {"chat_template", Neutral::kNone, "the checkpoint's own template is used"},
    {"documents", Neutral::kEmpty, "put documents into messages"},
    {"mm_processor_kwargs", Neutral::kEmpty, "there is no such setting"},
    {"repeat_penalty", Neutral::kOne, "use repetition_penalty"},
    {"n_predict", Neutral::kNone, "use max_tokens"},
    {"num_predict", Neutral::kNone, "use max_tokens"},
    {"options", Neutral::kEmpty, "put its members at the top level"},
    {"format", Neutral::kEmpty, "use response_format"},
    {"functions", Neutral::kEmpty, "use tools"},
    {"function_call", Neutral::kNone, "use tool_choice"},
    {"audio", Neutral::kNone, "text alone is generated"},
    {"web_search_options", Neutral::kNone, "nothing is searched"},
};

// Settings of samplers that are off: without their switch they do nothing.
constexpr const char* kWithoutEffect[] = {
    "mirostat_tau",       "mirostat_eta",          "dry_base",      "dry_allowed_length",
    "dry_penalty_last_n", "dry_sequence_breakers", "xtc_threshold", "dynatemp_exponent",
};

bool is_neutral(const json::Value& value, Neutral neutral) {
  const auto equals = [&](double d) { return value.is_number() && value.as_double() == d; };
  switch (neutral) {
    case Neutral::kNone:
      return false;
    case Neutral::kFalse:
      return value.is_bool() && !value.as_bool();
    case Neutral::kZero:
      return equals(0);
    case Neutral::kOne:
      return equals(1);
    case Neutral::kMinusOneOrZero:
      return equals(0) || equals(-1);
    case Neutral::kEmpty:
      return (value.is_string() && value.as_string().empty()) ||
             (value.is_array() && value.items().empty()) ||
             (value.is_object() && value.members().empty());
  }
  return false;
}

Result<void> refuse_unless_neutral(Fields& body, const ForeignField& field) {
  const json::Value* value = body.take(field.key);
  if (value == nullptr) return {};
  if (!is_neutral(*value, field.neutral))
    return body.refuse(Refusal::UnsupportedField, field.key,
                       fmt::format("have {}; {}", value_short(*value), field.advice));
  body.ignore(field.key);
  return {};
}

Result<void> read_limits(Fields& body, const FieldNames& names, GenerationFields& out) {
  ROOST_TRY(out.max_tokens, body.integer(names.max_tokens, names.max_tokens_min, INT64_MAX));
  if (names.other_max_tokens != nullptr) {
    ROOST_TRY(const std::optional<int64_t> other,
              body.integer(names.other_max_tokens, names.max_tokens_min, INT64_MAX));
    if (other && out.max_tokens && *other != *out.max_tokens)
      return body.refuse(Refusal::FieldConflict, names.max_tokens,
                         fmt::format("{} is {} and {} is {}", names.max_tokens, *out.max_tokens,
                                     names.other_max_tokens, *other));
    if (other) out.max_tokens = other;
  }
  ROOST_TRY(const std::optional<int64_t> min_tokens, body.integer("min_tokens", 0, INT64_MAX));
  out.min_tokens = min_tokens.value_or(0);
  if (out.max_tokens && out.min_tokens > *out.max_tokens)
    return body.refuse(Refusal::FieldConflict, "min_tokens",
                       fmt::format("min_tokens is {} and {} is {}", out.min_tokens,
                                   names.max_tokens, *out.max_tokens));

  ROOST_TRY(const std::optional<int64_t> n, body.integer("n", 1, limits::kChoicesMax));
  out.n = n.value_or(1);
  if (out.n > 1 && !names.has_n)
    return body.refuse(Refusal::UnsupportedField, "n",
                       fmt::format("have {}; this protocol has one reply", out.n));
  ROOST_TRY(const std::optional<int64_t> best_of, body.integer("best_of", 1, INT64_MAX));
  if (best_of && *best_of != out.n)
    return body.refuse(Refusal::UnsupportedField, "best_of",
                       fmt::format("have {}, n is {}; all choices are returned", *best_of, out.n));
  return {};
}

// The token that a key of logit_bias names, or nothing.
std::optional<int64_t> token_of_key(const std::string& key) {
  if (key.empty() || key.size() > 10) return std::nullopt;
  int64_t id = 0;
  for (const char c : key) {
    if (c < '0' || c > '9') return std::nullopt;
    id = id * 10 + (c - '0');
  }
  return id;
}

Result<void> read_bias(Fields& body, const RequestRules& rules, GenerationFields& out) {
  ROOST_TRY(const json::Value* bias, body.object("logit_bias"));
  if (bias == nullptr) return {};
  if (bias->members().empty()) body.ignore("logit_bias");
  if (bias->members().size() > limits::kLogitBiasMax)
    return body.refuse(
        Refusal::TooManyItems, "logit_bias",
        fmt::format("have {} tokens, at most {}", bias->members().size(), limits::kLogitBiasMax));
  ROOST_TRY(Fields fields, Fields::open(*bias, body.pointer_of("logit_bias"), body.notes()));
  for (const json::Member& member : bias->members()) {
    const std::optional<int64_t> id = token_of_key(member.first);
    if (!id || *id >= rules.n_tokens)
      return body.refuse(Refusal::FieldRange, "logit_bias",
                         fmt::format("have {}, want token ids from 0 to {}",
                                     quoted_short(member.first), rules.n_tokens - 1));
    ROOST_TRY(const std::optional<double> value, fields.number(member.first, -100, 100));
    const auto token = static_cast<int32_t>(*id);
    const bool is_twice = std::any_of(out.logit_bias.begin(), out.logit_bias.end(),
                                      [&](const auto& b) { return b.first == token; });
    if (is_twice)
      return body.refuse(Refusal::FieldConflict, "logit_bias",
                         fmt::format("the token {} is named twice", token));
    if (value.value_or(0) != 0) out.logit_bias.emplace_back(token, *value);
  }
  return {};
}

Result<void> read_sampling(Fields& body, const RequestRules& rules, GenerationFields& out) {
  ROOST_TRY(out.temperature, body.number("temperature", 0, 5));
  ROOST_TRY(out.top_p, body.number("top_p", 0, 1));
  ROOST_TRY(out.min_p, body.number("min_p", 0, 1));
  ROOST_TRY(out.top_k, body.integer("top_k", -1, rules.n_tokens));
  if (out.top_k) out.top_k = std::max<int64_t>(*out.top_k, 0);
  ROOST_TRY(out.presence_penalty, body.number("presence_penalty", -2, 2));
  ROOST_TRY(out.frequency_penalty, body.number("frequency_penalty", -2, 2));
  ROOST_TRY(out.repetition_penalty, body.number("repetition_penalty", 0, 10));
  if (out.repetition_penalty == 0)
    return body.refuse(Refusal::FieldRange, "repetition_penalty", "have 0, want more than 0");
  ROOST_TRY_DO(read_bias(body, rules, out));

  const json::Value* seed = body.take("seed");
  if (seed == nullptr) return {};
  const bool is_fraction = seed->is_number() && std::floor(seed->as_double()) != seed->as_double();
  if (!seed->is_number() || is_fraction)
    return body.refuse(Refusal::FieldType, "seed",
                       fmt::format("have {}, want an integer", value_short(*seed)));
  if (const std::optional<int64_t> i = seed->as_int64()) {
    if (*i != -1) out.seed = static_cast<uint64_t>(*i);  // -1: clients' way to say "random"
    return {};
  }
  out.seed = seed->as_uint64();
  if (!out.seed)
    return body.refuse(
        Refusal::FieldRange, "seed",
        fmt::format("have {}, want an integer from -2^63 to 2^64-1", value_short(*seed)));
  return {};
}

Result<void> read_one_stop(Fields& body, const json::Value& value, const std::string& key,
                           GenerationFields& out) {
  if (!value.is_string())
    return body.refuse(Refusal::FieldType, key,
                       fmt::format("have {}, want a string", value_short(value)));
  const std::string& text = value.as_string();
  if (text.empty()) return body.refuse(Refusal::FieldValue, key, "a stop string must not be empty");
  if (text.size() > limits::kStopStringBytesMax)
    return body.refuse(
        Refusal::TooManyItems, key,
        fmt::format("have {} bytes, at most {}", text.size(), limits::kStopStringBytesMax));
  out.stops.push_back(text);
  return {};
}

Result<void> read_stops(Fields& body, const RequestRules& rules, const char* key,
                        GenerationFields& out) {
  const json::Value* stop = body.take(key);
  if (stop != nullptr && stop->is_array()) {
    if (stop->items().size() > limits::kStopStringsMax)
      return body.refuse(Refusal::TooManyItems, key,
                         fmt::format("have {} strings, at most {}", stop->items().size(),
                                     limits::kStopStringsMax));
    for (const json::Value& item : stop->items()) ROOST_TRY_DO(read_one_stop(body, item, key, out));
  } else if (stop != nullptr) {
    ROOST_TRY_DO(read_one_stop(body, *stop, key, out));
  }

  ROOST_TRY(const json::Value* ids, body.array("stop_token_ids", limits::kStopTokensMax));
  if (ids != nullptr) {
    for (const json::Value& item : ids->items()) {
      const std::optional<int64_t> id = item.is_number() ? item.as_int64() : std::nullopt;
      if (!id)
        return body.refuse(Refusal::FieldType, "stop_token_ids",
                           fmt::format("have {}, want token ids", value_short(item)));
      if (*id < 0 || *id >= rules.n_tokens)
        return body.refuse(Refusal::FieldRange, "stop_token_ids",
                           fmt::format("have {}, want 0 to {}", *id, rules.n_tokens - 1));
      out.stop_tokens.push_back(static_cast<int32_t>(*id));
    }
  }
  ROOST_TRY(const std::optional<bool> ignore_eos, body.boolean("ignore_eos"));
  out.ignore_end_tokens = ignore_eos.value_or(false);
  ROOST_TRY(const std::optional<bool> keep, body.boolean("include_stop_str_in_output"));
  out.keeps_stop_text = keep.value_or(false);
  return {};
}

// The several spellings of "think or not", "how much" and "how hard": first wins, a second that
// says otherwise is a conflict.
struct Thinking {
  bool is_spoken_of = false;
  std::optional<bool> is_on;
  std::string is_on_pointer;
  std::optional<int64_t> budget;
  std::string budget_pointer;
  std::optional<std::string> effort;
  std::string effort_pointer;

  template <class T>
  static Result<void> set(Fields& at, std::optional<T>& slot, std::string& slot_pointer, T value,
                          std::string_view key) {
    const std::string pointer = at.pointer_of(key);
    if (slot && *slot != value)
      return refuse_at(at.notes(), Refusal::FieldConflict, pointer,
                       fmt::format("{} and {} say different things", path_of_pointer(slot_pointer),
                                   path_of_pointer(pointer)));
    if (!slot) slot_pointer = pointer;
    slot = std::move(value);
    return {};
  }
  bool says_anything() const { return is_spoken_of || is_on || budget || effort; }

  Result<void> set_on(Fields& at, std::string_view key, std::optional<bool> value) {
    if (!value) return {};
    return set(at, is_on, is_on_pointer, *value, key);
  }
  // A budget of nothing is the template's closed form.
  Result<void> set_off_by_budget(Fields& body) {
    if (is_on.value_or(false))
      return refuse_at(
          body.notes(), Refusal::FieldConflict, budget_pointer,
          fmt::format("{} is true and the budget is 0", path_of_pointer(is_on_pointer)));
    is_on = false;
    return {};
  }
  Result<void> set_budget(Fields& at, std::string_view key) {
    ROOST_TRY(const std::optional<int64_t> value, at.integer(key, -1, INT64_MAX));
    if (!value) return {};
    return set(at, budget, budget_pointer, *value, key);
  }
  Result<void> set_effort(Fields& at, std::string_view key) {
    ROOST_TRY(const std::optional<std::string> value, at.string(key, limits::kLabelBytesMax));
    if (!value) return {};
    if (*value != "none" && !is_effort_level(*value))
      return at.refuse(Refusal::FieldValue, key,
                       fmt::format("have {}, want none, minimal, low, medium, high, xhigh or max",
                                   quoted_short(*value)));
    if (*value == "none") return set_on(at, key, false);
    return set(at, effort, effort_pointer, *value, key);
  }
};

// `thinking {type, budget_tokens}` of the Messages dialect.
Result<void> read_thinking_object(Fields& body, Thinking& thinking, GenerationFields& out) {
  ROOST_TRY(const json::Value* value, body.object("thinking"));
  if (value == nullptr) return {};
  ROOST_TRY(Fields fields, Fields::open(*value, body.pointer_of("thinking"), body.notes()));
  ROOST_TRY(const std::optional<std::string> type, fields.string("type", limits::kLabelBytesMax));
  if (type && *type != "enabled" && *type != "disabled" && *type != "adaptive")
    return fields.refuse(
        Refusal::FieldValue, "type",
        fmt::format("have {}, want enabled, disabled or adaptive", quoted_short(*type)));
  if (type) thinking.is_spoken_of = true;
  if (type && *type != "adaptive")
    ROOST_TRY_DO(thinking.set_on(fields, "type", *type == "enabled"));
  ROOST_TRY_DO(thinking.set_budget(fields, "budget_tokens"));
  ROOST_TRY(const std::optional<std::string> display,
            fields.string("display", limits::kLabelBytesMax));
  if (display && *display != "omitted" && *display != "summarized")
    return fields.refuse(
        Refusal::FieldValue, "display",
        fmt::format("have {}, want omitted or summarized", quoted_short(*display)));
  if (display == "omitted") out.include_reasoning = false;
  fields.ignore_rest();
  return {};
}

// `reasoning {effort, max_tokens, enabled, exclude}` of request routers.
Result<void> read_reasoning_object(Fields& body, Thinking& thinking, GenerationFields& out) {
  ROOST_TRY(const json::Value* value, body.object("reasoning"));
  if (value == nullptr) return {};
  ROOST_TRY(Fields fields, Fields::open(*value, body.pointer_of("reasoning"), body.notes()));
  ROOST_TRY(const std::optional<bool> enabled, fields.boolean("enabled"));
  ROOST_TRY_DO(thinking.set_on(fields, "enabled", enabled));
  ROOST_TRY_DO(thinking.set_effort(fields, "effort"));
  fields.take("summary");  // of the one dialect that has summaries, which reads it itself
  ROOST_TRY_DO(thinking.set_budget(fields, "max_tokens"));
  ROOST_TRY(const std::optional<bool> exclude, fields.boolean("exclude"));
  ROOST_TRY(const std::optional<bool> include, body.boolean("include_reasoning"));
  if (exclude && include && *exclude == *include)
    return fields.refuse(Refusal::FieldConflict, "exclude",
                         "include_reasoning and reasoning.exclude say different things");
  if (exclude) out.include_reasoning = !*exclude;
  fields.ignore_rest();
  return {};
}

// `output_config {effort, format}` and `output_format` of the Messages dialect.
Result<void> read_output_config(Fields& body, Thinking& thinking, OutputFormat& format) {
  ROOST_TRY(const json::Value* value, body.object("output_config"));
  if (value != nullptr) {
    ROOST_TRY(Fields fields, Fields::open(*value, body.pointer_of("output_config"), body.notes()));
    ROOST_TRY_DO(thinking.set_effort(fields, "effort"));
    ROOST_TRY_DO(read_messages_format(fields, "format", format));
    fields.ignore_rest();
  }
  return read_messages_format(body, "output_format", format);
}

Result<void> read_template_kwargs(Fields& body, const RequestRules& rules, Thinking& thinking,
                                  GenerationFields& out) {
  ROOST_TRY(const json::Value* value, body.object("chat_template_kwargs"));
  if (value == nullptr) return {};
  ROOST_TRY(Fields fields,
            Fields::open(*value, body.pointer_of("chat_template_kwargs"), body.notes()));
  ROOST_TRY(const std::optional<bool> enable, fields.boolean("enable_thinking"));
  ROOST_TRY_DO(thinking.set_on(fields, "enable_thinking", enable));
  ROOST_TRY(const std::optional<bool> think, fields.boolean("thinking"));
  ROOST_TRY_DO(thinking.set_on(fields, "thinking", think));
  ROOST_TRY_DO(thinking.set_effort(fields, "reasoning_effort"));
  for (const json::Member& member : value->members()) {
    const std::string& key = member.first;
    if (key == "enable_thinking" || key == "thinking" || key == "reasoning_effort") continue;
    if (key == "messages" || key == "tools" || key == "add_generation_prompt")
      return fields.refuse(Refusal::FieldConflict, key,
                           "this name is the server's own; use the field of the request");
    if (!rules.template_reads(key)) continue;  // listed by ignore_rest
    if (fields.take(key) != nullptr) out.template_members.push_back(member);
  }
  fields.ignore_rest();
  return {};
}

// Effort levels that the template names; `levels` are lowest first.
std::string nearest_level(const std::string& effort, const std::vector<std::string>& levels) {
  const auto has = [&](const char* name) {
    return std::find(levels.begin(), levels.end(), name) != levels.end();
  };
  if (effort == "medium" && has("medium")) return effort;
  if (effort == "minimal" || effort == "low") return levels.front();
  return levels.back();
}

Result<void> apply_thinking(Fields& body, const RequestRules& rules, Thinking& thinking,
                            GenerationFields& out) {
  if (thinking.budget == 0) ROOST_TRY_DO(thinking.set_off_by_budget(body));
  if (thinking.budget.value_or(0) != 0) out.reasoning_budget = thinking.budget;
  out.says_thinking = thinking.says_anything();
  out.thinking = thinking.is_on;
  if (thinking.is_on && !rules.template_reads("enable_thinking") && !thinking.is_on_pointer.empty())
    body.notes().ignored.push_back(thinking.is_on_pointer);
  if (!thinking.effort) return {};
  if (rules.template_reads("reasoning_effort") && !rules.effort_levels.empty()) {
    out.template_members.emplace_back(
        "reasoning_effort",
        json::Value::string(nearest_level(*thinking.effort, rules.effort_levels)));
    return {};
  }
  // A template that knows no levels: effort is a bound on reasoning, unless one is given.
  const auto budget = rules.effort_budgets.find(*thinking.effort);
  if (budget != rules.effort_budgets.end() && !out.reasoning_budget)
    out.reasoning_budget = budget->second;
  return {};
}

Result<void> read_thinking(Fields& body, const RequestRules& rules, GenerationFields& out) {
  ROOST_TRY(const std::optional<bool> include, body.boolean("include_reasoning"));
  out.include_reasoning = include.value_or(true);
  ROOST_TRY(out.guards_loops, body.boolean("loop_guard"));
  Thinking thinking;
  ROOST_TRY_DO(read_template_kwargs(body, rules, thinking, out));
  ROOST_TRY(const std::optional<bool> enable, body.boolean("enable_thinking"));
  ROOST_TRY_DO(thinking.set_on(body, "enable_thinking", enable));
  ROOST_TRY_DO(thinking.set_effort(body, "reasoning_effort"));
  for (const char* key : {"thinking_token_budget", "thinking_budget", "reasoning_budget"})
    ROOST_TRY_DO(thinking.set_budget(body, key));
  ROOST_TRY_DO(read_output_config(body, thinking, out.output));
  ROOST_TRY_DO(read_thinking_object(body, thinking, out));
  ROOST_TRY_DO(read_reasoning_object(body, thinking, out));
  ROOST_TRY_DO(apply_thinking(body, rules, thinking, out));

  ROOST_TRY(const std::optional<std::string> field,
            body.string("reasoning_field", limits::kLabelBytesMax));
  if (!field || *field == "reasoning_content") return {};
  if (*field != "reasoning" && *field != "both")
    return body.refuse(
        Refusal::FieldValue, "reasoning_field",
        fmt::format("have {}, want reasoning_content, reasoning or both", quoted_short(*field)));
  out.reasoning_field = *field == "both" ? ReasoningField::kBoth : ReasoningField::kReasoning;
  return {};
}

// How far tokens may be guessed ahead: of the speed alone.
Result<void> read_drafts(Fields& body, GenerationFields& out) {
  ROOST_TRY(const std::optional<bool> is_on, body.boolean("draft"));
  ROOST_TRY(const std::optional<int64_t> most, body.integer("draft_max", 0, kDraftsMax));
  out.drafts_max = is_on.value_or(true) ? static_cast<int32_t>(most.value_or(kDraftsMax)) : 0;
  return {};
}

// What the scheduler and the prefix cache are told.
Result<void> read_scheduling(Fields& body, GenerationFields& out) {
  ROOST_TRY(const std::optional<bool> cache, body.boolean("cache_prompt"));
  out.uses_cache = cache.value_or(true);
  ROOST_TRY(const std::optional<bool> replay, body.boolean("replay"));
  out.uses_replay = replay.value_or(true);
  ROOST_TRY(const std::optional<std::string> salt,
            body.string("cache_salt", limits::kLabelBytesMax));
  if (salt && salt->empty())
    return body.refuse(Refusal::FieldRange, "cache_salt", "have 0 bytes, want 1 to 128");
  out.cache_salt = salt.value_or("");
  const json::Value* priority = body.take("priority");
  if (priority != nullptr && priority->is_string()) {
    const std::string& name = priority->as_string();
    if (name != "background" && name != "normal" && name != "high")
      return body.refuse(
          Refusal::FieldValue, "priority",
          fmt::format("have {}, want background, normal or high", quoted_short(name)));
    out.priority = name == "background" ? kBackgroundPriority
                   : name == "high"     ? -kBackgroundPriority
                                        : 0;
  } else if (priority != nullptr) {
    ROOST_TRY(const std::optional<int64_t> level, body.integer("priority", -100, 100));
    out.priority = static_cast<int32_t>(level.value_or(0));
  }
  ROOST_TRY(out.timeout_s, body.number("timeout", 0, 86'400));
  if (out.timeout_s == 0)
    return body.refuse(Refusal::FieldRange, "timeout", "have 0, want more than 0");
  return {};
}

// What the events of a stream tell beside the reply.
Result<void> read_telling(Fields& body, GenerationFields& out) {
  ROOST_TRY(const std::optional<bool> ids, body.boolean("return_token_ids"));
  out.return_token_ids = ids.value_or(false);
  ROOST_TRY(const std::optional<bool> progress, body.boolean("return_progress"));
  out.returns_progress = progress.value_or(false);
  ROOST_TRY(const std::optional<bool> timings, body.boolean("timings_per_token"));
  out.has_running_timings = timings.value_or(false);
  return {};
}

// Fields that are checked and then have no effect on the tokens.
Result<void> read_without_effect(Fields& body) {
  for (const char* key : kWithoutEffect) body.ignore(key);
  return {};
}

}  // namespace

Result<std::string> read_model_name(Fields& body, const RequestRules& rules) {
  ROOST_TRY(const std::optional<std::string> model, body.string("model", SIZE_MAX));
  if (!rules.is_strict_model || !model) return model.value_or("");
  for (const std::string& id : rules.model_ids)
    if (id == *model) return id;
  return body.refuse(
      Refusal::UnknownModel, "model",
      fmt::format("have {}, served is {}", quoted_short(*model), quoted_short(rules.model_ids[0])));
}

bool is_effort_level(std::string_view name) {
  return std::find(std::begin(kEffortLevels), std::end(kEffortLevels), name) !=
         std::end(kEffortLevels);
}

Result<EffortBudgets> parse_effort_budgets(std::string_view text) {
  EffortBudgets out;
  while (!text.empty()) {
    const std::string_view entry = text.substr(0, text.find(','));
    text.remove_prefix(std::min(entry.size() + 1, text.size()));
    const size_t sign = std::min(entry.find('='), entry.size());
    const std::string_view digits = entry.substr(std::min(sign + 1, entry.size()));
    int64_t n = 0;
    const auto [end, failure] = std::from_chars(digits.data(), digits.data() + digits.size(), n);
    const bool is_number = failure == std::errc() && end == digits.data() + digits.size();
    const std::string level(entry.substr(0, sign));
    if (!is_effort_level(level) || !is_number || n < 1 || !out.emplace(level, n).second)
      return Error{Refusal::FlagValue,
                   fmt::format("--effort-budgets: have {}, want minimal, low, medium, high, xhigh "
                               "or max, each at most once, with = and a number of tokens",
                               quoted_short(entry))};
  }
  return out;
}

bool RequestRules::template_reads(const std::string& name) const {
  return std::binary_search(template_variables.begin(), template_variables.end(), name);
}

Result<void> refuse_foreign_fields(Fields& body) {
  for (const ForeignField& field : kForeignFields) ROOST_TRY_DO(refuse_unless_neutral(body, field));
  for (const char* key : {"lora", "lora_path", "adapters"}) {
    const json::Value* value = body.take(key);
    if (value == nullptr || is_neutral(*value, Neutral::kEmpty)) continue;
    return body.refuse(Refusal::FeatureNotOffered, key, "adapters are not loaded");
  }
  const json::Value* prediction = body.take("prediction");
  if (prediction != nullptr && prediction->find("content") != nullptr)
    return body.refuse(Refusal::UnsupportedField, "prediction",
                       "predicted content is not used; drafts need no help");
  ROOST_TRY(const json::Value* modalities, body.array("modalities", limits::kPartsMax));
  if (modalities != nullptr) {
    for (const json::Value& item : modalities->items())
      if (!item.is_string() || item.as_string() != "text")
        return body.refuse(Refusal::UnsupportedField, "modalities",
                           fmt::format("have {}; text alone is generated", value_short(item)));
  }
  return {};
}

Result<GenerationFields> read_generation(Fields& body, const RequestRules& rules,
                                         const FieldNames& names) {
  GenerationFields out;
  ROOST_TRY_DO(read_limits(body, names, out));
  ROOST_TRY_DO(read_sampling(body, rules, out));
  ROOST_TRY_DO(read_drafts(body, out));
  ROOST_TRY_DO(read_stops(body, rules, names.stop, out));
  if (names.has_reasoning) ROOST_TRY_DO(read_thinking(body, rules, out));
  ROOST_TRY(const std::optional<bool> skip_special, body.boolean("skip_special_tokens"));
  out.shows_special_tokens = !skip_special.value_or(true);
  if (out.shows_special_tokens && !names.shows_special_tokens)
    return body.refuse(Refusal::FieldValue, "skip_special_tokens",
                       "have false; special tokens are never text of a chat");
  ROOST_TRY_DO(read_telling(body, out));
  ROOST_TRY(const std::optional<std::string> request_id,
            body.string("request_id", limits::kLabelBytesMax));
  out.request_id = request_id.value_or("");
  ROOST_TRY_DO(read_scheduling(body, out));
  ROOST_TRY_DO(read_structured_outputs(body, out.output));
  ROOST_TRY_DO(read_without_effect(body));
  ROOST_TRY_DO(refuse_foreign_fields(body));
  return out;
}

}  // namespace roost
