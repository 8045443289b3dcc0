// One request inside the engine: its tokens, and how far they are computed.
#pragma once

#include <algorithm>
#include <memory>
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

  std::unique_ptr<GrammarMatcher> matcher;  // of a reply that follows a grammar
  TokenMask mask;

  EngineEvent event;  // reused for every event, so that a step allocates nothing
  int64_t last_tokens_ns = 0;

  int64_t n_generated() const { return static_cast<int64_t>(tokens.size()) - n_prompt; }
  // The ids that may come next; null when all may. What ends a reply may come when it is a whole.
  const uint32_t* next_mask(const std::vector<int32_t>& end_tokens) {
    if (!matcher) return nullptr;
    matcher->fill_mask(mask);
    if (!matcher->may_end()) return mask.data();
    for (const int32_t token : end_tokens) allow_token(mask, token);
    for (const int32_t token : request.stop_tokens) allow_token(mask, token);
    return mask.data();
  }
  bool is_stop_token(int32_t token) const {
    return std::find(request.stop_tokens.begin(), request.stop_tokens.end(), token) !=
           request.stop_tokens.end();
  }
};

}  // namespace roost
