// Continuations that a stream has already written: the tokens behind the last place where its
// newest tokens stood before.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace roost {

class CopyMatch {
 public:
  // Tokens that must repeat before a continuation is proposed: fewer repeat by chance.
  static constexpr int32_t kMatchTokens = 8;

  // Room for a sequence of that many tokens; the only allocation.
  explicit CopyMatch(int64_t n_tokens_max);

  // Takes in tokens behind those known; tokens is the whole sequence, of which a prefix is known
  // and never changes.
  void extend(std::span<const int32_t> tokens);

  // Writes up to out.size() tokens that followed the last earlier occurrence of the newest
  // kMatchTokens; returns how many. The continuation may run into what it continues.
  int32_t propose(std::span<const int32_t> tokens, std::span<int32_t> out) const;

 private:
  size_t place_of(std::span<const int32_t> gram) const;
  // By hash of a run of kMatchTokens: the index behind the newest run but the last one of its hash.
  std::vector<int32_t> newest_;
  int64_t n_known_ = 0;
};

}  // namespace roost
