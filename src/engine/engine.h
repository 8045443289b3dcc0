// The engine: requests of token ids in, events of token ids out. Owns the scheduler, pages, slots
// and the model; one thread runs all of it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/hash.h"
#include "base/result.h"
#include "engine/counted.h"
#include "engine/logit_adjust.h"
#include "engine/memory_plan.h"
#include "engine/reasoning_budget.h"
#include "engine/speculation/acceptance.h"
#include "grammar/matcher.h"
#include "model/qwen35.h"
#include "ops/sample/sample.h"

namespace roost {

// Classes of requests: lower ones go first. From this one on work starts only when nothing of a
// better class waits, and is suspended when something does.
inline constexpr int32_t kBackgroundPriority = 50;

struct EngineRequest {
  std::vector<int32_t> prompt;  // >= 1 token
  int64_t new_tokens_max = 0;  // kept tokens, clamped to what fits the context; 0: the prompt alone
  SampleParams sampling;       // position is set by the engine
  std::vector<int32_t> stop_tokens;  // end the reply in addition to the model's end tokens
  bool ignore_end_tokens = false;
  int32_t drafts_max = kDraftsMax;  // tokens guessed ahead in one round; 0: none
  LogitAdjust adjust;               // penalties, biases, a least length
  ReasoningBudget budget;
  int32_t top_logprobs = -1;  // likeliest tokens that are told with each kept one; -1: no logprobs
  // kPrompt tells the logprobs of the prompt's tokens too; needs top_logprobs. All rows of the
  // prompt are run then: the prefix cache is not used.
  bool tells_prompt = false;
  GrammarUse grammar;  // what the reply must follow; none: it is free

  int32_t priority = 0;  // -100 … 100
  // Whose it is: of the prompts of one class that wait, those go first whose sharer has been served
  // least.
  Hash128 sharer;
  int64_t deadline_ns = 0;  // on the engine's clock; 0: none. Past it: request.deadline
  bool uses_cache = true;   // false: reads nothing from the prefix cache and leaves nothing in it
  // The same for the choices of one prompt, which nobody else may guess: without the cache they
  // compute it once all the same. 0: there is one choice.
  uint64_t choices = 0;
  Hash128 cache_salt;  // only requests of the same salt share prefixes
  // Prompt positions, beside those that the engine finds itself, at which later prompts are likely
  // to differ from this one: state is kept there. Any order; those outside 1 … n_prompt - 1 are
  // ignored.
  std::vector<int64_t> places;
  // State is kept behind each of these tokens of the reply too, the first few of them: whoever
  // reads it may end it there, by a cancel. -1: none.
  int32_t place_token = -1;
};

enum class Finish { kEndToken, kLength, kContext, kCancelled, kError };

// What happens to a request, in order: kStarted when its first row runs, kProgress behind every
// chunk of its prompt, with kPrompt in front of it where its logprobs were asked for, kTokens any
// number of times, then exactly one kFinished.
struct EngineEvent {
  enum class Kind { kStarted, kPrompt, kProgress, kTokens, kFinished };
  Kind kind = Kind::kTokens;
  std::vector<int32_t> tokens;  // kTokens: kept tokens, without end tokens
  // kTokens: one for each token if asked for, else none. kPrompt: of the next tokens of the prompt;
  // the first of all has none, as nothing stands in front of it.
  std::vector<TokenLogprobs> logprobs;
  Finish finish = Finish::kEndToken;  // kFinished
  int32_t end_token = -1;             // kFinished by kEndToken: the token
  std::optional<Error> error;         // kFinished by kError
  // Counts and times of the request as far as it is, ns on the engine's clock. n_cached: prompt
  // tokens whose rows were not run because the prefix cache had them. n_prompt_done: those that
  // are computed or cached.
  int64_t n_prompt = 0, n_cached = 0, n_prompt_done = 0, n_generated = 0;
  bool is_from_disk = false;  // what is cached was read from files for this request
  int64_t submitted_ns = 0, started_ns = 0, first_token_ns = 0, finished_ns = 0;
  int64_t gap_max_ns = 0;       // longest silence between two kTokens events
  DraftFigures drafts;          // kFinished
  bool has_found_loop = false;  // kFinished: reasoning was closed because it repeated itself
};

// Called on the engine thread; must not block or call the engine.
using EventSink = std::function<void(const EngineEvent&)>;

class Engine {
 public:
  using RequestId = uint64_t;

  // Takes all memory, starts the engine thread. Refuses memory.too_small, cache.folder.
  static Result<std::unique_ptr<Engine>> create(std::shared_ptr<const ModelWeights> weights,
                                                const EngineOptions& options, const Clock& clock);
  virtual ~Engine() = default;  // ends running requests with kCancelled, joins the thread

  // Any thread. Refuses request.too_long, request.empty_prompt, request.field_range, queue.full,
  // server.draining, device.lost.
  virtual Result<RequestId> submit(EngineRequest request, EventSink sink) = 0;
  virtual void cancel(RequestId id) = 0;  // any thread; unknown or finished ids are fine
  virtual void drain() = 0;               // refuse new requests; running ones go on
  // Any thread: forgets every prefix that no sequence needs, its files too; then calls done, on the
  // engine's thread.
  virtual void flush_prefixes(std::function<void()> done) = 0;

  virtual int64_t context_max() const = 0;
  virtual const MemoryPlan& memory_plan() const = 0;
  virtual std::string backend() const = 0;  // "cpu avx3, 2 threads"

  struct Counts {
    int32_t n_running = 0, n_waiting = 0;
    int32_t n_free_pages = 0, n_pages = 0;  // free: held by no sequence, cached or not
    int32_t n_cached_pages = 0;             // of the free ones, those that hold a known prefix
    int32_t n_free_slots = 0, n_slots = 0;
    int32_t n_kept_snapshots = 0, n_snapshots = 0;
    int64_t n_steps = 0, n_requests = 0, n_prompt_tokens = 0, n_generated_tokens = 0;
    int64_t n_cached_tokens = 0;  // prompt tokens that the prefix cache spared
    int64_t n_suspended = 0;      // times that a sequence had to wait for memory of others
    int64_t n_evicted_pages = 0, n_evicted_snapshots = 0;
    int64_t n_saved_snapshots = 0, n_restored_snapshots = 0;
    int64_t n_rejected_snapshots = 0;            // damaged: an older one served
    Counted<kTokenBounds.size()> step_rows;      // of each step
    Counted<kSecondBounds.size()> mask_seconds;  // of each token that a grammar bound
    int64_t n_grammar_violations = 0;            // tokens that its grammar would not let
    int64_t n_cache_files = 0,
            n_cache_files_skipped = 0;  // of the cache folder; damaged or foreign
    int64_t n_cache_files_written = 0, n_cache_writes_failed = 0, n_cache_file_bytes = 0;
    // Host memory below a card's: what it holds, and states that were copied back.
    int32_t n_host_pages = 0, n_host_snapshots = 0;
    int64_t n_restored_from_host = 0;
    int64_t n_restored = 0;  // requests that went on from what was read from files
  };
  virtual Counts counts() const = 0;  // any thread
};

}  // namespace roost
