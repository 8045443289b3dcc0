#include "text/bpe.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <functional>

#include "base/check.h"

namespace roost {
namespace {

uint64_t pair_of(Token left, Token right) {
  return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
}

}  // namespace

PairTable::PairTable(const std::vector<Merge>& merges, uint64_t seed)
    : seed_(seed), slots_(std::bit_ceil(2 * merges.size() + 2)) {
  for (size_t rank = 0; rank < merges.size(); ++rank) {
    const uint64_t pair = pair_of(merges[rank].left, merges[rank].right);
    Slot& slot = slots_[place_of(pair)];
    ROOST_CHECK(slot.pair == kNoPair);
    slot = {pair, static_cast<uint32_t>(rank)};
  }
}

// The slot that holds the pair, or the free one where it would be.
size_t PairTable::place_of(uint64_t pair) const {
  uint64_t hash = (pair ^ seed_) * 0x9E3779B97F4A7C15u;
  hash = (hash ^ hash >> 32) * (seed_ | 1);
  const size_t mask = slots_.size() - 1;
  size_t place = static_cast<size_t>(hash >> 32) & mask;
  while (slots_[place].pair != pair && slots_[place].pair != kNoPair) place = (place + 1) & mask;
  return place;
}

uint32_t PairTable::rank_of(Token left, Token right) const {
  return slots_[place_of(pair_of(left, right))].rank;
}

Bpe::Bpe(const std::array<Token, 256>& byte_tokens, std::vector<Merge> merges, uint64_t seed)
    : byte_tokens_(byte_tokens), merges_(std::move(merges)), ranks_(merges_, seed) {}

Bpe::Scratch::Scratch(size_t n_text_bytes)
    : met(std::bit_ceil(std::clamp<size_t>(n_text_bytes / 16, 1, kMetPlacesMax))) {}

Bpe::Scratch::Met* Bpe::Scratch::place_of(std::string_view piece) {
  if (piece.size() > Met{}.bytes.size()) return nullptr;
  char padded[16] = {};
  std::memcpy(padded, piece.data(), piece.size());
  uint64_t words[2];
  std::memcpy(words, padded, sizeof words);
  const uint64_t hash = (words[0] * 0x9E3779B97F4A7C15u ^ words[1]) * 0xD6E8FEB86659FD93u;
  return &met[(hash ^ hash >> 32) >> 20 & (met.size() - 1)];
}

void Bpe::encode(std::string_view piece, Scratch& scratch, std::vector<Token>& out) const {
  if (piece.size() == 1) {
    out.push_back(byte_tokens_[static_cast<unsigned char>(piece[0])]);
    return;
  }
  Scratch::Met* met = scratch.place_of(piece);
  if (met == nullptr) return encode_unmet(piece, scratch, out);
  if (std::string_view(met->bytes.data(), met->n_bytes) != piece) {
    const size_t n_before = out.size();
    encode_unmet(piece, scratch, out);
    const size_t n_tokens = out.size() - n_before;
    if (n_tokens > met->tokens.size()) return;
    std::copy(piece.begin(), piece.end(), met->bytes.begin());
    met->n_bytes = static_cast<uint8_t>(piece.size());
    met->n_tokens = static_cast<uint32_t>(n_tokens);
    std::copy_n(out.end() - static_cast<ptrdiff_t>(n_tokens), n_tokens, met->tokens.begin());
    return;
  }
  out.insert(out.end(), met->tokens.begin(), met->tokens.begin() + met->n_tokens);
}

void Bpe::encode_unmet(std::string_view piece, Scratch& scratch, std::vector<Token>& out) const {
  if (piece.empty()) return;
  ROOST_CHECK(piece.size() < kNone);
  auto& symbols = scratch.symbols;
  auto& heap = scratch.heap;
  symbols.resize(piece.size());
  heap.clear();
  const auto n = static_cast<uint32_t>(piece.size());
  for (uint32_t i = 0; i < n; ++i) {
    const Token token = byte_tokens_[static_cast<unsigned char>(piece[i])];
    symbols[i] = {token, i == 0 ? kNone : i - 1, i + 1 == n ? kNone : i + 1, PairTable::kNoRank};
  }
  for (uint32_t i = 0; i + 1 < n; ++i) {
    symbols[i].rank = ranks_.rank_of(symbols[i].token, symbols[i + 1].token);
    if (symbols[i].rank != PairTable::kNoRank)
      heap.push_back(static_cast<uint64_t>(symbols[i].rank) << 32 | i);
  }
  std::make_heap(heap.begin(), heap.end(), std::greater<>());
  merge_all(scratch);
  for (uint32_t i = 0; i != kNone; i = symbols[i].next) out.push_back(symbols[i].token);
}

void Bpe::merge_all(Scratch& scratch) const {
  auto& symbols = scratch.symbols;
  auto& heap = scratch.heap;
  const auto update_rank = [&](uint32_t i) {
    Scratch::Symbol& symbol = symbols[i];
    symbol.rank = symbol.next == kNone ? PairTable::kNoRank
                                       : ranks_.rank_of(symbol.token, symbols[symbol.next].token);
    if (symbol.rank == PairTable::kNoRank) return;
    heap.push_back(static_cast<uint64_t>(symbol.rank) << 32 | i);
    std::push_heap(heap.begin(), heap.end(), std::greater<>());
  };
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end(), std::greater<>());
    const auto rank = static_cast<uint32_t>(heap.back() >> 32);
    const auto i = static_cast<uint32_t>(heap.back());
    heap.pop_back();
    Scratch::Symbol& left = symbols[i];
    if (left.rank != rank) continue;  // one of the two has merged otherwise since
    Scratch::Symbol& right = symbols[left.next];
    left.token = merges_[rank].merged;
    left.next = right.next;
    if (right.next != kNone) symbols[right.next].previous = i;
    right.rank = PairTable::kNoRank;  // out of the list: no entry of the heap fits it any more
    update_rank(i);
    if (left.previous != kNone) update_rank(left.previous);
  }
}

}  // namespace roost
