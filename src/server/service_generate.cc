// Generating requests: from a body of any dialect to replies in work (docs/SERVER.md, endpoints).
#include <fmt/format.h>

#include <algorithm>

#include "base/hash.h"
#include "base/log.h"
#include "server/anthropic_messages.h"
#include "server/chat_messages.h"
#include "server/openai_chat.h"
#include "server/openai_completions.h"
#include "server/openai_responses.h"
#include "server/prompt.h"
#include "server/records.h"
#include "server/service_call.h"
#include "server/tools.h"

namespace roost {

namespace {

constexpr uint64_t kSeedLimit = uint64_t{1} << 53;  // a seed that every JSON reader keeps exact
constexpr int kIdCharacters = 24;

// The last parts of pointers, with commas between: what the log may say of a body.
std::string names_of(const std::vector<std::string>& pointers) {
  constexpr size_t kBytesMax = 256;
  std::string out;
  for (const std::string& pointer : pointers) {
    if (out.size() > kBytesMax) break;
    if (!out.empty()) out += ',';
    out += pointer.substr(pointer.rfind('/') + 1, limits::kLabelBytesMax);
  }
  return out;
}

}  // namespace

// ---- Bodies -------------------------------------------------------------------------------------

void Service::post_chat(Call& call) {
  if (const Result<void> admitted = admit_chat(call); !admitted)
    answer_refusal(call, admitted.error());
}
void Service::post_completion(Call& call) {
  if (const Result<void> admitted = admit_completion(call); !admitted)
    answer_refusal(call, admitted.error());
}
void Service::post_messages(Call& call) {
  if (const Result<void> admitted = admit_messages(call); !admitted)
    answer_refusal(call, admitted.error());
}
void Service::post_responses(Call& call) {
  if (const Result<void> admitted = admit_responses(call); !admitted)
    answer_refusal(call, admitted.error());
}

Result<Prompt> Service::prompt_of(const Call& call, const ServedModel& served,
                                  const ChatRequest& request) {
  FindReplay find;
  if (request.generation.uses_replay)
    find = [this, owner = call.owner(request.generation.cache_salt)](std::string_view before,
                                                                     std::string_view turn) {
      return replays_.find(owner, before, turn);
    };
  return build_prompt(served, request, clock_.unix_seconds(), find);
}

// The next prompt of this conversation holds the reply again, as text: what that text is rendered
// to leads back to the tokens.
void Service::keep_replay(const ServedModel& served, const ChatRequest& request,
                          const ReplayPlace& place, const FinishedChoice& choice) {
  const ReplyMachine& machine = *choice.machine;
  // Text that was cut off at a stop string was drawn all the same: the client's turn is shorter.
  if (choice.end.cause == FinishCause::kStopString || machine.token_ids().empty()) return;
  Message reply;
  reply.role = Role::kAssistant;
  reply.reasoning = machine.reasoning();
  reply.text = machine.content();
  for (const ReplyItem& item : machine.items()) {
    if (item.kind != ReplyItem::Kind::kCall) continue;
    PastCall call;
    call.name = item.name;
    call.arguments = json::Value::object();
    const json::Value text = json::Value::string(item.text);
    if (item.is_free_text)
      call.arguments.set("input", text);
    else
      call.arguments = past_arguments(&text);
    reply.calls.push_back(std::move(call));
  }
  const Result<std::string> turn = render_reply(served, request, reply, clock_.unix_seconds());
  if (turn && !turn->empty())
    replays_.put(place.owner, place.before, *turn, {place.lead, machine.token_ids()});
}

namespace {

// What binds the reply of a conversation: its form, and the calls that must come or are strict.
void set_form(const ChatRequest& request, ReplyForm& form, std::vector<std::string>& pointers) {
  using Calls = ReplyForm::Calls;
  form.output = request.generation.output;
  form.is_single_call = request.ends_at_first_call;
  const std::vector<const Tool*> tools = callable_tools(request);
  const bool has_output = form.output.kind != OutputFormat::Kind::kFree;
  const bool has_strict =
      std::any_of(tools.begin(), tools.end(), [](const Tool* tool) { return tool->is_strict; });
  if (tools.empty()) return;
  form.calls = request.must_call ? Calls::kMust
               : has_output      ? Calls::kMay
               : has_strict      ? Calls::kStrict
                                 : Calls::kFree;
  if (form.calls == Calls::kFree) return;
  for (const Tool* tool : tools) {
    if (form.calls == Calls::kStrict && !tool->is_strict) continue;
    form.tools.push_back({tool->name, tool->parameters, tool->is_strict});
    pointers.push_back(tool->parameters_pointer);
    if (tool->is_free_text)
      form.tools.back().parameters.set("additionalProperties", json::Value::boolean(false));
  }
}

}  // namespace

// What the three dialects of conversations have in common.
Result<Service::Job> Service::chat_job(Call& call, const std::shared_ptr<const ServedModel>& served,
                                       const ChatRequest& request) {
  ROOST_TRY(Prompt prompt, prompt_of(call, *served, request));
  if (prompt.tokens.empty())
    return refuse_at(call.notes, Refusal::EmptyPrompt, "/messages", "nothing is left to read");
  Job job;
  job.prompts.push_back(std::move(prompt.tokens));
  job.starts_in_reasoning = prompt.starts_in_reasoning;
  job.continues_turn = request.continues_last && !prompt.starts_in_reasoning;
  job.tools = tool_table_of(request);
  job.ends_at_first_call = request.ends_at_first_call;
  job.is_call_named = request.is_call_named;
  job.fields = request.generation;
  job.is_stream = request.is_stream;
  job.n_replayed = prompt.n_replayed();
  job.places = std::move(prompt.places);
  set_form(request, job.form, job.tool_pointers);
  if (request.generation.uses_replay && request.generation.uses_cache && !request.continues_last) {
    ChatRequest about;
    about.generation = request.generation;
    ReplayPlace place{call.owner(request.generation.cache_salt), prompt.before_reply, prompt.lead};
    job.on_choice = [this, served, about, place = std::move(place)](const FinishedChoice& choice) {
      keep_replay(*served, about, place, choice);
    };
  }
  return job;
}

Result<void> Service::admit_chat(Call& call) {
  ROOST_TRY(const std::shared_ptr<const ServedModel> served, open_body(call));
  ROOST_TRY(const ChatRequest request,
            parse_openai_chat(call.request.body, served->rules, call.notes));
  ROOST_TRY(Job job, chat_job(call, served, request));
  job.dialect = "chat";
  job.reply_id = "chatcmpl-" + random_base62(random_, kIdCharacters);
  job.make_codec = [&request](ReplyHead head) {
    return make_openai_chat_codec(std::move(head), request);
  };
  return admit(call, served, std::move(job));
}

Result<void> Service::admit_completion(Call& call) {
  ROOST_TRY(const std::shared_ptr<const ServedModel> served, open_body(call));
  ROOST_TRY(const CompletionRequest request,
            parse_openai_completion(call.request.body, served->rules, call.notes));
  Job job;
  ROOST_TRY(job.prompts, completion_prompts(*served, request, call.notes));
  job.dialect = "completions";
  job.reply_id = "cmpl-" + random_base62(random_, kIdCharacters);
  job.finds_markers = false;
  job.fields = request.generation;
  job.form.output = request.generation.output;
  job.is_stream = request.is_stream;
  job.make_codec = [&request](ReplyHead head) {
    return make_openai_completion_codec(std::move(head), request);
  };
  return admit(call, served, std::move(job));
}

Result<void> Service::admit_messages(Call& call) {
  ROOST_TRY(const std::shared_ptr<const ServedModel> served, open_body(call));
  ROOST_TRY(const ChatRequest request,
            parse_anthropic_messages(call.request.body, served->rules, call.notes));
  ROOST_TRY(Job job, chat_job(call, served, request));
  job.dialect = "messages";
  job.reply_id = "msg_" + random_base62(random_, kIdCharacters);
  job.call_prefix = "toolu_";
  job.make_codec = [&request](ReplyHead head) {
    return make_anthropic_codec(std::move(head), request);
  };
  return admit(call, served, std::move(job));
}

Result<void> Service::admit_responses(Call& call) {
  ROOST_TRY(const std::shared_ptr<const ServedModel> served, open_body(call));
  ROOST_TRY(const ResponsesRequest request,
            parse_openai_responses(call.request.body, served->rules, store_.of(call.caller.label),
                                   call.notes));
  ROOST_TRY(Job job, chat_job(call, served, request.chat));
  job.dialect = "responses";
  job.reply_id = "resp_" + random_base62(random_, kIdCharacters);
  ResponsesCodecOptions options;
  options.new_id = [this](const char* prefix) {
    return prefix + random_base62(random_, kIdCharacters);
  };
  options.on_complete = [this, id = job.reply_id, input = request.input,
                         owner = call.caller.label](const json::Value& response) {
    store_.put(id, {response, input, owner});
  };
  job.make_codec = [&request, &options](ReplyHead head) {
    return make_openai_responses_codec(std::move(head), request, options);
  };
  return admit(call, served, std::move(job));
}

// ---- Admission ----------------------------------------------------------------------------------

ReplyHead Service::head_of(Call& call, const ServedModel& served, const Job& job) {
  const int64_t context = served.engine->context_max();
  ReplyHead head;
  head.id = job.reply_id;
  head.created = clock_.unix_seconds();
  head.model_id = served.ids.front();
  head.fingerprint = fingerprint_of(served);
  head.request_id = call.request_id;
  head.prompts = job.prompts;
  head.n_replayed = job.n_replayed;
  head.is_call_named = job.is_call_named;
  head.arrived_ns = call.arrived_ns;
  head.tokenizer = &served.tokenizer;
  const uint64_t seed = job.fields.seed ? *job.fields.seed : random_.next_u64() % kSeedLimit;
  for (const std::vector<int32_t>& prompt : job.prompts) {
    const int64_t n_free = context - static_cast<int64_t>(prompt.size());
    for (int64_t i = 0; i < job.fields.n; ++i) {
      head.seeds.push_back(seed + static_cast<uint64_t>(i));
      head.max_tokens_applied.push_back(std::min(job.fields.max_tokens.value_or(n_free), n_free));
    }
  }
  return head;
}

std::vector<ChoiceSetup> Service::choices_of(const ServedModel& served, const Job& job,
                                             const ReplyHead& head) {
  const GenerationFields& fields = job.fields;
  const uint64_t choices = fields.n > 1 ? random_.next_u64() | 1 : 0;
  std::vector<ChoiceSetup> out;
  for (size_t i = 0; i < head.seeds.size(); ++i) {
    const std::vector<int32_t>& prompt = job.prompts[i / static_cast<size_t>(fields.n)];
    ChoiceSetup choice;
    choice.reply.parser.starts_in_reasoning = job.starts_in_reasoning;
    choice.reply.parser.finds_markers = job.finds_markers;
    choice.reply.parser.stops = fields.stops;
    choice.reply.parser.keeps_stop_text = fields.keeps_stop_text;
    choice.reply.parser.tools = job.tools;
    choice.reply.parser.ends_at_first_call = job.ends_at_first_call;
    choice.reply.shows_special_tokens = fields.shows_special_tokens;
    choice.reply.min_tokens = fields.min_tokens;
    choice.reply.new_call_id = [this, prefix = job.call_prefix] {
      return prefix + random_base62(random_, kIdCharacters);
    };
    EngineRequest& work = choice.work;
    work.prompt = prompt;
    work.new_tokens_max = head.max_tokens_applied[i];
    work.sampling = sample_params_of(fields, served.defaults, head.seeds[i]);
    work.adjust = logit_adjust_of(fields, served.defaults);
    work.top_logprobs = static_cast<int32_t>(fields.n_logprobs.value_or(-1));
    work.tells_prompt = fields.tells_prompt;
    work.stop_tokens = fields.stop_tokens;
    work.ignore_end_tokens = fields.ignore_end_tokens;
    work.grammar = job.grammar;
    choice.is_bound = job.form.binds_all();
    work.places = job.places;
    // The first call ends the reply: the next turn goes on behind it.
    if (job.ends_at_first_call)
      work.place_token = served.tokenizer.find_added("</tool_call>").value_or(-1);
    work.drafts_max = fields.drafts_max;
    work.uses_cache = fields.uses_cache;
    work.cache_salt = job.cache_salt;
    work.choices = choices;
    work.priority = fields.priority;
    work.sharer = job.sharer;
    const double timeout_s = fields.timeout_s.value_or(options_.request_timeout_s);
    if (timeout_s > 0) work.deadline_ns = head.arrived_ns + static_cast<int64_t>(timeout_s * 1e9);
    const int64_t budget = fields.reasoning_budget.value_or(options_.thinking_budget);
    const bool guards_loops = fields.guards_loops.value_or(options_.guards_loops);
    // A reply that goes on with a turn has what stands there.
    const bool needs_content = options_.requires_content && !job.continues_turn;
    if ((budget >= 0 || guards_loops || needs_content) && job.finds_markers) {
      work.budget = served.budget_form;
      work.budget.n_tokens = budget;
      work.budget.guards_loops = guards_loops;
      work.budget.needs_content = needs_content;
      work.budget.starts_in_reasoning = job.starts_in_reasoning;
    }
    const auto n_free = served.engine->context_max() - static_cast<int64_t>(prompt.size());
    choice.is_max_tokens_clamped = fields.max_tokens.value_or(INT64_MAX) > n_free;
    out.push_back(std::move(choice));
  }
  return out;
}

// Counts the request against its key's limits; from here on its end must be told to the limiter.
Result<void> Service::begin_limited(Call& call) {
  const std::optional<KeyLimiter::Refused> refused =
      limiter_.begin(call.caller.label, call.arrived_ns);
  call.headers = limiter_.headers(call.caller.label, call.arrived_ns);
  if (!refused) return {};
  call.retry_after_s = refused->retry_after_s;
  return Error{Refusal::RateLimited, refused->detail};
}

Service::Running Service::running_of(const Call& call, const Job& job, const ReplyHead& head) {
  Running running;
  running.exchange = call.exchange;
  running.request_id = call.request_id;
  running.trace_id = std::string(call.trace_id());
  running.seed = head.seeds.front();
  running.ignored = names_of(call.notes.ignored);
  running.reply_id = head.id;
  running.key_label = call.caller.label;
  running.dialect = job.dialect;
  running.is_stream = job.is_stream;
  running.priority = job.fields.priority;
  running.uses_cache = job.fields.uses_cache;
  running.may_draft = job.fields.drafts_max > 0;
  running.n_per_prompt = static_cast<size_t>(job.fields.n);
  running.n_prompt = head.n_prompt_tokens();
  running.arrived_ns = call.arrived_ns;
  return running;
}

// long: everything that a reply needs of its request, in order
Result<void> Service::admit(Call& call, const std::shared_ptr<const ServedModel>& served, Job job) {
  if (!is_printable_label(call.request.header("x-request-id")) &&
      is_printable_label(job.fields.request_id))
    call.request_id = job.fields.request_id;
  for (const std::vector<int32_t>& prompt : job.prompts)
    ROOST_TRY_DO(
        check_prompt_fits(static_cast<int64_t>(prompt.size()), served->engine->context_max()));
  std::vector<UnenforcedPlace> unenforced;
  call.notes.param = job.form.output.path;
  if (call.notes.param.empty()) call.notes.param = "tools";
  const int64_t compiling_ns = clock_.now_ns();
  ROOST_TRY(job.grammar, served->grammars->use_of(job.form, job.starts_in_reasoning, unenforced));
  const int64_t compiled_ns = clock_.now_ns();
  if (job.grammar)
    metrics_.observe(Metric::kGrammarCompile,
                     static_cast<double>(compiled_ns - compiling_ns) / 1e9);
  call.notes.param.clear();
  for (const UnenforcedPlace& place : unenforced)
    call.notes.ignored.push_back(job.tool_pointers[place.tool_idx] + place.pointer);
  ROOST_TRY_DO(begin_limited(call));
  ReplyHead head = head_of(call, *served, job);
  // Prefixes are shared within one key and one salt.
  const std::string salt = call.owner(job.fields.cache_salt);
  if (salt.size() > 1) job.cache_salt = xxh3_128(std::as_bytes(std::span(salt)), 0);

  job.sharer = xxh3_128(std::as_bytes(std::span(call.caller.label)), 0);

  const uint64_t session_id = next_session_id_++;
  Running running = running_of(call, job, head);
  running.compiling_ns = compiling_ns;
  running.compiled_ns = compiled_ns;
  warn_of_ignored(call.notes.ignored);
  if (options_.content_log)
    options_.content_log->write(
        request_record(call.request_id, call.request.path, call.request.body));

  ReplySetup setup;
  setup.model = served;
  setup.exchange = call.exchange;
  setup.choices = choices_of(*served, job, head);
  setup.stop_tokens = job.fields.stop_tokens;
  setup.is_stream = job.is_stream;
  setup.headers = common_headers(call);
  if (call.is_messages()) setup.headers.emplace_back("request-id", call.request_id);
  setup.clock = &clock_;
  setup.on_choice = job.on_choice;
  setup.on_round = [this](double seconds, size_t n_tokens) {
    metrics_.observe(Metric::kGap, seconds);
    if (n_tokens > 0)
      metrics_.observe(Metric::kInterToken, seconds / static_cast<double>(n_tokens), n_tokens);
  };
  Call answer_to;  // what an error after admission still needs of the call
  answer_to.request.path = call.request.path;
  answer_to.request_id = call.request_id;
  setup.refuse = [this, answer_to, headers = setup.headers](const Error& error) {
    HttpResponse response = refusal_response(error, answer_to);
    response.headers.insert(response.headers.end(), headers.begin(), headers.end());
    return response;
  };
  setup.on_done = [this, session_id, running, route = call.route](const ReplyOutcome& outcome) {
    metrics_.add(Metric::kHttpRequests, 1,
                 fmt::format(R"({},method="POST",status="{}")", label("path", route),
                             answered_status(running, outcome)));
    note_done(session_id, running, outcome);
  };
  for (const int64_t n : head.max_tokens_applied)
    metrics_.observe(Metric::kRequestMax, static_cast<double>(n));
  setup.n_per_prompt = running.n_per_prompt;
  setup.tells_progress = job.fields.returns_progress && job.is_stream;
  setup.has_running_timings = job.is_stream && job.fields.has_running_timings;
  setup.codec = job.make_codec(std::move(head));

  const auto session = std::make_shared<ReplySession>(std::move(setup));
  running.session = session;
  // Listed first: the reply may be over before start returns.
  note_running(session_id, std::move(running));
  Result<void> started = session->start();
  if (!started) {
    forget(session_id);
    limiter_.end(call.caller.label, 0);
  }
  return started;
}

}  // namespace roost
