// Tokens as a tree of their bytes, and masks of token ids.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "grammar/byte_dfa.h"
#include "grammar/follow_bytes.h"

namespace roost {

// A bit for each id: word id / 32, bit id % 32. Set: the id may be drawn.
using TokenMask = std::vector<uint32_t>;

inline void allow_token(std::span<uint32_t> mask, int32_t id) {
  mask[static_cast<size_t>(id) / 32] |= uint32_t{1} << (id % 32);
}
inline void forbid_token(std::span<uint32_t> mask, int32_t id) {
  mask[static_cast<size_t>(id) / 32] &= ~(uint32_t{1} << (id % 32));
}
inline bool is_allowed(std::span<const uint32_t> mask, int32_t id) {
  return ((mask[static_cast<size_t>(id) / 32] >> (id % 32)) & 1) != 0;
}
inline size_t mask_words(int64_t n_tokens) {
  return static_cast<size_t>(n_tokens + 31) / 32;
}

// Nodes in the order of a walk; the children of a node stand behind it, up to its end.
class TokenTree {
 public:
  struct Node {
    uint8_t byte = 0;
    uint16_t depth = 0;        // bytes before this one
    uint32_t end = 0;          // the first node that is not below this one
    int32_t first_token = -1;  // whose bytes end here; further ones by next_token
  };

  // Tokens without bytes are left out. n_skipped: bytes that stand in front of those given here.
  TokenTree(std::span<const std::string_view> bytes_of, std::span<const int32_t> ids,
            size_t n_skipped = 0);

  const std::vector<Node>& nodes() const { return nodes_; }
  size_t n_bytes() const {
    return nodes_.size() * sizeof(Node) + next_token_.size() * sizeof(int32_t);
  }
  size_t n_skipped() const { return n_skipped_; }
  int32_t next_token(int32_t id) const { return next_token_[static_cast<size_t>(id)]; }
  size_t depth_max() const { return depth_max_; }

 private:
  std::vector<Node> nodes_;
  std::vector<int32_t> next_token_;  // of equal bytes; -1: none
  size_t depth_max_ = 0, n_skipped_ = 0;
};

// Nodes [begin, end) of a tree: all of it, or all that is below one node. depth: of the first.
struct TreePart {
  const TokenTree* tree = nullptr;
  uint32_t begin = 0, end = 0;
  uint16_t depth = 0;

  friend auto operator<=>(const TreePart&, const TreePart&) = default;
};
TreePart whole_of(const TokenTree& tree);

// What one state of an automaton says about the tokens of a part of a tree, whose bytes begin with
// the part.
struct StateMask {
  bool is_small = false;  // so few nodes are reached that a walk costs little: nothing else is here
  TokenMask inside;       // tokens that the automaton reads to their end
  // Of the tree of all tokens alone: those inside that hold a quote or a backslash.
  std::shared_ptr<const TokenTree> marked;
  // Those that it accepts the beginning of, and no more, and whose rest may begin something; null
  // where nobody asked for them.
  std::shared_ptr<const TokenTree> exits;

  size_t n_bytes() const;
};

// Which of them.
struct MaskKey {
  const ByteDfa* dfa = nullptr;
  int32_t state = 0;
  TreePart part;
  bool has_exits = true;  // false: what follows the automaton is the end

  friend auto operator<=>(const MaskKey&, const MaskKey&) = default;
};
using MaskMap = std::map<MaskKey, std::shared_ptr<const StateMask>>;

// The tokens of a model that have text. Immutable but for a memory of masks; any thread.
class TokenVocabulary {
 public:
  // Parts of a tree of more nodes than this are not walked frame by frame: a node takes a walk
  // about 0.1 us, and a mask must be there in less than a millisecond.
  static constexpr size_t kWalkNodesMax = 1000;

  // bytes_of[id]: the token's bytes; empty for ids that a grammar never allows (control tokens).
  explicit TokenVocabulary(std::vector<std::string> bytes_of,
                           size_t walk_nodes_max = kWalkNodesMax);

  int64_t n_tokens() const { return static_cast<int64_t>(bytes_of_.size()); }
  std::string_view bytes_of(int32_t id) const { return bytes_of_[static_cast<size_t>(id)]; }
  const TokenTree& tree() const { return *tree_; }
  // Code points that begin in a token, at most: bytes that are no continuation.
  uint16_t n_code_points_max() const { return n_code_points_max_; }
  // Tokens of at most n code points without a backslash or a quote: with one, what they mean to the
  // length of a JSON string is not in their number of code points. Null: there is none.
  const TokenMask* plain_up_to(uint32_t n) const;

  size_t walk_nodes_max() const { return walk_nodes_max_; }

  // follow: what may stand behind the automaton begins with one of these bytes; it bounds the
  // exits.
  std::shared_ptr<const StateMask> compute_mask(const MaskKey& key, const ByteSet& follow) const;
  // The same, remembered for as long as the vocabulary lives: for automata that live as long, over
  // the whole tree of all tokens.
  std::shared_ptr<const StateMask> lasting_mask(const MaskKey& key) const;

 private:
  std::shared_ptr<const TokenTree> tree_of(const std::vector<int32_t>& ids, size_t n_skipped) const;

  std::vector<std::string> bytes_of_;
  std::shared_ptr<const TokenTree> tree_;
  const size_t walk_nodes_max_;
  uint16_t n_code_points_max_ = 0;
  std::vector<int32_t> with_string_marks_;  // in the order of the tree
  std::map<uint32_t, TokenMask> plain_;     // by the longest in it
  mutable std::mutex mutex_;
  mutable MaskMap masks_;
};

}  // namespace roost
