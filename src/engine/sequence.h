// One request inside the engine: its tokens, and how far they are computed.
#pragma once

#include <algorithm>
#include <utility>
#include <vector>

#include "engine/engine.h"

namespace roost {

struct Sequence {
  Engine::RequestId id = 0;
  EngineRequest request;
  EventSink sink;
  std::vector<int32_t> tokens;  // prompt and kept tokens, in order
  int64_t n_prompt = 0;
  int64_t new_tokens_max = 0;      // clamped to the context
  bool is_cut_by_context = false;  // new_tokens_max comes from the context, not from the request

  int64_t n_computed = 0;      // tokens whose rows have run: length of K/V and of the state
  std::vector<int32_t> pages;  // its page table
  int32_t slot = -1;
  bool is_queued = true;  // not admitted yet: counts against the queue's limit
  bool has_started = false;
  bool is_cancelled = false;

  PenaltyHistory history;
  BudgetState budget;
  std::vector<int32_t> end_mask;  // tokens that are not drawn before adjust.min_tokens
  std::vector<float>
      raw_logits;        // of the row in work, where both logprobs and changes are asked for
  double log_total = 0;  // of the row in work, ln(sum e^z)

  EngineEvent event;  // reused for every event, so that a step allocates nothing
  int64_t last_tokens_ns = 0;

  int64_t n_generated() const { return static_cast<int64_t>(tokens.size()) - n_prompt; }
  bool needs_logits() const { return request.top_logprobs >= 0 || !request.adjust.is_off(); }
  bool is_stop_token(int32_t token) const {
    return std::find(request.stop_tokens.begin(), request.stop_tokens.end(), token) !=
           request.stop_tokens.end();
  }
};

}  // namespace roost
