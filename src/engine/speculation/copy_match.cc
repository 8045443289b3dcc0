#include "engine/speculation/copy_match.h"

#include <algorithm>
#include <bit>

namespace roost {

namespace {

constexpr int32_t kNone = 0;  // no run ends at index 0

}  // namespace

CopyMatch::CopyMatch(int64_t n_tokens_max)
    : newest_(std::bit_ceil(static_cast<size_t>(std::max<int64_t>(2 * n_tokens_max, 16))), kNone) {}

size_t CopyMatch::place_of(std::span<const int32_t> gram) const {
  uint64_t hash = 0;
  for (const int32_t token : gram) {
    hash = (hash ^ static_cast<uint64_t>(token)) * 0x9E3779B97F4A7C15u;
    hash ^= hash >> 29;
  }
  return static_cast<size_t>(hash) & (newest_.size() - 1);
}

// A run is entered when one more token is known, so that the newest run of all, for which a
// continuation is wanted, does not find itself.
void CopyMatch::extend(std::span<const int32_t> tokens) {
  const auto n = static_cast<int64_t>(tokens.size());
  for (int64_t end = std::max<int64_t>(n_known_, kMatchTokens); end < n; ++end)
    newest_[place_of(tokens.subspan(static_cast<size_t>(end - kMatchTokens), kMatchTokens))] =
        static_cast<int32_t>(end);
  n_known_ = std::max(n_known_, n);
}

int32_t CopyMatch::propose(std::span<const int32_t> tokens, std::span<int32_t> out) const {
  if (tokens.size() < kMatchTokens) return 0;
  const std::span<const int32_t> gram = tokens.last(kMatchTokens);
  const auto end = static_cast<size_t>(newest_[place_of(gram)]);
  if (end < kMatchTokens || end >= tokens.size()) return 0;
  // Another run may have the same hash.
  if (!std::equal(gram.begin(), gram.end(),
                  tokens.begin() + static_cast<std::ptrdiff_t>(end) - kMatchTokens))
    return 0;
  const size_t period = tokens.size() - end;  // behind the known tokens the copy repeats itself
  for (size_t i = 0; i < out.size(); ++i) out[i] = tokens[end + i % period];
  return static_cast<int32_t>(out.size());
}

}  // namespace roost
