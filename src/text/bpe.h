// Byte-pair merges: the bytes of one piece to token ids.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "text/tokenizer.h"

namespace roost {

struct Merge {
  Token left = 0, right = 0;
  Token merged = 0;
};

// Pair of ids to rank: open addressing, seeded so that no choice of ids makes it slow.
class PairTable {
 public:
  PairTable() = default;
  // The rank of a merge is its place; at most one merge of a pair.
  PairTable(const std::vector<Merge>& merges, uint64_t seed);
  static constexpr uint32_t kNoRank = ~uint32_t{0};
  uint32_t rank_of(Token left, Token right) const;  // kNoRank if the pair does not merge

 private:
  struct Slot {
    uint64_t pair = kNoPair;
    uint32_t rank = kNoRank;
  };
  static constexpr uint64_t kNoPair = ~uint64_t{0};
  size_t place_of(uint64_t pair) const;

  uint64_t seed_ = 0;
  std::vector<Slot> slots_;  // a power of two, at most half of them taken
};

class Bpe {
 public:
  Bpe() = default;
  // byte_tokens: the token of each single byte. merges: in order of rank, no pair twice.
  Bpe(const std::array<Token, 256>& byte_tokens, std::vector<Merge> merges, uint64_t seed);

  // Working memory of encode, kept by the caller from piece to piece, for one Bpe and one thread.
  class Scratch {
   public:
    explicit Scratch(size_t n_text_bytes);  // about as many as will be encoded with it

   private:
    friend class Bpe;
    // A short piece met before, and its tokens. Text repeats its words: this takes most of the work
    // away. A piece has one place only, so the memory is bounded and nothing is searched.
    struct Met {
      std::array<char, 15> bytes{};
      uint8_t n_bytes = 0;  // 0: the place is free
      std::array<Token, 7> tokens{};
      uint32_t n_tokens = 0;
    };
    static constexpr size_t kMetPlacesMax = 8192;  // 384 KB: more fall out of the nearer caches
    Met* place_of(std::string_view piece);         // null for a piece that is too long

    std::vector<Met> met;  // a power of two
    struct Symbol {
      Token token;
      uint32_t previous, next;  // places in the list; kNone at the ends
      uint32_t rank;            // of the merge with the next symbol
    };
    std::vector<Symbol> symbols;
    std::vector<uint64_t> heap;  // rank and place of a merge that may be done, lowest first
  };

  // Appends the tokens of a piece: the merge of lowest rank is done first, of equal ones the
  // leftmost, until none is left. Takes n log n steps for n bytes.
  void encode(std::string_view piece, Scratch& scratch, std::vector<Token>& out) const;

 private:
  static constexpr uint32_t kNone = ~uint32_t{0};
  void encode_unmet(std::string_view piece, Scratch& scratch, std::vector<Token>& out) const;
  void merge_all(Scratch& scratch) const;

  std::array<Token, 256> byte_tokens_{};
  std::vector<Merge> merges_;
  PairTable ranks_;
};

}  // namespace roost
