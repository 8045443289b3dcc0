// The walk simulation: how a drafter would have fared on a text that is known, round by round, as
// an engine would have gone. An engine's accept length on the same text must equal it.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace roost {

// Drafts behind the anchor at `position`.
using DraftAt = std::function<std::vector<int32_t>(int32_t position)>;

// sequence: prompt and reply, an end token included. The first anchor is the reply's first token,
// at n_prompt; each round goes on behind its accepted drafts and the one token that the target
// adds. Returns the accepted drafts of every round.
std::vector<int32_t> simulate_walk(std::span<const int32_t> sequence, int32_t n_prompt,
                                   const DraftAt& draft);

}  // namespace roost
