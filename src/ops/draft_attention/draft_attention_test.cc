#include "ops/draft_attention/draft_attention.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "tests/contract/contract.h"
#include "tests/contract/machine.h"

namespace roost {
namespace {

using namespace contract;
using Values = std::vector<double>;

struct Block {
  int32_t n_rows, position, context_begin;
  std::vector<int32_t> pages;
};

struct Case {
  std::string name;
  int64_t group, kv_heads, dim, n_pages, window;
  bool is_causal;
  std::vector<Block> blocks;
  Values q, k, v, q_weight, k_weight, rope, k_pages, v_pages;
  float eps = 1e-6f;

  int64_t n_rows() const {
    int64_t n = 0;
    for (const Block& block : blocks) n += block.n_rows;
    return n;
  }
};

DraftAttention arrange(const Case& c, Memory& memory) {
  const int64_t n_rows = c.n_rows(), kv_width = c.kv_heads * c.dim;
  const Shape pages{c.n_pages, c.kv_heads, kPageTokens, c.dim};
  std::vector<DraftSpan> spans;
  int32_t first_row = 0;
  for (const Block& block : c.blocks) {
    spans.push_back({first_row, block.n_rows, block.position, block.context_begin,
                     memory.list(block.pages).data()});
    first_row += block.n_rows;
  }
  return {.q = memory.input(DType::kBF16, {n_rows, c.group * kv_width}, c.q),
          .k = memory.input(DType::kBF16, {n_rows, kv_width}, c.k),
          .v = memory.input(DType::kBF16, {n_rows, kv_width}, c.v),
          .q_weight = memory.input(DType::kF32, {c.dim}, c.q_weight),
          .k_weight = memory.input(DType::kF32, {c.dim}, c.k_weight),
          .rope = memory.input(DType::kF32, {n_rows, c.dim / 2, 2}, c.rope),
          .k_pages = memory.input(DType::kBF16, pages, c.k_pages),
          .v_pages = memory.input(DType::kBF16, pages, c.v_pages),
          .out = memory.output(DType::kBF16, {n_rows, c.group * kv_width}),
          .spans = memory.list(spans),
          .window = c.window,
          .is_causal = c.is_causal,
          .scale = static_cast<float>(1 / std::sqrt(static_cast<double>(c.dim))),
          .eps = c.eps};
}

// |n_i| + |n_pair| of each element of a normalized head.
Values mixed_magnitudes(const Case& c, const Values& heads, int64_t at, const Values& weight) {
  double squares = 0;
  for (int64_t i = 0; i < c.dim; ++i)
    squares += heads[static_cast<size_t>(at + i)] * heads[static_cast<size_t>(at + i)];
  const double scale = 1 / std::sqrt(squares / static_cast<double>(c.dim) + c.eps);
  Values out(static_cast<size_t>(c.dim));
  const int64_t half = c.dim / 2;
  for (int64_t i = 0; i < half; ++i) {
    double sum = 0;
    for (const int64_t e : {i, i + half})
      sum += std::abs(heads[static_cast<size_t>(at + e)] * scale * weight[static_cast<size_t>(e)]);
    out[static_cast<size_t>(i)] = out[static_cast<size_t>(i + half)] = sum;
  }
  return out;
}

// What the bound of one row and head is made of.
struct Reach {
  double score = 0, value = 0;  // A and max|V|
  int64_t n_keys = 0;

  void see(const Values& query, const Values& key, double factor, std::span<const double> values) {
    double sum = 0;
    for (size_t i = 0; i < key.size(); ++i) sum += query[i] * key[i];
    score = std::max(score, sum * factor);
    for (const double v : values) value = std::max(value, std::abs(v));
    ++n_keys;
  }
};

Reach reach_of(const Case& c, const DraftAttention& op, const DraftSpan& span, int64_t j,
               int64_t head) {
  const int64_t t = span.first_row + j, g = head / c.group, kv_width = c.kv_heads * c.dim;
  const auto dim = static_cast<size_t>(c.dim);
  const Values query = mixed_magnitudes(c, c.q, t * c.group * kv_width + head * c.dim, c.q_weight);
  const double factor = op.scale * 1.4426950408889634;
  Reach reach;
  for (int64_t at = span.context_begin; at < span.position; ++at) {
    if (c.window > 0 && at <= span.position + j - c.window) continue;
    const int64_t page = span.page_table[at / kPageTokens];
    const auto from =
        static_cast<size_t>(((page * c.kv_heads + g) * kPageTokens + at % kPageTokens) * c.dim);
    Values key(c.k_pages.begin() + static_cast<std::ptrdiff_t>(from),
               c.k_pages.begin() + static_cast<std::ptrdiff_t>(from + dim));
    for (double& k : key) k = std::abs(k);
    reach.see(query, key, factor, std::span(c.v_pages).subspan(from, dim));
  }
  for (int64_t other = 0; other < (c.is_causal ? j + 1 : span.n_rows); ++other) {
    const int64_t from = (span.first_row + other) * kv_width + g * c.dim;
    reach.see(query, mixed_magnitudes(c, c.k, from, c.k_weight), factor,
              std::span(c.v).subspan(static_cast<size_t>(from), dim));
  }
  return reach;
}

void judge(const Case& c, const DraftAttention& got, const ReferenceRules& rules, Judge& judge) {
  Memory wide(Memory::Mode::kWide);
  const DraftAttention exact = arrange(c, wide);
  draft_attention_reference(exact, rules);
  Values bounds;
  for (const DraftSpan& span : exact.spans) {
    for (int64_t j = 0; j < span.n_rows; ++j) {
      for (int64_t head = 0; head < c.group * c.kv_heads; ++head) {
        const Reach reach = reach_of(c, exact, span, j, head);
        const double shares = static_cast<double>(2 * c.dim + 40) * reach.score +
                              static_cast<double>(2 * reach.n_keys + 64);
        bounds.insert(bounds.end(), static_cast<size_t>(c.dim), shares * 0x1p-23 * reach.value);
      }
    }
  }
  judge.near("out", got.out, exact.out, [&](int64_t i) {
    return 0x1p-8 * std::abs(exact.out.get(i)) + bounds[static_cast<size_t>(i)];
  });
}

const Suite<DraftAttention, Case> kSuite{.name = [](const Case& c) { return c.name; },
                                         .arrange = arrange,
                                         .judge = judge,
                                         .n_rows = nullptr,
                                         .select = nullptr,
                                         .row_outputs = nullptr};

struct Shape4 {
  int64_t group, kv_heads, dim;
};

// Blocks take the pages in falling order, so that no table is the identity. What no block may see
// is NaN.
Case make(const Shape4& s, int64_t window, bool is_causal, std::vector<Block> blocks, Fill fill,
          uint64_t seed) {
  Case c{.name = name_of(fill) + " " + std::to_string(s.group) + "x" + std::to_string(s.kv_heads) +
                 "x" + std::to_string(s.dim) + " window " + std::to_string(window) +
                 (is_causal ? " causal" : ""),
         .group = s.group,
         .kv_heads = s.kv_heads,
         .dim = s.dim,
         .n_pages = 1,
         .window = window,
         .is_causal = is_causal,
         .blocks = std::move(blocks)};
  for (Block& block : c.blocks) c.n_pages += (block.position + kPageTokens - 1) / kPageTokens;
  auto next = static_cast<int32_t>(c.n_pages - 1);
  const int64_t row_size = c.dim, page_size = c.kv_heads * kPageTokens * row_size;
  c.k_pages.assign(static_cast<size_t>(c.n_pages * page_size), NAN);
  c.v_pages = c.k_pages;
  for (Block& block : c.blocks) {
    while (static_cast<int64_t>(block.pages.size()) * kPageTokens < block.position)
      block.pages.push_back(next--);
    for (int32_t at = block.context_begin; at < block.position; ++at) {
      if (window > 0 && at <= block.position - window) continue;
      for (int64_t g = 0; g < c.kv_heads; ++g) {
        const int64_t page = block.pages[static_cast<size_t>(at / kPageTokens)];
        const int64_t to = ((page * c.kv_heads + g) * kPageTokens + at % kPageTokens) * c.dim;
        const Values k = values(Fill::kNormal, c.dim, seed + 1000 + static_cast<uint64_t>(to));
        const Values v = values(fill, c.dim, seed + 2000 + static_cast<uint64_t>(to));
        std::copy(k.begin(), k.end(), c.k_pages.begin() + to);
        std::copy(v.begin(), v.end(), c.v_pages.begin() + to);
      }
    }
  }
  const int64_t n_rows = c.n_rows(), kv_width = c.kv_heads * c.dim;
  c.q = values(fill, n_rows * c.group * kv_width, seed);
  c.k = values(fill, n_rows * kv_width, seed + 1);
  c.v = values(fill, n_rows * kv_width, seed + 2);
  for (const double w : values(Fill::kNormal, c.dim, seed + 3))
    c.q_weight.push_back(static_cast<float>(1 + w / 3));
  for (const double w : values(Fill::kNormal, c.dim, seed + 4))
    c.k_weight.push_back(static_cast<float>(1 + w / 3));
  for (const double angle : uniform(-4, 4, n_rows * c.dim / 2, seed + 5)) {
    c.rope.push_back(static_cast<float>(std::cos(angle)));
    c.rope.push_back(static_cast<float>(std::sin(angle)));
  }
  return c;
}

std::vector<Case> cases() {
  std::vector<Case> all;
  uint64_t seed = 1;
  for (const Fill fill : kFills) {
    all.push_back(make({1, 1, 2}, 0, false, {{1, 0, 0, {}}, {2, 5, 0, {}}}, fill, seed += 10));
    all.push_back(
        make({2, 2, 64}, 40, false, {{16, 100, 0, {}}, {3, 20, 0, {}}}, fill, seed += 10));
    all.push_back(
        make({3, 1, 18}, 64, false, {{7, 130, 100, {}}, {2, 64, 64, {}}}, fill, seed += 10));
    all.push_back(make({4, 2, 32}, 0, true, {{5, 129, 3, {}}}, fill, seed += 10));
    all.push_back(
        make({2, 1, 34}, 8, true, {{16, 63, 0, {}}, {4, 200, 190, {}}}, fill, seed += 10));
  }
  return all;
}

std::vector<Fault<DraftAttention, Case>> faults() {
  using Op = DraftAttention;
  return {
      {"eps left out", [](Case& c) { c.eps = 1e-30f; }},
      {"turned the other way",
       [](Case& c) {
         for (size_t i = 1; i < c.rope.size(); i += 2) c.rope[i] = -c.rope[i];
       }},
      {"rope of the next row",
       [](Case& c) { std::rotate(c.rope.begin(), c.rope.begin() + c.dim, c.rope.end()); }},
      {"window one token wider", [](Case& c) { c.window += c.window > 0; }},
      {"window one token narrower", [](Case& c) { c.window -= c.window > 1; }},
      {"causal where it is not", [](Case& c) { c.is_causal = true; }},
      {"not causal where it is", [](Case& c) { c.is_causal = false; }},
      {"first token of the context left out",
       [](Case& c) {
         for (Block& b : c.blocks) b.context_begin += b.context_begin < b.position;
       }},
      {"rows that were never kept are read",
       [](Case& c) {
         for (Block& b : c.blocks) b.context_begin -= b.context_begin > 0;
       }},
      {"stale page",
       [](Case& c) {
         if (!c.blocks[0].pages.empty()) c.blocks[0].pages.back() = 0;
       }},
      {"query weight for the key", [](Case& c) { c.k_weight = c.q_weight; }},
      {"values of the next row",
       [](Case& c) { std::rotate(c.v.begin(), c.v.begin() + c.kv_heads * c.dim, c.v.end()); }},
      {"heads swapped", nullptr,
       [](const Op& op) {
         if (op.q.dim(1) == op.dim()) return;
         auto* bits = op.out.as<uint16_t>();
         std::swap_ranges(bits, bits + op.dim(), bits + op.dim());
       }},
      {"one row too many", nullptr,
       [](const Op& op) { op.out.data[op.out.n_bytes()] = std::byte{0}; }},
  };
}

class DraftAttentionTest : public testing::Test {
 protected:
  Machine one_{1}, two_{2};
  std::vector<Backend<DraftAttention>> backends_{one_.backend<DraftAttention>(),
                                                 two_.backend<DraftAttention>()};
};

TEST_F(DraftAttentionTest, keeps_the_contract) {
  double worst = 0;
  EXPECT_EQ(kernel_keeps_contract(kSuite, cases(), backends_, &worst), "");
  EXPECT_GT(worst, 0.2) << "the bound is far too wide";
  EXPECT_EQ(bits_are_the_rows_own(kSuite, cases(), backends_), "");
}

TEST_F(DraftAttentionTest, keeps_the_contract_at_a_served_shape) {
  const Case c = make({4, 2, 128}, 2048, false, {{8, 2500, 0, {}}}, Fill::kNormal, 5);
  EXPECT_EQ(kernel_keeps_contract(kSuite, {c}, {backends_[1]}), "");
}

TEST_F(DraftAttentionTest, gives_a_block_the_same_bits_alone) {
  const Case whole = make({2, 2, 32}, 100, false, {{5, 300, 0, {}}, {16, 40, 0, {}}, {2, 0, 0, {}}},
                          Fill::kNormal, 9);
  Memory memory;
  const DraftAttention want = arrange(whole, memory);
  backends_[0].run(want);
  for (size_t b = 0; b < want.spans.size(); ++b) {
    Memory other;
    DraftAttention op = arrange(whole, other);
    op.spans = op.spans.subspan(b, 1);
    backends_[1].run(op);
    for (int32_t row = 0; row < op.spans[0].n_rows; ++row) {
      const int64_t t = op.spans[0].first_row + row;
      ASSERT_EQ(row_difference(op.out, t, want.out, t), "");
    }
  }
}

// Row 0 sees a token window - 1 back and not the one before; the edge of row j lies j further on.
TEST_F(DraftAttentionTest, has_its_window_where_the_formula_says) {
  const int32_t position = 150, window = 70;
  const Case c = make({1, 1, 32}, window, false, {{4, position, 0, {}}}, Fill::kNormal, 21);
  Memory memory;
  const DraftAttention want = arrange(c, memory);
  backends_[0].run(want);
  for (int32_t back = window - 5; back < window; ++back) {
    Case other = c;
    const int32_t at = position - back;
    const int64_t page = c.blocks[0].pages[static_cast<size_t>(at / kPageTokens)];
    other.v_pages[static_cast<size_t>((page * kPageTokens + at % kPageTokens) * c.dim)] += 64;
    Memory changed;
    const DraftAttention op = arrange(other, changed);
    backends_[0].run(op);
    for (int32_t row = 0; row < 4; ++row) {
      const bool is_seen = back + row < window;
      EXPECT_EQ(row_difference(op.out, row, want.out, row).empty(), !is_seen)
          << "row " << row << ", " << back << " back";
    }
  }
}

TEST_F(DraftAttentionTest, sees_every_planted_fault) {
  EXPECT_EQ(faults_not_seen(kSuite, cases(), backends_[0], faults()), "");
}

TEST(DraftAttentionCheck, a_context_that_begins_behind_the_anchor_is_a_bug) {
  Memory memory;
  const Case c = make({1, 1, 2}, 0, false, {{1, 3, 4, {}}}, Fill::kNormal, 1);
  EXPECT_DEATH(check(arrange(c, memory)), "context_begin <= span.position");
}

}  // namespace
}  // namespace roost
