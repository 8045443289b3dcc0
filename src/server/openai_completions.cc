// The Completions dialect (docs/SERVER.md, Completions).
#include "server/openai_completions.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/json.h"
#include "base/limits.h"
#include "base/utf8.h"
#include "server/error_body.h"
#include "server/generation_fields.h"
#include "server/openai_common.h"
#include "server/prompt.h"
#include "server/sse.h"

namespace roost {

namespace {

constexpr int64_t kMaxTokensDefault = 16;  // as in the protocol

Result<int32_t> read_token(const json::Value& value, const std::string& pointer,
                           const RequestRules& rules, ParseNotes& notes) {
  const std::optional<int64_t> id = value.is_number() ? value.as_int64() : std::nullopt;
  if (!id || *id < 0 || *id >= rules.n_tokens)
    return refuse_at(notes, Refusal::FieldType, pointer,
                     fmt::format("have {}, want a token id from 0 to {}", value_short(value),
                                 rules.n_tokens - 1));
  return static_cast<int32_t>(*id);
}

Result<std::vector<int32_t>> read_tokens(const json::Value& list, const std::string& pointer,
                                         const RequestRules& rules, ParseNotes& notes) {
  if (list.items().empty())
    return refuse_at(notes, Refusal::EmptyPrompt, pointer, "have no tokens");
  std::vector<int32_t> out;
  out.reserve(list.items().size());
  for (size_t i = 0; i < list.items().size(); ++i) {
    ROOST_TRY(const int32_t id,
              read_token(list.items()[i], fmt::format("{}/{}", pointer, i), rules, notes));
    out.push_back(id);
  }
  return out;
}

Result<void> read_prompts(Fields& body, const RequestRules& rules, CompletionRequest& out) {
  ROOST_TRY(const json::Value* prompt, body.require("prompt"));
  ParseNotes& notes = body.notes();
  const auto add_text = [&](const json::Value& text, const std::string& pointer) -> Result<void> {
    if (text.as_string().empty())
      return refuse_at(notes, Refusal::EmptyPrompt, pointer, "have an empty text");
    out.prompts.emplace_back(text.as_string());
    return {};
  };
  if (prompt->is_string()) return add_text(*prompt, "/prompt");
  if (!prompt->is_array())
    return body.refuse(
        Refusal::FieldType, "prompt",
        fmt::format("have {}, want text, tokens, or an array of either", value_short(*prompt)));
  const std::vector<json::Value>& items = prompt->items();
  if (items.empty()) return body.refuse(Refusal::EmptyPrompt, "prompt", "have an empty array");
  if (items[0].is_number()) {
    ROOST_TRY(std::vector<int32_t> tokens, read_tokens(*prompt, "/prompt", rules, notes));
    out.prompts.emplace_back(std::move(tokens));
    return {};
  }
  if (items.size() > limits::kPromptsMax)
    return body.refuse(
        Refusal::TooManyItems, "prompt",
        fmt::format("have {} prompts, at most {}", items.size(), limits::kPromptsMax));
  for (size_t i = 0; i < items.size(); ++i) {
    const std::string pointer = fmt::format("/prompt/{}", i);
    if (items[i].type() != items[0].type() || !(items[i].is_string() || items[i].is_array()))
      return refuse_at(
          notes, Refusal::FieldType, pointer,
          fmt::format("have {}, want what the others are: text or tokens", value_short(items[i])));
    if (items[i].is_string()) {
      ROOST_TRY_DO(add_text(items[i], pointer));
    } else {
      ROOST_TRY(std::vector<int32_t> tokens, read_tokens(items[i], pointer, rules, notes));
      out.prompts.emplace_back(std::move(tokens));
    }
  }
  return {};
}

int64_t n_code_points(std::string_view text) {
  return std::count_if(text.begin(), text.end(),
                       [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; });
}

// The member `logprobs` of a choice, token by token.
class LogprobLists {
 public:
  // offset: code points in front of the first token.
  LogprobLists(const Tokenizer& tokenizer, int64_t offset)
      : tokenizer_(tokenizer), offset_(offset) {}

  void add(int32_t id, const TokenLogprobs* logprobs) {  // null: nothing is said of it
    const std::string text = token_text(tokenizer_, id);
    json::Value value, top;
    if (logprobs != nullptr) {
      value = json::Value::real(printed_logprob(logprobs->logprob));
      top = json::Value::object();
      for (const TokenLogprob& one : logprobs->top)
        top.set(token_text(tokenizer_, one.token), json::Value::real(printed_logprob(one.logprob)));
    }
    texts_.push(json::Value::string(text));
    values_.push(std::move(value));
    tops_.push(std::move(top));
    offsets_.push(json::Value::integer(offset_));
    offset_ += n_code_points(text);
  }
  json::Value take() {
    json::Value out = json::Value::object();
    out.set("tokens", std::move(texts_));
    out.set("token_logprobs", std::move(values_));
    out.set("top_logprobs", std::move(tops_));
    out.set("text_offset", std::move(offsets_));
    return out;
  }
  int64_t offset() const { return offset_; }  // behind the last token

 private:
  const Tokenizer& tokenizer_;
  int64_t offset_;
  json::Value texts_ = json::Value::array(), values_ = json::Value::array(),
              tops_ = json::Value::array(), offsets_ = json::Value::array();
};

class OpenAiCompletionCodec final : public ReplyCodec {
 public:
  OpenAiCompletionCodec(ReplyHead head, const CompletionRequest& request)
      : head_(std::move(head)),
        request_(request),
        queues_(head_.seeds.size()),
        offsets_(head_.seeds.size()),
        of_prompt_(head_.seeds.size()) {}

  std::string first_events(int64_t n_cached) override {
    running_.n_prompt = head_.n_prompt_tokens();
    running_.n_cached = n_cached;
    std::string out;
    for (size_t i = 0; i < head_.seeds.size(); ++i) {
      json::Value event = chunk(i, "");
      if (request_.generation.return_token_ids && i % n_per_prompt() == 0)
        choice_of(event).set("prompt_token_ids", ids_value(prompt_of(i)));
      out += sse::data(json::write(event));
      if (!request_.echoes || request_.generation.tells_prompt) continue;
      const std::string echo = echo_of(i);
      offsets_[i] = n_code_points(echo);
      out += sse::data(json::write(chunk(i, echo)));
    }
    return out;
  }

  std::string prompt_events(size_t i, std::vector<TokenLogprobs> of_prompt) override {
    of_prompt_[i] = std::move(of_prompt);
    if (!request_.is_stream) return "";
    json::Value event = chunk(i, echo_of(i));
    LogprobLists lists(*head_.tokenizer, 0);
    add_prompt(i, lists);
    offsets_[i] = lists.offset();
    choice_of(event).set("logprobs", lists.take());
    return sse::data(json::write(event));
  }

  std::string alive_event(size_t i, json::Value progress) override {
    json::Value event = chunk(i, "");
    if (!progress.is_null()) event.set("prompt_progress", std::move(progress));
    return sse::data(json::write(event));
  }

  std::string piece_events(size_t i, const ReplyPiece& piece, const ReplyMachine&) override {
    queues_[i].add(piece.tokens);
    running_.n_reply += static_cast<int64_t>(piece.tokens.size());
    std::string out;
    for (const ReplyEvent& piece_event : piece.events) {
      json::Value event = chunk(i, piece_event.text);
      set_tokens(choice_of(event), i, queues_[i].take_all(), offsets_[i]);
      add_running_timings(event);
      out += sse::data(json::write(event));
    }
    return out;
  }

  std::string choice_end(size_t i, const FinishedChoice& finished, bool is_last) override {
    json::Value event = chunk(i, "");
    json::Value& choice = choice_of(event);
    choice.set("finish_reason", json::Value::string(openai_finish_reason(finished)));
    choice.set("stop_reason", openai_stop_reason(finished.end));
    set_tokens(choice, i, queues_[i].take_all(), offsets_[i]);
    if (!is_last) return sse::data(json::write(event));
    last_end_ = std::move(event);  // the extras of all choices ride on it
    return "";
  }

  std::string last_events(const std::vector<FinishedChoice>& choices) override {
    return openai_last_events(head_, kObject, std::move(last_end_), request_.include_usage,
                              choices);
  }

  std::string error_event(const Error& error) override {
    return sse::data(openai_error_body(error, ""));
  }

  std::string whole(const std::vector<FinishedChoice>& choices) override {
    json::Value list = json::Value::array();
    for (size_t i = 0; i < choices.size(); ++i) {
      const std::string echo = request_.echoes ? echo_of(i) : "";
      json::Value choice = json::Value::object();
      choice.set("index", json::Value::integer(static_cast<int64_t>(i)));
      choice.set("text", json::Value::string(echo + choices[i].machine->content()));
      choice.set("logprobs", json::Value());
      choice.set("finish_reason", json::Value::string(openai_finish_reason(choices[i])));
      choice.set("stop_reason", openai_stop_reason(choices[i].end));
      const bool has_prompt = request_.generation.tells_prompt;
      int64_t offset = has_prompt ? 0 : n_code_points(echo);
      set_tokens(choice, i, choices[i].machine->tokens(), offset, has_prompt);
      if (request_.generation.return_token_ids && i % n_per_prompt() == 0)
        choice.set("prompt_token_ids", ids_value(prompt_of(i)));
      list.push(std::move(choice));
    }
    json::Value out = openai_envelope(head_, kObject);
    out.set("choices", std::move(list));
    out.set("usage", openai_usage(head_, choices));
    set_extras(out, head_, choices);
    return json::write(out);
  }

 private:
  static constexpr const char* kObject = "text_completion";

  // The choices stand behind the envelope.
  static json::Value& choice_of(json::Value& event) {
    return event.members()[kEnvelopeMembers].second.items()[0];
  }
  size_t n_per_prompt() const { return head_.seeds.size() / head_.prompts.size(); }
  const std::vector<int32_t>& prompt_of(size_t i) const {
    return head_.prompts[i / n_per_prompt()];
  }
  std::string echo_of(size_t i) const { return head_.tokenizer->decode(prompt_of(i), false); }

  json::Value chunk(size_t i, const std::string& text) const {
    json::Value choice = json::Value::object();
    choice.set("index", json::Value::integer(static_cast<int64_t>(i)));
    choice.set("text", json::Value::string(text));
    choice.set("logprobs", json::Value());
    choice.set("finish_reason", json::Value());
    choice.set("stop_reason", json::Value());
    json::Value out = openai_envelope(head_, kObject);
    out.set("choices", json::Value::array({std::move(choice)}));
    if (request_.has_running_usage)
      out.set("usage", openai_usage(running_));
    else if (request_.include_usage)
      out.set("usage", json::Value());
    return out;
  }

  // The first token stands behind nothing: null.
  void add_prompt(size_t i, LogprobLists& lists) const {
    const std::vector<int32_t>& prompt = prompt_of(i);
    lists.add(prompt[0], nullptr);
    for (size_t t = 1; t < prompt.size(); ++t) lists.add(prompt[t], &of_prompt_[i][t - 1]);
  }

  // On every event that may tell of tokens, so that the lists add up to those of the whole reply
  // also where they are empty. offset: code points in front of them; then behind them.
  void set_tokens(json::Value& choice, size_t i, const std::vector<ReplyToken>& tokens,
                  int64_t& offset, bool has_prompt = false) const {
    if (request_.generation.return_token_ids) choice.set("token_ids", ids_value(tokens));
    if (!request_.generation.n_logprobs) return;
    LogprobLists lists(*head_.tokenizer, offset);
    if (has_prompt) add_prompt(i, lists);
    for (const ReplyToken& token : tokens) {
      const TokenLogprobs logprobs = token.logprobs.value_or(TokenLogprobs());
      lists.add(token.id, &logprobs);
    }
    offset = lists.offset();
    choice.set("logprobs", lists.take());
  }

  const ReplyHead head_;
  const CompletionRequest request_;
  std::vector<TokenQueue> queues_;                     // of each choice
  std::vector<int64_t> offsets_;                       // code points of its text so far
  std::vector<std::vector<TokenLogprobs>> of_prompt_;  // where they are told: of its second token …
  ReplyCounts running_;
  json::Value last_end_;
};

// What is told of prompts stays in memory until it is sent.
Result<void> check_told(const CompletionRequest& request,
                        const std::vector<std::vector<int32_t>>& prompts, ParseNotes& notes) {
  int64_t n_told = 0;
  for (const std::vector<int32_t>& prompt : prompts)
    n_told += static_cast<int64_t>(prompt.size()) * request.generation.n *
              (1 + *request.generation.n_logprobs);
  if (n_told <= limits::kPromptLogprobsMax) return {};
  return refuse_at(
      notes, Refusal::TooManyItems, "/logprobs",
      fmt::format("have {} of the prompts, at most {}", n_told, limits::kPromptLogprobsMax));
}

}  // namespace

Result<CompletionRequest> parse_openai_completion(std::string_view body, const RequestRules& rules,
                                                  ParseNotes& notes) {
  ROOST_TRY(const json::Value value, json::parse(body));
  ROOST_TRY(Fields fields, Fields::open(value, "", notes));
  CompletionRequest out;
  ROOST_TRY(out.model, read_model_name(fields, rules));
  ROOST_TRY_DO(read_prompts(fields, rules, out));
  ROOST_TRY(const std::optional<std::string> suffix, fields.string("suffix", SIZE_MAX));
  out.has_suffix = suffix && !suffix->empty();
  out.suffix = suffix.value_or("");
  if (out.has_suffix && !std::holds_alternative<std::string>(out.prompts[0]))
    return fields.refuse(Refusal::FieldConflict, "suffix", "a suffix needs prompts of text");
  ROOST_TRY(const std::optional<bool> special, fields.boolean("parse_special"));
  out.parses_special = special.value_or(true);
  ROOST_TRY(const std::optional<bool> echo, fields.boolean("echo"));
  out.echoes = echo.value_or(false);
  ROOST_TRY(const StreamFields stream, read_stream_fields(fields));
  out.is_stream = stream.is_stream;
  out.include_usage = stream.include_usage;
  out.has_running_usage = stream.has_running_usage;
  FieldNames names;
  names.has_n = true;
  names.shows_special_tokens = true;
  names.has_reasoning = false;
  names.max_tokens_min = out.echoes ? 0 : 1;
  ROOST_TRY(out.generation, read_generation(fields, rules, names));
  if (!out.generation.max_tokens) out.generation.max_tokens = kMaxTokensDefault;
  ROOST_TRY(out.generation.n_logprobs, fields.integer("logprobs", 0, limits::kTopLogprobsMax));
  out.generation.tells_prompt = out.echoes && out.generation.n_logprobs;
  const auto n_all = static_cast<int64_t>(out.prompts.size()) * out.generation.n;
  if (n_all > static_cast<int64_t>(limits::kPromptsMax))
    return fields.refuse(Refusal::TooManyItems, "n",
                         fmt::format("have {} choices, at most {}", n_all, limits::kPromptsMax));
  for (const char* key : {"tools", "messages", "response_format"})
    if (fields.take(key) != nullptr)
      return fields.refuse(Refusal::UnsupportedField, key,
                           "raw text has none; use /v1/chat/completions");
  fields.ignore_rest();
  return out;
}

Result<std::vector<std::vector<int32_t>>> completion_prompts(const ServedModel& model,
                                                             const CompletionRequest& request,
                                                             ParseNotes& notes) {
  const auto mark = [&](const char* name) { return model.tokenizer.find_added(name); };
  const std::optional<Token> prefix = mark("<|fim_prefix|>"), suffix = mark("<|fim_suffix|>"),
                             middle = mark("<|fim_middle|>");
  if (request.has_suffix && !(prefix && suffix && middle))
    return refuse_at(notes, Refusal::UnsupportedField, "/suffix",
                     "the checkpoint has no marks for text in the middle");
  const auto encode = [&](const std::string& text) -> Result<std::vector<int32_t>> {
    if (request.parses_special) return model.tokenizer.encode(text);
    return encode_as_text(model, text);
  };
  std::vector<std::vector<int32_t>> out;
  for (const auto& prompt : request.prompts) {
    if (const auto* tokens = std::get_if<std::vector<int32_t>>(&prompt)) {
      out.push_back(*tokens);
      continue;
    }
    ROOST_TRY(std::vector<int32_t> text, encode(std::get<std::string>(prompt)));
    if (request.has_suffix) {
      ROOST_TRY(const std::vector<int32_t> behind, encode(request.suffix));
      text.insert(text.begin(), *prefix);
      text.push_back(*suffix);
      text.insert(text.end(), behind.begin(), behind.end());
      text.push_back(*middle);
    }
    out.push_back(std::move(text));
  }
  if (request.generation.tells_prompt) ROOST_TRY_DO(check_told(request, out, notes));
  return out;
}

std::unique_ptr<ReplyCodec> make_openai_completion_codec(ReplyHead head,
                                                         const CompletionRequest& request) {
  return std::make_unique<OpenAiCompletionCodec>(std::move(head), request);
}

}  // namespace roost
