// Rows of logits of one sequence: what its request changes in them and wants to know of them.
#include "engine/sequence.h"

#include <algorithm>

#include "base/check.h"

namespace roost {
namespace {

float logprob_of(std::span<const float> logits, int32_t token, double log_total) {
  return static_cast<float>(double{logits[static_cast<size_t>(token)]} - log_total);
}

// Whether a mask lets any token but these.
bool allows_others(std::span<const uint32_t> mask, std::span<const int32_t> tokens) {
  for (size_t w = 0; w < mask.size(); ++w) {
    uint32_t others = mask[w];
    for (const int32_t token : tokens)
      if (static_cast<size_t>(token) / 32 == w) others &= ~(1u << (token % 32));
    if (others != 0) return true;
  }
  return false;
}

}  // namespace

void Sequence::prepare_rows(int64_t vocabulary, const std::vector<int32_t>& end_tokens,
                            size_t rows_max) {
  history = PenaltyHistory(request.adjust, request.prompt, vocabulary, n_prompt + new_tokens_max);
  budget = BudgetState(request.budget);
  // A form that is a whole ends, also where end tokens are ignored.
  if (!request.ignore_end_tokens || matcher) ending = end_tokens;
  n_ends_of_model = ending.size();
  ending.insert(ending.end(), request.stop_tokens.begin(), request.stop_tokens.end());
  if (request.top_logprobs < 0) return;
  event.logprobs.resize(1);
  drawn_logprobs.resize(rows_max);
  for (TokenLogprobs& one : drawn_logprobs)
    one.top.reserve(static_cast<size_t>(request.top_logprobs));
  raw_logits.resize(static_cast<size_t>(vocabulary));
}

bool Sequence::wants_row() const {
  if (is_telling()) return true;
  if (n_drawn == 0) return true;
  return !has_drawn_end && last_drawn == drafts.drafts[static_cast<size_t>(n_drawn - 1)];
}

void Sequence::before_draw(std::span<float> logits) {
  if (is_telling()) {
    TokenLogprobs& of_next = told.emplace_back();
    of_next.top.reserve(static_cast<size_t>(request.top_logprobs));
    take_top(logits, static_cast<size_t>(request.top_logprobs), of_next.top, &log_total);
    const int32_t next = tokens[static_cast<size_t>(n_told)];
    of_next.logprob = logprob_of(logits, next, log_total);
    return;
  }
  if (request.top_logprobs >= 0) {
    take_top(logits, static_cast<size_t>(request.top_logprobs),
             drawn_logprobs[static_cast<size_t>(n_drawn)].top, &log_total);
    std::copy(logits.begin(), logits.end(), raw_logits.begin());
  }
  if (request.adjust.is_off() && !request.budget.needs_content) return;
  // Of a reply that follows a grammar its mask says which ends may come.
  const auto masked = matcher ? std::span<const int32_t>() : held_ends();
  adjust_logits(request.adjust, history, masked, logits);
}

// Those tokens of `ending` that may not come yet, the first ones of it.
std::span<const int32_t> Sequence::held_ends() const {
  const std::span<const int32_t> all(ending);
  if (n_generated() + n_drawn < request.adjust.min_tokens) return all;
  // A token that the client has named as an end is one, also of a reply without content.
  return all.first(budget.lacks_content(request.budget) ? n_ends_of_model : 0);
}

// What ends a reply may come when it is a whole, and must where nothing else can.
const uint32_t* Sequence::mask() {
  if (!matcher || is_telling()) return nullptr;
  const int64_t from = clock->now_ns();
  matcher->fill_mask(allowed);
  // Ids that are never drawn may be among those that end the reply.
  const auto is_in_mask = [&](int32_t token) {
    return static_cast<size_t>(token) < allowed.size() * 32;
  };
  if (matcher->may_end()) {
    for (const int32_t token : ending)
      if (is_in_mask(token)) allow_token(allowed, token);
  }
  if (const auto held = held_ends(); !held.empty() && allows_others(allowed, held)) {
    for (const int32_t token : held)
      if (is_in_mask(token)) forbid_token(allowed, token);
  }
  mask_seconds->add(static_cast<double>(clock->now_ns() - from) * 1e-9, kSecondBounds);
  return allowed.data();
}

int32_t Sequence::after_draw(int32_t drawn) {
  if (is_telling()) {
    has_bad_told |= drawn < 0;
    ++n_told;
    return drawn;  // the prompt says what stands here
  }
  const auto row = static_cast<size_t>(n_drawn++);
  last_drawn = drawn;
  if (drawn < 0) return drawn;
  const bool is_forced = budget.is_forced(request.budget);
  last_drawn = budget.choose(request.budget, drawn);
  has_drawn_end = !is_forced && ends_reply(last_drawn);
  if (has_drawn_end) return last_drawn;
  // The mask let it, so this is a fault of ours, or of the machine; it is this request's alone.
  breaks_grammar = matcher && !matcher->accept(last_drawn);
  if (breaks_grammar) return last_drawn = -1;
  history.keep(last_drawn);
  budget.keep(request.budget, last_drawn);
  if (request.top_logprobs >= 0)
    drawn_logprobs[row].logprob = logprob_of(raw_logits, last_drawn, log_total);
  return last_drawn;
}

void Sequence::fit_drafts() {
  BudgetState ahead = budget;
  size_t n_read = 0;
  int32_t n = 0;
  for (; n < drafts.n_drafts; ++n) {
    int32_t& draft = drafts.drafts[static_cast<size_t>(n)];
    const bool is_forced = ahead.is_forced(request.budget);
    draft = ahead.choose(request.budget, draft);
    ahead.keep(request.budget, draft);
    // Whether it holds is seen in the row in front of it; nothing is behind it.
    if (!is_forced && ends_reply(draft)) {
      drafts.rowless = StreamDrafts::Rowless::kEnd;
      break;
    }
    if (!matcher) continue;
    if (!matcher->accept(draft)) {
      drafts.rowless = StreamDrafts::Rowless::kMisfit;
      break;
    }
    ++n_read;
  }
  if (matcher) matcher->rollback(n_read);
  drafts.n_drafts = n;
}

}  // namespace roost
