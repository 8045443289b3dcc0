#include "text/bpe.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>

#include "base/random.h"

namespace roost {
namespace {

// Tokens are the bytes themselves, merged ones follow from 256 on.
std::array<Token, 256> bytes_as_tokens() {
  std::array<Token, 256> tokens{};
  for (int i = 0; i < 256; ++i) tokens[static_cast<size_t>(i)] = i;
  return tokens;
}

// The rule as it is written: look at all pairs, do the lowest and leftmost, until none is left.
std::vector<Token> merge_by_the_rule(const std::vector<Merge>& merges, std::string_view piece) {
  std::vector<Token> tokens;
  for (const char c : piece) tokens.push_back(static_cast<unsigned char>(c));
  std::map<std::pair<Token, Token>, size_t> rank_of;
  for (size_t rank = 0; rank < merges.size(); ++rank)
    rank_of[{merges[rank].left, merges[rank].right}] = rank;
  while (true) {
    size_t best_rank = merges.size();
    size_t best = 0;
    for (size_t i = 0; i + 1 < tokens.size(); ++i) {
      const auto rank = rank_of.find({tokens[i], tokens[i + 1]});
      if (rank != rank_of.end() && rank->second < best_rank) {
        best_rank = rank->second;
        best = i;
      }
    }
    if (best_rank == merges.size()) return tokens;
    tokens[best] = merges[best_rank].merged;
    tokens.erase(tokens.begin() + static_cast<ptrdiff_t>(best) + 1);
  }
}

struct Rules {
  std::vector<Merge> merges;
  Bpe bpe;
};

// Random merges over a small alphabet, so that pieces are full of overlapping choices. Different
// pairs may merge to the same token.
Rules random_rules(SeededRandom& random, int n_letters, int n_merges) {
  std::vector<std::string> texts;
  for (int i = 0; i < 256; ++i) texts.emplace_back(1, static_cast<char>(i));
  std::vector<Token> alive;
  for (int i = 0; i < n_letters; ++i) alive.push_back('a' + i);
  std::vector<Merge> merges;
  std::map<std::pair<Token, Token>, bool> is_taken;
  for (int i = 0; i < n_merges; ++i) {
    const Token left = alive[random.next_u64() % alive.size()];
    const Token right = alive[random.next_u64() % alive.size()];
    if (is_taken[{left, right}]) continue;
    is_taken[{left, right}] = true;
    const std::string text = texts[static_cast<size_t>(left)] + texts[static_cast<size_t>(right)];
    const auto known = std::find(texts.begin(), texts.end(), text);
    const auto merged = static_cast<Token>(known - texts.begin());
    if (known == texts.end()) {
      texts.push_back(text);
      alive.push_back(merged);
    }
    merges.push_back({left, right, merged});
  }
  return {merges, Bpe(bytes_as_tokens(), merges, random.next_u64())};
}

TEST(Bpe, does_the_lowest_merge_first_and_of_equal_ones_the_leftmost) {
  const std::vector<Merge> merges = {
      {'b', 'c', 256}, {'a', 'a', 257}, {'a', 256, 258}, {257, 'a', 259}};
  const Bpe bpe(bytes_as_tokens(), merges, 1);
  Bpe::Scratch scratch(100);
  const auto tokens_of = [&](std::string_view piece) {
    std::vector<Token> out;
    bpe.encode(piece, scratch, out);
    return out;
  };
  EXPECT_EQ(tokens_of(""), (std::vector<Token>{}));
  EXPECT_EQ(tokens_of("x"), (std::vector<Token>{'x'}));
  EXPECT_EQ(tokens_of("abc"), (std::vector<Token>{258}));
  EXPECT_EQ(tokens_of("aabc"), (std::vector<Token>{257, 256}));
  EXPECT_EQ(tokens_of("aaa"), (std::vector<Token>{259}));
  EXPECT_EQ(tokens_of("aaaaa"), (std::vector<Token>{257, 259}));
}

TEST(Bpe, agrees_with_the_rule_on_random_merges_and_pieces) {
  SeededRandom random(3);
  int n_pieces = 0;
  for (int round = 0; round < 60; ++round) {
    const Rules rules = random_rules(random, 2 + round % 3, 5 + round * 3);
    Bpe::Scratch scratch(1000);
    for (int i = 0; i < 60; ++i) {
      std::string piece;
      for (uint64_t n = random.next_u64() % 40; n > 0; --n)
        piece += static_cast<char>('a' + random.next_u64() % 4);
      const std::vector<Token> wanted = merge_by_the_rule(rules.merges, piece);
      for (int repeat = 0; repeat < 2; ++repeat) {  // the second time it may be a piece met before
        std::vector<Token> out = {7};
        rules.bpe.encode(piece, scratch, out);
        ASSERT_EQ(out.front(), 7);
        ASSERT_EQ(std::vector<Token>(out.begin() + 1, out.end()), wanted) << piece;
      }
      n_pieces += 1;
    }
  }
  EXPECT_EQ(n_pieces, 3600);
}

TEST(Bpe, pieces_met_before_are_told_apart_by_every_byte) {
  SeededRandom random(4);
  const Rules rules = random_rules(random, 3, 60);
  Bpe::Scratch small(1);  // one place for all pieces
  for (int i = 0; i < 2000; ++i) {
    std::string piece;
    for (uint64_t n = random.next_u64() % 18; n > 0; --n)
      piece += static_cast<char>('a' + random.next_u64() % 2);
    if (i % 3 == 0) piece += '\0';
    std::vector<Token> out;
    rules.bpe.encode(piece, small, out);
    ASSERT_EQ(out, merge_by_the_rule(rules.merges, piece)) << piece;
  }
}

TEST(Bpe, a_piece_of_a_megabyte_takes_no_quadratic_time) {
  const std::vector<Merge> merges = {{'a', 'a', 256}, {256, 256, 257}, {257, 257, 258}};
  const Bpe bpe(bytes_as_tokens(), merges, 1);
  Bpe::Scratch scratch(0);
  std::vector<Token> out;
  bpe.encode(std::string(1 << 20, 'a'), scratch, out);
  EXPECT_EQ(out, std::vector<Token>((1 << 20) / 8, 258));
}

}  // namespace
}  // namespace roost
