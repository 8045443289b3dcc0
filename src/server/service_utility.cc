// Everything that is answered at once: probes, lists, counts, stored replies.
#include <fmt/format.h>

#include <algorithm>

#include "base/hash.h"
#include "base/limits.h"
#include "base/log.h"
#include "server/anthropic_messages.h"
#include "server/canary.h"
#include "server/chat_messages.h"
#include "server/generation_fields.h"
#include "server/model_list.h"
#include "server/openai_chat.h"
#include "server/openai_common.h"
#include "server/openai_responses.h"
#include "server/page.h"
#include "server/prompt.h"
#include "server/props.h"
#include "server/service_call.h"
#include "server/version.h"

namespace roost {

namespace {

json::Value status_object(const char* status) {
  json::Value out = json::Value::object();
  out.set("status", json::Value::string(status));
  return out;
}

Error unknown_response(std::string_view id) {
  return Error{Refusal::UnknownResponse, fmt::format("have {}", quoted_short(id))};
}

}  // namespace

// ---- Probes and lists ---------------------------------------------------------------------------

void Service::get_page(Call& call) {
  answer(call, page_response(call.request.path));
}

void Service::get_health(Call& call) {
  if (is_draining_) return answer(call, json_response(503, status_object("draining")));
  const std::shared_ptr<const ServedModel> served = model();
  if (!served) return answer(call, json_response(503, status_object("loading")));
  if (asks_deep(call.request)) return run_deep_check(call, served);
  answer(call, json_response(200, status_object("ok")));
}

// Answers when the canary has run; the engine's thread only hands over.
void Service::run_deep_check(Call& call, const std::shared_ptr<const ServedModel>& served) {
  const auto waiting = std::make_shared<Call>(call);
  run_canary(
      *served->engine, served->tokenizer, [this, waiting, served](const Result<CanaryReply>& seen) {
        waiting->exchange->post([this, waiting, served, seen] {
          if (!seen) return answer_refusal(*waiting, seen.error());
          if (seen->tokens == served->canary_tokens)
            return answer(*waiting, json_response(200, status_object("ok")));
          metrics_.add(Metric::kCanaryFailures, 1);
          answer_refusal(*waiting,
                         Error{Refusal::CanaryFailed,
                               fmt::format("want {}, have {}", token_sha256(served->canary_tokens),
                                           token_sha256(seen->tokens))});
        });
      });
}

void Service::get_ready(Call& call) {
  const std::shared_ptr<const ServedModel> served = model();
  if (served && !is_draining_ &&
      served->engine->counts().n_waiting >= static_cast<int32_t>(options_.queue_max))
    return answer(call, json_response(503, status_object("busy")));
  get_health(call);
}

void Service::get_version(Call& call) {
  const std::shared_ptr<const ServedModel> served = model();
  json::Value out = json::Value::object();
  out.set("name", json::Value::string("roost"));
  out.set("version", json::Value::string(std::string(kVersion)));
  out.set("backend", served ? json::Value::string(served->engine->backend()) : json::Value());
  answer(call, json_response(200, out));
}

void Service::get_models(Call& call) {
  const std::shared_ptr<const ServedModel> served = model();
  if (!served) return answer_refusal(call, Error{Refusal::ServerLoading, ""});
  answer(call, json_response(200, model_list(*served)));
}

void Service::get_model(Call& call, std::string_view id) {
  const std::shared_ptr<const ServedModel> served = model();
  if (!served) return answer_refusal(call, Error{Refusal::ServerLoading, ""});
  for (const std::string& own : served->ids)
    if (own == id) return answer(call, json_response(200, model_entry(*served, own)));
  answer_refusal(call,
                 Error{Refusal::UnknownModel, fmt::format("have {}, served is {}", quoted_short(id),
                                                          quoted_short(served->ids.front()))});
}

void Service::get_metrics(Call& call) {
  const std::shared_ptr<const ServedModel> served = model();
  if (served) measure_engine(*served);
  if (n_connections_) metrics_.set(Metric::kConnections, static_cast<double>(n_connections_()));
  HttpResponse response;
  response.content_type = "text/plain; version=0.0.4; charset=utf-8";
  response.body = metrics_.text(served ? served->ids.front() : "", options_.has_vllm_metrics);
  answer(call, std::move(response));
}

// What is counted elsewhere, as it is now.
void Service::measure_engine(const ServedModel& served) {
  const Engine::Counts counts = served.engine->counts();
  const auto set = [this](Metric metric, auto value, const std::string& labels = "") {
    metrics_.set(metric, static_cast<double>(value), labels);
  };
  set(Metric::kRequestsRunning, counts.n_running);
  int64_t n_background = 0;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [id, running] : running_) {
      const std::shared_ptr<ReplySession> session = running.session.lock();
      n_background += running.priority >= kBackgroundPriority && session &&
                      session->phase() == ReplyPhase::kQueue;
    }
  }
  n_background = std::min<int64_t>(n_background, counts.n_waiting);
  set(Metric::kRequestsWaiting, counts.n_waiting - n_background, label("class", "normal"));
  set(Metric::kRequestsWaiting, n_background, label("class", "background"));
  const int32_t n_held = counts.n_pages - counts.n_free_pages;
  set(Metric::kKvPagesUsed, counts.n_pages == 0 ? 0 : static_cast<double>(n_held) / counts.n_pages);
  set(Metric::kPreemptions, counts.n_suspended);
  const double n_rounds =
      metrics_.total(Metric::kDraftRounds) + metrics_.total(Metric::kPlainRounds);
  const double decode = metrics_.total(Metric::kDecode);
  metrics_.set(Metric::kAcceptLength,
               n_rounds > 0 ? metrics_.total(Metric::kRoundTokens) / n_rounds : 1);
  metrics_.set(Metric::kDraftTime, decode > 0 ? metrics_.total(Metric::kDraftSeconds) / decode : 0);
  metrics_.set_counted(Metric::kStepTokens, counts.step_rows.n, counts.step_rows.sum);
  metrics_.set_counted(Metric::kGrammarMask, counts.mask_seconds.n, counts.mask_seconds.sum);
  set(Metric::kGrammarViolations, counts.n_grammar_violations);
  set(Metric::kSnapshots, counts.n_kept_snapshots, label("place", "ram"));
  set(Metric::kSnapshots, counts.n_host_snapshots, label("place", "host"));
  set(Metric::kSnapshots, counts.n_cache_files, label("place", "disk"));
  const std::pair<const char*, int64_t> events[] = {{"saved", counts.n_saved_snapshots},
                                                    {"restored", counts.n_restored_snapshots},
                                                    {"evicted", counts.n_evicted_snapshots},
                                                    {"rejected", counts.n_rejected_snapshots}};
  for (const auto& [event, n] : events) set(Metric::kSnapshotEvents, n, label("event", event));
  set(Metric::kDiskCacheBytes, counts.n_cache_file_bytes);
  set(Metric::kDiskCacheErrors, counts.n_cache_files_skipped, label("op", "read"));
  set(Metric::kDiskCacheErrors, counts.n_cache_writes_failed, label("op", "write"));
  const MemoryPlan& plan = served.engine->memory_plan();
  // Taken whole at start, so that a limit is what is used.
  const std::pair<const char*, size_t> kinds[] = {
      {"weights", plan.weights_mapped + plan.weights_owned},
      {"kv", plan.pages},
      {"snapshots", plan.slots + plan.snapshots},
      {"scratch", plan.scratch + plan.workspace},
      {"staging", plan.staging},
      {"host", plan.host}};
  for (const auto& [kind, n_bytes] : kinds) {
    set(Metric::kMemoryBytes, n_bytes, label("kind", kind));
    set(Metric::kMemoryLimit, n_bytes, label("kind", kind));
  }
  set(Metric::kMemoryBytes, served.grammars->n_bytes(), label("kind", "grammar"));
  set(Metric::kMemoryLimit, served.grammars->n_bytes_max(), label("kind", "grammar"));
  set(Metric::kMemoryBytes, store_.n_bytes(), label("kind", "replies"));
  set(Metric::kMemoryLimit, limits::kStoredReplyBytesMax, label("kind", "replies"));
  set(Metric::kBuildInfo, 1,
      label("version", kVersion) + "," + label("backend", served.engine->backend()) + "," +
          label("kv_format", served.kv_format) + "," + label("state_format", kStateFormat) + "," +
          label("drafter", served.drafter ? served.drafter->digest.substr(0, 8) : "none"));
}

void Service::get_props(Call& call) {
  const std::shared_ptr<const ServedModel> served = model();
  if (!served) return answer_refusal(call, Error{Refusal::ServerLoading, ""});
  answer(call,
         json_response(200, props_of(*served, {.queue_max = options_.queue_max,
                                               .body_bytes_max = options_.body_bytes_max,
                                               .connections_max = options_.connections_max,
                                               .has_keys = options_.keys != nullptr,
                                               .is_tls = options_.is_tls,
                                               .n_stored_max = options_.stored_replies_max,
                                               .request_timeout_s = options_.request_timeout_s,
                                               .logs_content = options_.content_log != nullptr})));
}

// ---- Requests in work ---------------------------------------------------------------------------

void Service::get_requests(Call& call) {
  const int64_t now = clock_.now_ns();
  json::Value list = json::Value::array();
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [id, running] : running_) {
      const bool is_visible = call.caller.is_admin || running.key_label == call.caller.label;
      const std::shared_ptr<ReplySession> session = running.session.lock();
      if (!is_visible || !session) continue;
      constexpr const char* kPhases[] = {"queue", "prefill", "decode"};
      json::Value one = json::Value::object();
      one.set("id", json::Value::string(running.request_id));
      one.set("reply_id", json::Value::string(running.reply_id));
      one.set("key_label", json::Value::string(running.key_label));
      one.set("dialect", json::Value::string(running.dialect));
      one.set("stream", json::Value::boolean(running.is_stream));
      one.set("phase", json::Value::string(kPhases[static_cast<size_t>(session->phase())]));
      one.set("prompt_tokens", json::Value::integer(running.n_prompt));
      one.set("prompt_tokens_done", json::Value::integer(session->n_prompt_done()));
      one.set("completion_tokens", json::Value::integer(session->n_kept()));
      const double decoding_s = static_cast<double>(now - session->first_token_ns()) / 1e9;
      if (session->first_token_ns() > 0 && decoding_s > 0)
        one.set("tokens_per_second",
                json::Value::real(static_cast<double>(session->n_kept()) / decoding_s));
      one.set("age_ms", json::Value::integer((now - running.arrived_ns) / 1'000'000));
      list.push(std::move(one));
    }
  }
  json::Value out = json::Value::object();
  const std::shared_ptr<const ServedModel> served = model();
  if (served) {
    const Engine::Counts counts = served->engine->counts();
    out.set("running", json::Value::integer(counts.n_running));
    out.set("waiting", json::Value::integer(counts.n_waiting));
    out.set("generated_tokens", json::Value::integer(counts.n_generated_tokens));
    out.set("prompt_tokens", json::Value::integer(counts.n_prompt_tokens));
    out.set("pages_free", json::Value::integer(counts.n_free_pages));
    out.set("pages", json::Value::integer(counts.n_pages));
    out.set("slots_free", json::Value::integer(counts.n_free_slots));
    out.set("slots", json::Value::integer(counts.n_slots));
  }
  out.set("requests", std::move(list));
  answer(call, json_response(200, out));
}

// ---- Prefix cache -------------------------------------------------------------------------------

void Service::get_cache(Call& call) {
  if (const Result<void> admin = check_admin(call); !admin)
    return answer_refusal(call, admin.error());
  const std::shared_ptr<const ServedModel> served = model();
  if (!served) return answer_refusal(call, Error{Refusal::ServerLoading, ""});
  const Engine::Counts counts = served->engine->counts();
  json::Value out = json::Value::object();
  const auto set = [&](const char* name, int64_t n) { out.set(name, json::Value::integer(n)); };
  set("pages", counts.n_pages);
  set("pages_free", counts.n_free_pages - counts.n_cached_pages);
  set("pages_cached", counts.n_cached_pages);
  set("pages_held", counts.n_pages - counts.n_free_pages);
  set("pages_evicted", counts.n_evicted_pages);
  set("snapshots", counts.n_kept_snapshots);
  set("snapshots_max", counts.n_snapshots);
  set("snapshots_saved", counts.n_saved_snapshots);
  set("snapshots_restored", counts.n_restored_snapshots);
  set("snapshots_evicted", counts.n_evicted_snapshots);
  set("prompt_tokens", counts.n_prompt_tokens);
  set("cached_tokens", counts.n_cached_tokens);
  set("host_pages", counts.n_host_pages);
  set("host_snapshots", counts.n_host_snapshots);
  set("host_restored", counts.n_restored_from_host);
  set("files", counts.n_cache_files);
  set("file_bytes", counts.n_cache_file_bytes);
  set("files_skipped", counts.n_cache_files_skipped);
  answer(call, json_response(200, out));
}

// Answers when the engine has done it, between two steps.
void Service::post_cache_flush(Call& call) {
  if (const Result<void> admin = check_admin(call); !admin)
    return answer_refusal(call, admin.error());
  const Result<std::shared_ptr<const ServedModel>> served = model_for_work();
  if (!served) return answer_refusal(call, served.error());
  const auto waiting = std::make_shared<Call>(call);
  (*served)->engine->flush_prefixes([this, waiting] {
    waiting->exchange->post([this, waiting] {
      HttpResponse response;
      response.status = 204;
      response.content_type.clear();
      answer(*waiting, std::move(response));
    });
  });
}

// ---- Requests in work, ended --------------------------------------------------------------------

void Service::cancel_request(Call& call, std::string_view id) {
  const bool is_found = cancel_where(
      [&](const Running& running) {
        return running.request_id == id &&
               (call.caller.is_admin || running.key_label == call.caller.label);
      },
      Error{Refusal::RequestCancelled, ""});
  if (!is_found) return answer_refusal(call, unknown_response(id));
  HttpResponse response;
  response.status = 204;
  response.content_type.clear();
  answer(call, std::move(response));
}

// ---- Stored replies -----------------------------------------------------------------------------

void Service::get_response(Call& call, std::string_view id) {
  const std::optional<StoredResponse> stored = store_.find(std::string(id), call.caller.label);
  if (!stored) return answer_refusal(call, unknown_response(id));
  answer(call, json_response(200, stored->response));
}

void Service::get_input_items(Call& call, std::string_view id) {
  const std::optional<StoredResponse> stored = store_.find(std::string(id), call.caller.label);
  if (!stored) return answer_refusal(call, unknown_response(id));
  const auto id_of = [](const json::Value& item) {
    const json::Value* own = item.find("id");
    return own == nullptr ? json::Value() : *own;
  };
  json::Value out = json::Value::object();
  out.set("object", json::Value::string("list"));
  out.set("first_id", stored->input.empty() ? json::Value() : id_of(stored->input.front()));
  out.set("last_id", stored->input.empty() ? json::Value() : id_of(stored->input.back()));
  out.set("data", json::Value::array(stored->input));
  out.set("has_more", json::Value::boolean(false));
  answer(call, json_response(200, out));
}

void Service::delete_response(Call& call, std::string_view id) {
  if (!store_.remove(std::string(id), call.caller.label))
    return answer_refusal(call, unknown_response(id));
  json::Value out = json::Value::object();
  out.set("id", json::Value::string(std::string(id)));
  out.set("object", json::Value::string("response.deleted"));
  out.set("deleted", json::Value::boolean(true));
  answer(call, json_response(200, out));
}

void Service::cancel_response(Call& call, std::string_view id) {
  const auto waiting = std::make_shared<Call>(call);
  const bool is_running = cancel_where(
      [&](const Running& running) {
        return running.reply_id == id && running.key_label == call.caller.label &&
               std::string_view(running.dialect) == "responses";
      },
      Error{Refusal::RequestCancelled, ""},
      [this, waiting, id = std::string(id)](const ReplySession* session) {
        const json::Value object = session == nullptr ? json::Value() : session->cancelled_object();
        waiting->exchange->post([this, waiting, id, object] {
          if (object.is_null()) return get_response(*waiting, id);  // it ended by itself
          answer(*waiting, json_response(200, object));
        });
      });
  if (!is_running) get_response(call, id);
}

// ---- Counts and tokens --------------------------------------------------------------------------

void Service::answer_value(Call& call, const Result<json::Value>& value) {
  if (!value) return answer_refusal(call, value.error());
  answer(call, json_response(200, *value));
}

void Service::post_tokenize(Call& call) {
  answer_value(call, tokenize(call));
}
void Service::post_detokenize(Call& call) {
  answer_value(call, detokenize(call));
}
void Service::post_apply_template(Call& call) {
  answer_value(call, apply_template(call));
}
void Service::post_count_tokens(Call& call) {
  answer_value(call, count_messages(call));
}
void Service::post_input_tokens(Call& call) {
  answer_value(call, count_responses(call));
}

namespace {

// The tokens of a body of /tokenize: of a text, or of a conversation that is rendered.
Result<std::vector<Token>> tokens_of(const ServedModel& model, Fields& body, int64_t unix_seconds) {
  if (body.take("chat_template") != nullptr)
    return body.refuse(Refusal::UnsupportedField, "chat_template",
                       "the checkpoint's own template is used");
  ROOST_TRY(const std::optional<std::string> prompt, body.string("prompt", SIZE_MAX));
  for (const char* key : {"model", "add_special_tokens"}) body.take(key);
  if (prompt) return model.tokenizer.encode(*prompt);
  ChatRequest request;
  ROOST_TRY(request.messages, read_messages(body));
  ROOST_TRY(request.tools, read_chat_tools(body));
  ROOST_TRY(const std::optional<bool> header, body.boolean("add_generation_prompt"));
  ROOST_TRY(const std::optional<bool> resume, body.boolean("continue_final_message"));
  if (header.value_or(false) && resume.value_or(false))
    return body.refuse(Refusal::FieldConflict, "continue_final_message",
                       "continue_final_message and add_generation_prompt are both true");
  request.continues_last =
      resume.value_or(false) && request.messages.back().role == Role::kAssistant;
  request.has_header = header.value_or(true);
  ROOST_TRY(request.generation, read_generation(body, model.rules, {}));
  ROOST_TRY(Prompt out, build_prompt(model, request, unix_seconds));
  return std::move(out.tokens);
}

}  // namespace

Result<json::Value> Service::tokenize(Call& call) {
  ROOST_TRY(const std::shared_ptr<const ServedModel> served, open_body(call));
  ROOST_TRY(const json::Value value, json::parse(call.request.body));
  ROOST_TRY(Fields body, Fields::open(value, "", call.notes));
  ROOST_TRY(const std::optional<bool> has_texts, body.boolean("return_token_strs"));
  ROOST_TRY(const std::vector<Token> tokens, tokens_of(*served, body, clock_.unix_seconds()));
  body.ignore_rest();
  json::Value texts = json::Value::array();
  for (const Token id : tokens) texts.push(json::Value::string(token_text(served->tokenizer, id)));
  json::Value out = json::Value::object();
  out.set("count", json::Value::integer(static_cast<int64_t>(tokens.size())));
  out.set("max_model_len", json::Value::integer(served->engine->context_max()));
  out.set("tokens", ids_value(tokens));
  out.set("token_strs", has_texts.value_or(false) ? std::move(texts) : json::Value());
  return out;
}

Result<json::Value> Service::detokenize(Call& call) {
  ROOST_TRY(const std::shared_ptr<const ServedModel> served, open_body(call));
  ROOST_TRY(const json::Value value, json::parse(call.request.body));
  ROOST_TRY(Fields body, Fields::open(value, "", call.notes));
  ROOST_TRY(const json::Value* list, body.array("tokens", SIZE_MAX));
  if (list == nullptr) return body.refuse(Refusal::MissingField, "tokens", "must be given");
  std::vector<Token> tokens;
  for (const json::Value& one : list->items()) {
    const std::optional<int64_t> id = one.is_number() ? one.as_int64() : std::nullopt;
    if (!id || *id < 0 || *id >= served->rules.n_tokens)
      return body.refuse(Refusal::FieldRange, "tokens",
                         fmt::format("have {}, want token ids from 0 to {}", value_short(one),
                                     served->rules.n_tokens - 1));
    tokens.push_back(static_cast<Token>(*id));
  }
  body.take("model");
  body.ignore_rest();
  json::Value out = json::Value::object();
  out.set("prompt", json::Value::string(served->tokenizer.decode(tokens, false)));
  return out;
}

Result<json::Value> Service::apply_template(Call& call) {
  ROOST_TRY(const std::shared_ptr<const ServedModel> served, open_body(call));
  const std::string& query = call.request.query;
  const std::string& body = call.request.body;
  ChatRequest request;
  if (query.find("dialect=messages") != std::string::npos) {
    ROOST_TRY(request, parse_anthropic_messages(body, served->rules, call.notes));
  } else if (query.find("dialect=responses") != std::string::npos) {
    ROOST_TRY(
        ResponsesRequest whole,
        parse_openai_responses(body, served->rules, store_.of(call.caller.label), call.notes));
    request = std::move(whole.chat);
  } else {
    ROOST_TRY(request, parse_openai_chat(body, served->rules, call.notes));
  }
  ROOST_TRY(const Prompt prompt, prompt_of(call, *served, request));
  json::Value out = json::Value::object();
  out.set("prompt", json::Value::string(prompt.text));
  out.set("token_ids", ids_value(prompt.tokens));
  out.set("starts_in_reasoning", json::Value::boolean(prompt.starts_in_reasoning));
  json::Value places = json::Value::array(), spans = json::Value::array();
  for (const int64_t place : prompt.places) places.push(json::Value::integer(place));
  for (const auto& [from, to] : prompt.replayed)
    spans.push(json::Value::array({json::Value::integer(from), json::Value::integer(to)}));
  out.set("snapshot_places", std::move(places));
  out.set("replayed_spans", std::move(spans));
  return out;
}

Result<json::Value> Service::count_messages(Call& call) {
  ROOST_TRY(const std::shared_ptr<const ServedModel> served, open_body(call));
  ROOST_TRY(const ChatRequest request,
            parse_anthropic_messages(call.request.body, served->rules, call.notes));
  ROOST_TRY(const Prompt prompt, prompt_of(call, *served, request));
  json::Value out = json::Value::object();
  out.set("input_tokens", json::Value::integer(static_cast<int64_t>(prompt.tokens.size())));
  return out;
}

Result<json::Value> Service::count_responses(Call& call) {
  ROOST_TRY(const std::shared_ptr<const ServedModel> served, open_body(call));
  ROOST_TRY(const ResponsesRequest request,
            parse_openai_responses(call.request.body, served->rules, store_.of(call.caller.label),
                                   call.notes));
  ROOST_TRY(const Prompt prompt, prompt_of(call, *served, request.chat));
  json::Value out = json::Value::object();
  out.set("object", json::Value::string("response.input_tokens"));
  out.set("input_tokens", json::Value::integer(static_cast<int64_t>(prompt.tokens.size())));
  return out;
}

}  // namespace roost
