// A request of any dialect and a reply to it: "C" (chat), "T" (completions), "R" (responses) or "M"
// (messages), the body, a zero byte, and the text of the reply. What is not refused becomes a
// prompt, and a client puts together from the events of the stream what the whole body says.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "base/check.h"
#include "server/anthropic_messages.h"
#include "server/openai_chat.h"
#include "server/openai_completions.h"
#include "server/openai_responses.h"
#include "server/prompt.h"
#include "server/tools.h"
#include "tests/sim/dialects.h"
#include "tests/sim/fledgling_text.h"

namespace roost {
namespace {

constexpr size_t kReplyTokensMax = 400;

const ServedModel& model() {
  static const std::shared_ptr<ServedModel> kModel = fledgling_text();
  return *kModel;
}

ReplyHead head_of(std::vector<int32_t> prompt) {
  ReplyHead head;
  head.id = "id";
  head.model_id = "m";
  head.prompts = {std::move(prompt)};
  head.seeds = {1};
  head.max_tokens_applied = {100};
  head.tokenizer = &model().tokenizer;
  return head;
}

ReplyOptions reply_options(const GenerationFields& fields) {
  ReplyOptions out;
  out.parser.stops = fields.stops;
  out.parser.keeps_stop_text = fields.keeps_stop_text;
  out.min_tokens = fields.min_tokens;
  out.new_call_id = [n = 0]() mutable { return "call" + std::to_string(n++); };
  return out;
}

// Some tokens at a time, as rounds with drafts give them.
std::string streamed(ReplyCodec& codec, ReplyMachine& machine, const std::vector<int32_t>& tokens) {
  std::string out = codec.first_events(0);
  out += codec.alive_event(0, {});
  for (size_t i = 0; i < tokens.size() && !machine.has_stopped(); i += 3) {
    const size_t n = std::min<size_t>(3, tokens.size() - i);
    const ReplyPiece piece = machine.push({tokens.data() + i, n});
    out += codec.piece_events(0, piece, machine);
  }
  const ReplyPiece rest = machine.finish(false);
  return out + codec.piece_events(0, rest, machine);
}

template <class Make>
void tell(Dialect dialect, const GenerationFields& fields, const ReplyOptions& options,
          const std::string& text, const Make& make) {
  std::vector<int32_t> tokens = model().tokenizer.encode(text);
  tokens.resize(std::min(tokens.size(), kReplyTokensMax));
  ReplyMachine machine(model().tokenizer, options);
  const std::unique_ptr<ReplyCodec> stream = make(head_of({1, 2, 3}));
  std::string events = streamed(*stream, machine, tokens);
  const std::vector<FinishedChoice> finished{{&machine, {}}};
  events += stream->choice_end(0, finished[0], true);
  events += stream->last_events(finished);
  // The reader knows one name of reasoning, calls of functions, and reasoning that is no summary.
  const bool is_readable = fields.reasoning_field == ReasoningField::kReasoningContent &&
                           std::none_of(machine.items().begin(), machine.items().end(),
                                        [](const ReplyItem& item) { return item.is_free_text; });
  const std::string whole = make(head_of({1, 2, 3}))->whole(finished);
  ROOST_CHECK(json::parse(whole));
  stream_events(events);  // each is JSON
  if (!is_readable) return;
  ToldReply of_stream = told_stream(dialect, events), of_whole = told_whole(dialect, whole);
  if (dialect == Dialect::kChat || dialect == Dialect::kCompletions)
    of_stream.n_prompt = of_stream.n_reply = of_stream.n_reasoning = of_whole.n_prompt =
        of_whole.n_reply = of_whole.n_reasoning = 0;  // usage is told on request
  if (dialect == Dialect::kMessages && !of_whole.calls.empty())
    of_stream.calls = of_whole.calls;  // one is the text of the other, printed again
  ROOST_CHECK(of_stream == of_whole);
}

void converse(Dialect dialect, const ChatRequest& request, const std::string& text,
              const std::function<std::unique_ptr<ReplyCodec>(ReplyHead)>& make) {
  const Result<Prompt> prompt = build_prompt(model(), request, 1'700'000'000);
  if (!prompt) return;
  ReplyOptions options = reply_options(request.generation);
  options.parser.starts_in_reasoning = prompt->starts_in_reasoning;
  options.parser.tools = tool_table_of(request);
  options.parser.ends_at_first_call = request.ends_at_first_call;
  tell(dialect, request.generation, options, text, make);
}

void run(char kind, const std::string& body, const std::string& text) {
  ParseNotes notes;
  const RequestRules& rules = model().rules;
  if (kind == 'C') {
    const Result<ChatRequest> request = parse_openai_chat(body, rules, notes);
    if (!request || request->generation.n > 1) return;
    converse(Dialect::kChat, *request, text,
             [&](ReplyHead head) { return make_openai_chat_codec(std::move(head), *request); });
  } else if (kind == 'M') {
    const Result<ChatRequest> request = parse_anthropic_messages(body, rules, notes);
    if (!request) return;
    converse(Dialect::kMessages, *request, text,
             [&](ReplyHead head) { return make_anthropic_codec(std::move(head), *request); });
  } else if (kind == 'R') {
    const Result<ResponsesRequest> request = parse_openai_responses(body, rules, {}, notes);
    if (!request || request->has_summary) return;
    converse(Dialect::kResponses, request->chat, text, [&](ReplyHead head) {
      ResponsesCodecOptions options;
      options.new_id = [n = 0](const char* prefix) mutable { return prefix + std::to_string(n++); };
      return make_openai_responses_codec(std::move(head), *request, options);
    });
  } else if (kind == 'T') {
    const Result<CompletionRequest> request = parse_openai_completion(body, rules, notes);
    if (!request || request->generation.n > 1 || request->prompts.size() > 1 || request->echoes)
      return;
    if (!completion_prompts(model(), *request, notes)) return;
    ReplyOptions options = reply_options(request->generation);
    options.parser.finds_markers = false;
    tell(Dialect::kCompletions, request->generation, options, text,
         [&](ReplyHead head) { return make_openai_completion_codec(std::move(head), *request); });
  }
}

}  // namespace
}  // namespace roost

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const size_t end = std::min(input.find('\0'), input.size());
  roost::run(input[0], std::string(input.substr(1, end - 1)),
             end < size ? std::string(input.substr(end + 1)) : "");
  return 0;
}
