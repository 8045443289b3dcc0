// Rows of logits of one sequence: what its request changes in them and wants to know of them.
#include "engine/sequence.h"

namespace roost {

void Sequence::prepare_rows(int64_t vocabulary, const std::vector<int32_t>& end_tokens) {
  history = PenaltyHistory(request.adjust, request.prompt, vocabulary, n_prompt + new_tokens_max);
  budget = BudgetState(request.budget);
  if (request.adjust.min_tokens > 0) {
    if (!request.ignore_end_tokens) end_mask = end_tokens;
    end_mask.insert(end_mask.end(), request.stop_tokens.begin(), request.stop_tokens.end());
  }
  if (request.top_logprobs < 0) return;
  event.logprobs.resize(1);
  event.logprobs[0].top.reserve(static_cast<size_t>(request.top_logprobs));
  raw_logits.resize(static_cast<size_t>(vocabulary));
}

void Sequence::before_draw(std::span<float> logits) {
  if (request.top_logprobs >= 0) {
    take_top(logits, static_cast<size_t>(request.top_logprobs), event.logprobs[0].top, &log_total);
    std::copy(logits.begin(), logits.end(), raw_logits.begin());
  }
  if (request.adjust.is_off()) return;
  // A form that is complete may end: nothing else may be left.
  const bool is_whole = matcher && matcher->may_end();
  const bool is_short = n_generated() < request.adjust.min_tokens && !is_whole;
  adjust_logits(request.adjust, history,
                is_short ? std::span<const int32_t>(end_mask) : std::span<const int32_t>(), logits);
}

void Sequence::note_kept(int32_t token) {
  history.keep(token);
  budget.keep(request.budget, token);
  if (request.top_logprobs >= 0)
    event.logprobs[0].logprob =
        static_cast<float>(double{raw_logits[static_cast<size_t>(token)]} - log_total);
}

}  // namespace roost
