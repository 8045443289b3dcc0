#include "engine/logit_adjust.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace roost {
namespace {

constexpr float kMasked = -std::numeric_limits<float>::infinity();

// The heap keeps the least likely on top.
bool is_likelier(const TokenLogprob& a, const TokenLogprob& b) {
  return a.logprob > b.logprob || (a.logprob == b.logprob && a.token < b.token);
}

}  // namespace

PenaltyHistory::PenaltyHistory(const LogitAdjust& adjust, std::span<const int32_t> prompt,
                               int64_t vocabulary, int64_t n_tokens_max) {
  const bool has_penalty = adjust.presence != 0 || adjust.frequency != 0 || adjust.repetition != 1;
  if (!has_penalty) return;
  counts_.resize(static_cast<size_t>(vocabulary));
  is_seen_.resize(static_cast<size_t>(vocabulary));
  seen_.reserve(static_cast<size_t>(std::min(vocabulary, n_tokens_max)));
  if (adjust.repetition == 1) return;
  for (const int32_t token : prompt) note(token);
}

void PenaltyHistory::note(int32_t token) {
  uint8_t& is_seen = is_seen_[static_cast<size_t>(token)];
  if (is_seen == 0) seen_.push_back(token);
  is_seen = 1;
}

void PenaltyHistory::keep(int32_t token) {
  if (counts_.empty()) return;
  ++counts_[static_cast<size_t>(token)];
  note(token);
}

void adjust_logits(const LogitAdjust& adjust, const PenaltyHistory& history,
                   std::span<const int32_t> masked, std::span<float> logits) {
  for (const auto& [token, bias] : adjust.bias) {
    float& z = logits[static_cast<size_t>(token)];
    z = static_cast<float>(double{z} + bias);
  }
  for (const int32_t token : history.seen()) {
    float& logit = logits[static_cast<size_t>(token)];
    double z = logit;
    if (adjust.repetition != 1) z = z > 0 ? z / adjust.repetition : z * adjust.repetition;
    const int32_t count = history.count(token);
    if (count > 0) z -= adjust.frequency * count + adjust.presence;
    logit = static_cast<float>(z);
  }
  for (const auto& [token, bias] : adjust.bias)
    if (bias == kNeverBias) logits[static_cast<size_t>(token)] = kMasked;
  for (const int32_t token : masked) logits[static_cast<size_t>(token)] = kMasked;
}

void take_top(std::span<const float> logits, size_t n_top, std::vector<TokenLogprob>& top,
              double* log_total) {
  top.clear();
  float largest = kMasked;
  for (size_t i = 0; i < logits.size(); ++i) {
    largest = std::max(largest, logits[i]);
    const TokenLogprob one{static_cast<int32_t>(i), logits[i]};
    if (top.size() < n_top) {
      top.push_back(one);
      std::push_heap(top.begin(), top.end(), is_likelier);
    } else if (n_top > 0 && is_likelier(one, top.front())) {
      std::pop_heap(top.begin(), top.end(), is_likelier);
      top.back() = one;
      std::push_heap(top.begin(), top.end(), is_likelier);
    }
  }
  std::sort(top.begin(), top.end(), is_likelier);
  double total = 0;
  for (const float z : logits) total += std::exp(double{z} - double{largest});
  *log_total = double{largest} + std::log(total);
  for (TokenLogprob& one : top) one.logprob = static_cast<float>(double{one.logprob} - *log_total);
}

}  // namespace roost
