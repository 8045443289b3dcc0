// The engine: requests of token ids in, events of token ids out. Owns the scheduler, pages, slots
// and the model; one thread runs all of it.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "grammar/matcher.h"
#include "model/qwen35.h"
#include "ops/sample/sample.h"

namespace roost {

struct EngineRequest {
  std::vector<int32_t> prompt;  // >= 1 token
  int64_t new_tokens_max = 0;   // >= 1, counted in kept tokens; clamped to what fits the context
  SampleParams sampling;        // position is set by the engine
  std::vector<int32_t> stop_tokens;  // end the reply in addition to the model's end tokens
  bool ignore_end_tokens = false;    // but where a grammar leaves nothing else
  GrammarUse grammar;                // what the reply must follow; none: it is free
};

enum class Finish { kEndToken, kLength, kContext, kCancelled, kError };

// What happens to a request, in order: kStarted when its first row runs, kTokens any number of
// times, then exactly one kFinished.
struct EngineEvent {
  enum class Kind { kStarted, kTokens, kFinished };
  Kind kind = Kind::kTokens;
  std::vector<int32_t> tokens;        // kTokens: kept tokens, without end tokens
  Finish finish = Finish::kEndToken;  // kFinished
  int32_t end_token = -1;             // kFinished by kEndToken: the token
  std::optional<Error> error;         // kFinished by kError
  // kFinished: counts and times of the request, ns on the engine's clock.
  int64_t n_prompt = 0, n_cached = 0, n_generated = 0;
  int64_t submitted_ns = 0, started_ns = 0, first_token_ns = 0, finished_ns = 0;
  int64_t gap_max_ns = 0;  // longest silence between two kTokens events
};

// Called on the engine thread; must not block or call the engine.
using EventSink = std::function<void(const EngineEvent&)>;

struct EngineOptions {
  int64_t context_max = 0;   // tokens of one sequence; 0: the model's
  int32_t streams_max = 16;  // sequences that run at once
  size_t kv_bytes = 0;  // memory of K/V pages; 0: one sequence of full context and 8,192 tokens for
                        // each other stream, at most 1/4 of memory
  int64_t chunk_rows_max = 512;          // prompt rows of one step
  int64_t prompt_rows_beside_max = 256;  // of a step that also decodes
  int n_threads = 0;                     // 0: all usable CPUs
  int64_t n_tokens = 0;  // ids [n_tokens, V) are padding and never drawn; 0: none are
  int64_t reserved_new_tokens =
      2048;  // a request starts with pages for its prompt and this many new tokens
  size_t queue_max = 64;
};

struct MemoryPlan {  // bytes, as printed at start
  size_t weights_mapped = 0, weights_owned = 0, pages = 0, slots = 0, scratch = 0, workspace = 0;
  int32_t n_pages = 0, n_slots = 0;
  size_t total() const {
    return weights_mapped + weights_owned + pages + slots + scratch + workspace;
  }
};

class Engine {
 public:
  using RequestId = uint64_t;

  // Takes all memory, starts the engine thread. Refuses memory.too_small.
  static Result<std::unique_ptr<Engine>> create(std::shared_ptr<const ModelWeights> weights,
                                                const EngineOptions& options, const Clock& clock);
  virtual ~Engine() = default;  // ends running requests with kCancelled, joins the thread

  // Any thread. Refuses request.too_long, request.empty_prompt, queue.full,
  // server.draining.
  virtual Result<RequestId> submit(EngineRequest request, EventSink sink) = 0;
  virtual void cancel(RequestId id) = 0;  // any thread; unknown or finished ids are fine
  virtual void drain() = 0;               // refuse new requests; running ones go on

  virtual int64_t context_max() const = 0;
  virtual const MemoryPlan& memory_plan() const = 0;
  virtual std::string backend() const = 0;  // "cpu avx3, 2 threads"

  struct Counts {
    int32_t n_running = 0, n_waiting = 0, n_free_pages = 0, n_pages = 0, n_free_slots = 0,
            n_slots = 0;
    int64_t n_steps = 0, n_requests = 0, n_prompt_tokens = 0, n_generated_tokens = 0;
  };
  virtual Counts counts() const = 0;  // any thread
};

}  // namespace roost
