// Generation without a server: the same prompt, engine and reply machine, printed.
#include "apps/run.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <cstdio>
#include <deque>
#include <iostream>
#include <memory>
#include <mutex>

#include "apps/complain.h"
#include "apps/engine_options.h"
#include "apps/load_model.h"
#include "base/clock.h"
#include "base/hash.h"
#include "base/json.h"
#include "base/random.h"
#include "server/prompt.h"
#include "server/reply.h"
#include "server/reply_codec.h"

namespace roost {

namespace {

constexpr uint64_t kSeedLimit = uint64_t{1} << 53;  // a seed that every JSON reader keeps exact

// Engine events, from the engine's thread to this one.
class EventQueue {
 public:
  void push(const EngineEvent& event) {
    const std::lock_guard lock(mutex_);
    events_.push_back(event);
    filled_.notify_one();
  }
  EngineEvent pop() {
    std::unique_lock lock(mutex_);
    filled_.wait(lock, [this] { return !events_.empty(); });
    EngineEvent event = std::move(events_.front());
    events_.pop_front();
    return event;
  }

 private:
  std::mutex mutex_;
  std::condition_variable filled_;
  std::deque<EngineEvent> events_;
};

struct Reply {
  std::unique_ptr<ReplyMachine> machine;
  ReplyHead head;
  ReplyEnd end;
  uint64_t seed = 0;
};

using PieceSink = std::function<void(const ReplyPiece&)>;

Result<Reply> generate(const ServedModel& model, const ChatRequest& request,
                       const PieceSink& show) {
  ROOST_TRY(Prompt prompt, build_prompt(model, request, system_clock().unix_seconds()));
  const auto n_prompt = static_cast<int64_t>(prompt.tokens.size());
  const int64_t context = model.engine->context_max();
  ROOST_TRY_DO(check_prompt_fits(n_prompt, context));

  const GenerationFields& fields = request.generation;
  Reply reply;
  reply.seed = fields.seed ? *fields.seed : system_random().next_u64() % kSeedLimit;
  ReplyOptions options;
  options.parser.starts_in_reasoning = prompt.starts_in_reasoning;
  options.parser.stops = fields.stops;
  reply.machine = std::make_unique<ReplyMachine>(model.tokenizer, std::move(options));
  reply.head.prompts = {prompt.tokens};
  reply.head.seeds = {reply.seed};
  EngineRequest work;
  work.prompt = std::move(prompt.tokens);
  work.new_tokens_max = std::min(fields.max_tokens.value_or(context), context - n_prompt);
  work.sampling = sample_params_of(fields, model.defaults, reply.seed);
  work.adjust = logit_adjust_of(fields, model.defaults);

  const auto queue = std::make_shared<EventQueue>();
  ROOST_TRY_DO(model.engine->submit(std::move(work),
                                    [queue](const EngineEvent& event) { queue->push(event); }));
  for (;;) {
    EngineEvent event = queue->pop();
    if (event.kind == EngineEvent::Kind::kTokens) show(reply.machine->push(event.tokens));
    if (event.kind != EngineEvent::Kind::kFinished) continue;
    if (event.error) return *event.error;
    const bool is_end = event.finish == Finish::kEndToken;
    show(reply.machine->finish(!is_end));
    reply.end.cause = is_end                             ? FinishCause::kEos
                      : event.finish == Finish::kContext ? FinishCause::kContext
                                                         : FinishCause::kMaxTokens;
    reply.end.finished = std::move(event);
    return reply;
  }
}

std::string json_of(const Reply& reply) {
  const ReplyMachine& machine = *reply.machine;
  json::Value ids = json::Value::array();
  for (const int32_t id : machine.token_ids()) ids.push(json::Value::integer(id));
  json::Value out = json::Value::object();
  out.set("text", json::Value::string(machine.content()));
  out.set("reasoning", json::Value::string(machine.reasoning()));
  out.set("token_ids", std::move(ids));
  out.set("token_sha256", json::Value::string(token_sha256(machine.token_ids())));
  out.set("prompt_tokens", json::Value::integer(reply.end.finished.n_prompt));
  out.set("finish", json::Value::string(reply.end.cause == FinishCause::kEos ? "stop" : "length"));
  out.set("seed", json::Value::unsigned_integer(reply.seed));
  out.set("accept_length", accept_length_of(reply.end.finished.drafts));
  out.set("timings", timings_of(reply.head, {{&machine, reply.end}}));
  return json::write(out);
}

void print(std::string_view text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

// The last n characters of a text.
std::string_view tail_of(std::string_view text, size_t n) {
  size_t at = text.size();
  for (; at > 0 && n > 0; --n) {
    do {
      --at;
    } while (at > 0 && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80);
  }
  return text.substr(at);
}

// Shows a reply as it comes. On a terminal reasoning is folded into one dim line: its newest words
// while it grows, its length when it is over; elsewhere it is left out. Content is printed as it
// is.
class Printer {
 public:
  void show(const ReplyPiece& piece) {
    for (const ReplyEvent& event : piece.events) {
      if (event.kind == ReplyEvent::Kind::kContent) {
        end_reasoning();
        print(event.text);
      } else if (event.kind == ReplyEvent::Kind::kReasoning && is_terminal_) {
        add_reasoning(event.text);
      }
    }
  }
  void end() {
    end_reasoning();
    print("\n");
  }

 private:
  static constexpr size_t kTailCharacters = 60;
  static constexpr const char* kLineStart = "\r\x1b[K\x1b[2m";  // of an empty line, dim

  void add_reasoning(std::string_view text) {
    n_words_ += static_cast<size_t>(std::count(text.begin(), text.end(), ' '));
    line_ += text;
    if (const size_t newline = line_.find_last_of('\n', line_.size() - 1);
        newline != std::string::npos && newline + 1 < line_.size())
      line_.erase(0, newline + 1);
    std::string shown(tail_of(line_, kTailCharacters));
    std::replace(shown.begin(), shown.end(), '\n', ' ');
    print(fmt::format("{}{}\x1b[0m", kLineStart, shown));
    is_reasoning_ = true;
  }
  void end_reasoning() {
    if (!is_reasoning_) return;
    print(fmt::format("{}(thought, {} words)\x1b[0m\n", kLineStart, n_words_ + 1));
    is_reasoning_ = false;
    n_words_ = 0;
    line_.clear();
  }

  const bool is_terminal_ = isatty(STDOUT_FILENO) == 1;
  bool is_reasoning_ = false;
  size_t n_words_ = 0;
  std::string line_;  // the newest line of the reasoning
};

Result<ChatRequest> request_of(const Flags& flags) {
  if (flags.max_tokens) ROOST_TRY_DO(check_range("--max-tokens", *flags.max_tokens, 1, INT64_MAX));
  ChatRequest out;
  if (!flags.system.empty()) out.messages.push_back({.role = Role::kSystem, .text = flags.system});
  GenerationFields& fields = out.generation;
  fields.seed = flags.seed;
  fields.max_tokens = flags.max_tokens;
  if (flags.no_think) fields.thinking = false;
  return out;
}

int run_once(const ServedModel& model, ChatRequest request, const Flags& flags) {
  request.messages.push_back({.role = Role::kUser, .text = *flags.prompt});
  Printer printer;
  const auto show = [&](const ReplyPiece& piece) {
    if (!flags.json) printer.show(piece);
  };
  const Result<Reply> reply = generate(model, request, show);
  if (!reply) return complain(reply.error());
  if (flags.json)
    print(json_of(*reply) + "\n");
  else
    printer.end();
  return 0;
}

// A conversation until the input ends. A reply that is refused leaves it as it was; the line
// "/reasoning" shows what the last reply was thinking.
int run_chat(const ServedModel& model, ChatRequest request, const Flags& flags) {
  const bool is_terminal = isatty(STDIN_FILENO) == 1;
  Printer printer;
  if (is_terminal) print("Ctrl-D ends; /reasoning shows what the last reply was thinking.\n");
  for (std::string text;;) {
    if (is_terminal) print("> ");
    if (!std::getline(std::cin, text)) break;
    if (text.empty()) continue;
    if (text == "/reasoning") {
      if (!request.messages.empty()) print(request.messages.back().reasoning + "\n");
      continue;
    }
    request.messages.push_back({.role = Role::kUser, .text = text});
    const auto show = [&](const ReplyPiece& piece) {
      if (!flags.json) printer.show(piece);
    };
    const Result<Reply> reply = generate(model, request, show);
    if (!reply) {
      complain(reply.error());
      request.messages.pop_back();
      continue;
    }
    if (flags.json)
      print(json_of(*reply) + "\n");
    else
      printer.end();
    const ReplyMachine& machine = *reply->machine;
    request.messages.push_back(
        {.role = Role::kAssistant, .text = machine.content(), .reasoning = machine.reasoning()});
  }
  if (is_terminal) print("\n");
  return 0;
}

}  // namespace

int run_run(const CommandLine& line) {
  const Flags& flags = line.flags;
  Result<ChatRequest> request = request_of(flags);
  if (!request) return complain(request.error());
  Result<EngineOptions> engine = engine_options_of(flags);
  if (!engine) return complain(engine.error());
  Result<GenerationDefaults> sampling = sampling_of(flags);
  if (!sampling) return complain(sampling.error());
  LoadOptions options;
  options.folder = line.model;
  options.device = flags.device;
  options.template_file = flags.chat_template;
  options.drafter = flags.drafter;
  options.drafter_bits = flags.drafter_bits;
  options.sampling = std::move(*sampling);
  options.engine = std::move(*engine);
  options.engine.streams_max = 1;
  const Result<std::shared_ptr<ServedModel>> model = load_model(options, system_clock());
  if (!model) return complain(model.error());
  if (flags.prompt) return run_once(**model, std::move(*request), flags);
  return run_chat(**model, std::move(*request), flags);
}

}  // namespace roost
