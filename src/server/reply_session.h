// One generating request from its admission to its last byte: engine events of its choices in,
// events of a dialect out on the exchange.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "engine/engine.h"
#include "server/http_server.h"
#include "server/reply.h"
#include "server/reply_codec.h"
#include "server/served_model.h"

namespace roost {

struct ChoiceSetup {
  ReplyOptions reply;
  EngineRequest work;
  bool is_max_tokens_clamped = false;
  bool is_bound = false;  // its grammar says when it is a whole
};

enum class ReplyPhase { kQueue, kPrefill, kDecode };

// How a request ended: what the log and the metrics say of it.
struct ReplyOutcome {
  std::string name;  // "eos", …, "gone", or the code of a refusal
  int status = 200;  // of a refusal
  bool is_error = false, is_gone = false;
  ReplyPhase phase = ReplyPhase::kQueue;     // how far it was
  std::vector<FinishedChoice> choices;       // those that have ended
  std::vector<int64_t> chunk_ends_ns;        // of the prompt, where the engine told them
  int64_t text_from_ns = 0, text_to_ns = 0;  // first tokens taken, last ones printed
};

// What the service tells the session, and what it wants to hear.
struct ReplySetup {
  std::shared_ptr<const ServedModel> model;
  std::shared_ptr<HttpExchange> exchange;
  std::unique_ptr<ReplyCodec> codec;
  std::vector<ChoiceSetup> choices;
  std::vector<int32_t> stop_tokens;  // the request's own
  bool is_stream = false;
  HttpHeaders headers;
  std::function<HttpResponse(const Error&)> refuse;  // a plain HTTP error
  std::function<void(const ReplyOutcome&)> on_done;  // called before its client hears of the end
  // A choice has ended well: called before its client hears of it. May be empty.
  std::function<void(const FinishedChoice&)> on_choice;
  // Called with every round but a choice's first: seconds since the one before, and its tokens.
  std::function<void(double seconds, size_t n_tokens)> on_round;  // may be empty
  size_t n_per_prompt = 1;           // choices; the first one tells how far the prompt is
  bool tells_progress = false;       // to the client, as chunks of the prompt are done
  bool has_running_timings = false;  // every event of a piece tells them
  const Clock* clock = nullptr;
};

// All members run on the exchange's executor, but for the sink that the engine calls: it posts.
class ReplySession : public std::enable_shared_from_this<ReplySession> {
 public:
  explicit ReplySession(ReplySetup setup);

  // Submits all choices and, for a stream, sends the head and the first events. A refusal leaves
  // the exchange untouched and no choice behind.
  Result<void> start();
  void cancel(Error why);  // ends the reply with this error
  // The reply as far as it is, cancelled; null: it has ended, or its dialect knows no replies by
  // id.
  json::Value cancelled_object() const;

  // Any thread.
  ReplyPhase phase() const { return phase_; }
  int64_t n_kept() const { return n_kept_; }
  int64_t n_prompt_done() const { return n_prompt_done_; }  // of all prompts, cached ones included
  int64_t first_token_ns() const { return first_token_ns_; }  // 0: none yet

 private:
  struct Choice {
    Choice(const Tokenizer& tokenizer, ChoiceSetup& setup)
        : machine(tokenizer, std::move(setup.reply)),
          n_prompt(static_cast<int64_t>(setup.work.prompt.size())),
          is_max_tokens_clamped(setup.is_max_tokens_clamped),
          is_bound(setup.is_bound),
          tells_prompt(setup.work.tells_prompt) {}
    ReplyMachine machine;
    int64_t n_prompt, n_prompt_done = 0;
    bool is_max_tokens_clamped, is_bound;
    std::optional<Engine::RequestId> engine_id;
    std::optional<ReplyEnd> end;
    int64_t last_round_ns = 0;
    bool tells_prompt;
    std::vector<TokenLogprobs> of_prompt;  // until all are there
    ReplyPiece held;                       // while the client reads slowly
    size_t n_held_bytes = 0;
    bool has_held() const { return !held.events.empty() || !held.tokens.empty(); }
  };

  Result<void> submit(size_t idx);
  void cancel_engine();
  void on_event(size_t idx, const EngineEvent& event);
  void begin_events(int64_t n_cached);
  void tell_prompt(Choice& choice, size_t idx, const EngineEvent& event);
  void tell_progress(size_t idx, const EngineEvent& event);
  void on_tokens(Choice& choice, size_t idx, const EngineEvent& event);
  void send_piece(Choice& choice, size_t idx, ReplyPiece piece);
  void send_held();
  void on_finished(Choice& choice, size_t idx, const EngineEvent& event);
  ReplyEnd end_of(const Choice& choice, const EngineEvent& event) const;
  void fail(const Error& error);
  std::string end_choice(Choice& choice, size_t idx);
  void succeed(std::string last_bytes);
  void done(std::string name, const Error* error);

  ReplySetup setup_;
  std::vector<Choice> choices_;
  size_t n_ended_ = 0;
  std::optional<Error> failed_by_;  // the first reason; others may follow from it
  bool is_client_gone_ = false, is_refused_ = false, has_begun_ = false;
  std::optional<int64_t> last_progress_ns_;
  std::vector<int64_t> chunk_ends_ns_;
  bool awaits_room_ = false;  // the exchange will tell when it has sent everything
  std::atomic<ReplyPhase> phase_ = ReplyPhase::kQueue;
  std::atomic<int64_t> n_kept_ = 0, n_prompt_done_ = 0, first_token_ns_ = 0;
  std::atomic<int> n_posted_ = 0;         // events on their way to the executor
  std::atomic<bool> is_overrun_ = false;  // some were dropped: the reply cannot end well
};

}  // namespace roost
