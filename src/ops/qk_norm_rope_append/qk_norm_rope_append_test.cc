#include "ops/qk_norm_rope_append/qk_norm_rope_append.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "tests/contract/contract.h"
#include "tests/contract/machine.h"
#include "tests/contract/places.h"

namespace roost {
namespace {

using namespace contract;
using Values = std::vector<double>;

struct Case {
  std::string name;
  int64_t n_heads, kv_heads, dim, n_pairs, n_pages;
  std::vector<Place> places;
  Values q_gate, k, v, q_weight, k_weight, rope, k_pages, v_pages;
  float eps = 1e-6f;
  bool has_codes = false;

  int64_t n_rows() const { return n_rows_of(places); }
};

QkNormRopeAppend arrange(const Case& c, Memory& memory) {
  const int64_t n_rows = c.n_rows(), width = c.kv_heads * c.dim;
  const Shape pages = {c.n_pages, c.kv_heads, kPageTokens, c.dim};
  // The exact values are compared with, not their codes.
  const bool has_codes = c.has_codes && memory.mode() == Memory::Mode::kStored;
  QkNormRopeAppend op{.k = memory.input(DType::kBF16, {n_rows, width}, c.k),
                      .v = memory.input(DType::kBF16, {n_rows, width}, c.v),
                      .k_weight = memory.input(DType::kF32, {c.dim}, c.k_weight),
                      .rope = memory.input(DType::kF32, {n_rows, c.n_pairs, 2}, c.rope),
                      .spans = spans_of(c.places, memory),
                      .eps = c.eps};
  if (has_codes) {
    const Shape scales = {c.n_pages, c.kv_heads, kPageTokens};
    const Values old_codes(c.k_pages.size(), 99);
    const Values old_scales(c.k_pages.size() / static_cast<size_t>(c.dim), NAN);
    op.k_pages = memory.in_out(DType::kI8, pages, old_codes);
    op.v_pages = memory.in_out(DType::kI8, {c.n_pages, c.kv_heads, c.dim, kPageTokens}, old_codes);
    op.k_scales = memory.in_out(DType::kF32, scales, old_scales);
    op.v_scales = memory.in_out(DType::kF32, scales, old_scales);
  } else {
    op.k_pages = memory.in_out(DType::kBF16, pages, c.k_pages);
    op.v_pages = memory.in_out(DType::kBF16, pages, c.v_pages);
  }
  if (c.n_heads == 0) return op;
  op.q_gate = memory.input(DType::kBF16, {n_rows, c.n_heads, 2 * c.dim}, c.q_gate);
  op.q_weight = memory.input(DType::kF32, {c.dim}, c.q_weight);
  op.q = memory.output(DType::kBF16, {n_rows, c.n_heads, c.dim});
  return op;
}

// The bound of each element of the head at `at`: by the larger of the pair that was turned.
void head_bound(const Case& c, const Values& heads, int64_t at, const Values& weight,
                double* bounds) {
  const double rounding = c.has_codes && &heads == &c.k ? 0 : 0x1p-8;
  double squares = 0;
  for (int64_t i = 0; i < c.dim; ++i) {
    const double u = heads[static_cast<size_t>(at + i)];
    squares += u * u;
  }
  const double dim = static_cast<double>(c.dim), scale = 1 / std::sqrt(squares / dim + c.eps);
  const auto n = [&](int64_t i) {
    return std::abs(heads[static_cast<size_t>(at + i)] * weight[static_cast<size_t>(i)] * scale);
  };
  for (int64_t i = 0; i < c.dim; ++i) {
    const int64_t other = i < c.n_pairs ? i + c.n_pairs : i < 2 * c.n_pairs ? i - c.n_pairs : i;
    bounds[i] = (rounding + (dim / 2 + 8) * 0x1p-24) * std::max(n(i), n(other)) * 1.5;
  }
}

// Code·scale of the rows' slots against the exact values; other slots must be as they were.
void judge_codes(const Case& c, const QkNormRopeAppend& got, const QkNormRopeAppend& exact,
                 const Values& k_bound, Judge& judge) {
  const int64_t n_slots = c.n_pages * c.kv_heads * kPageTokens;
  std::vector<bool> is_written(static_cast<size_t>(n_slots), false);
  for (const RowSpan& span : exact.spans) {
    for (int64_t r = 0; r < span.n_rows; ++r) {
      const int64_t token = span.first_index + r, page = span.page_table[token / kPageTokens];
      for (int64_t g = 0; g < c.kv_heads; ++g)
        is_written[static_cast<size_t>((page * c.kv_heads + g) * kPageTokens +
                                       token % kPageTokens)] = true;
    }
  }
  Memory memory(Memory::Mode::kWide);
  const Shape pages = {c.n_pages, c.kv_heads, kPageTokens, c.dim};
  for (const bool is_key : {true, false}) {
    const Tensor decoded = memory.output(DType::kBF16, pages);
    const Tensor want = memory.output(DType::kBF16, pages);
    const Tensor& scales = is_key ? got.k_scales : got.v_scales;
    const Tensor& source = is_key ? exact.k_pages : exact.v_pages;
    Values bounds(static_cast<size_t>(decoded.n_elements()), 0);
    for (int64_t slot = 0; slot < n_slots; ++slot) {
      const bool is_row = is_written[static_cast<size_t>(slot)];
      if (!is_row && !std::isnan(scales.get(slot))) judge.fail("a scale that is no row's");
      for (int64_t i = 0; i < c.dim; ++i) {
        const int64_t at = slot * c.dim + i;
        const int64_t transposed =
            (slot / kPageTokens * c.dim + i) * kPageTokens + slot % kPageTokens;
        const double code = is_key ? got.k_pages.get(at) : got.v_pages.get(transposed);
        if (!is_row && code != 99) judge.fail("a code that is no row's");
        decoded.set(at, is_row ? code * scales.get(slot) : 0);
        want.set(at, is_row ? source.get(at) : 0);
        const double of_key = is_key ? k_bound[static_cast<size_t>(at)] : 0;
        bounds[static_cast<size_t>(at)] =
            is_row ? std::abs(scales.get(slot)) / 2 * (1 + 0x1p-12) + of_key + 0x1p-100 : 0;
      }
    }
    judge.near(is_key ? "keys" : "values", decoded, want,
               [&](int64_t i) { return bounds[static_cast<size_t>(i)]; });
  }
}

void judge(const Case& c, const QkNormRopeAppend& got, const ReferenceRules& rules, Judge& judge) {
  Memory wide(Memory::Mode::kWide);
  const QkNormRopeAppend exact = arrange(c, wide);
  qk_norm_rope_append_reference(exact, rules);
  Values q_bound(static_cast<size_t>(c.n_rows() * c.n_heads * c.dim));
  for (int64_t head = 0; head < c.n_rows() * c.n_heads; ++head)
    head_bound(c, c.q_gate, head * 2 * c.dim, c.q_weight,
               &q_bound[static_cast<size_t>(head * c.dim)]);
  Values k_bound(static_cast<size_t>(exact.k_pages.n_elements()));  // 0 where nothing is written
  for (const RowSpan& span : exact.spans) {
    for (int64_t r = 0; r < span.n_rows; ++r) {
      const int64_t token = span.first_index + r, page = span.page_table[token / kPageTokens];
      for (int64_t g = 0; g < c.kv_heads; ++g) {
        const int64_t to = (page * c.kv_heads + g) * kPageTokens + token % kPageTokens;
        head_bound(c, c.k, ((span.first_row + r) * c.kv_heads + g) * c.dim, c.k_weight,
                   &k_bound[static_cast<size_t>(to * c.dim)]);
      }
    }
  }
  if (c.n_heads > 0)
    judge.near("q", got.q, exact.q, [&](int64_t i) { return q_bound[static_cast<size_t>(i)]; });
  if (c.has_codes) return judge_codes(c, got, exact, k_bound, judge);
  judge.near("k_pages", got.k_pages, exact.k_pages,
             [&](int64_t i) { return k_bound[static_cast<size_t>(i)]; });
  judge.equal("v_pages", got.v_pages, exact.v_pages);
}

Values part_of(const Values& values, int64_t row, int64_t n_rows) {
  const auto width = static_cast<std::ptrdiff_t>(values.size()) / n_rows;
  return {values.begin() + row * width, values.begin() + (row + 1) * width};
}

void append(Values& values, const Values& more) {
  values.insert(values.end(), more.begin(), more.end());
}

// Each row alone in a span of its own, its K/V in page i of n: outputs are comparable by row.
Case select(const Case& c, std::span<const int64_t> rows) {
  Case part = c;
  part.places.clear();
  for (Values* values : {&part.q_gate, &part.k, &part.v, &part.rope}) values->clear();
  const std::vector<Place> place_of = single_rows(c.places);
  part.n_pages = static_cast<int64_t>(rows.size());
  for (size_t i = 0; i < rows.size(); ++i) {
    const int32_t index = place_of[static_cast<size_t>(rows[i])].first_index;
    std::vector<int32_t> pages(static_cast<size_t>(index / kPageTokens + 1), 0);
    pages.back() = static_cast<int32_t>(i);
    part.places.push_back({index, 1, pages});
    append(part.q_gate, part_of(c.q_gate, rows[i], c.n_rows()));
    append(part.k, part_of(c.k, rows[i], c.n_rows()));
    append(part.v, part_of(c.v, rows[i], c.n_rows()));
    append(part.rope, part_of(c.rope, rows[i], c.n_rows()));
  }
  const int64_t page_size = c.kv_heads * kPageTokens * c.dim;
  part.k_pages.assign(static_cast<size_t>(part.n_pages * page_size), 0.5);
  part.v_pages = part.k_pages;
  return part;
}

const Suite<QkNormRopeAppend, Case> kSuite{
    .name = [](const Case& c) { return c.name; },
    .arrange = arrange,
    .judge = judge,
    .n_rows = [](const Case& c) { return c.n_rows(); },
    .select = select,
    .row_outputs =
        [](const QkNormRopeAppend& op) {
          std::vector<Tensor> outputs{op.q, op.k_pages, op.v_pages};
          if (op.has_codes()) outputs.insert(outputs.end(), {op.k_scales, op.v_scales});
          return outputs;
        },
};

// Places take the pages in falling order, so that no table is the identity.
Case make_case(int64_t n_heads, int64_t kv_heads, int64_t dim, int64_t n_pairs, Fill fill,
               std::vector<Place> places, uint64_t seed) {
  Case c{.name = name_of(fill) + " " + std::to_string(n_heads) + "/" + std::to_string(kv_heads) +
                 " heads of " + std::to_string(dim) + ", " + std::to_string(n_pairs) + " pairs",
         .n_heads = n_heads,
         .kv_heads = kv_heads,
         .dim = dim,
         .n_pairs = n_pairs,
         .n_pages = 1,
         .places = std::move(places),
         .q_gate = {},
         .k = {},
         .v = {},
         .q_weight = uniform(0.25, 2, dim, seed),
         .k_weight = uniform(-2, -0.25, dim, seed + 1),
         .rope = {},
         .k_pages = {},
         .v_pages = {}};
  for (Place& place : c.places) {
    place.pages.resize(
        static_cast<size_t>((place.first_index + place.n_rows - 1) / kPageTokens + 1));
    c.n_pages += static_cast<int64_t>(place.pages.size());
  }
  auto next_page = static_cast<int32_t>(c.n_pages - 1);
  for (Place& place : c.places) {
    for (int32_t& page : place.pages) page = next_page--;
  }
  const int64_t n_rows = c.n_rows();
  c.q_gate = values(fill, n_rows * n_heads * 2 * dim, seed + 2);
  c.k = values(fill, n_rows * kv_heads * dim, seed + 3);
  c.v = values(fill, n_rows * kv_heads * dim, seed + 4);
  const Values angles = uniform(-4, 4, n_rows * n_pairs, seed + 5);
  for (const double angle : angles) {
    c.rope.push_back(static_cast<float>(std::cos(angle)));
    c.rope.push_back(static_cast<float>(std::sin(angle)));
  }
  c.k_pages = values(Fill::kNormal, c.n_pages * kv_heads * kPageTokens * dim, seed + 6);
  c.v_pages = c.k_pages;
  // Whatever a slot held before must not be read.
  for (size_t i = 0; i < c.k_pages.size(); i += 3) c.k_pages[i] = c.v_pages[i] = NAN;
  return c;
}

std::vector<Case> cases() {
  std::vector<Case> all;
  uint64_t seed = 1;
  for (const Fill fill : kFills) {
    all.push_back(make_case(1, 1, 3, 1, fill, {{5, 1, {}}}, seed += 10));
    all.push_back(make_case(6, 2, 17, 5, fill, {{63, 2, {}}, {0, 1, {}}}, seed += 10));
    all.push_back(make_case(8, 1, 64, 16, fill, {{60, 9, {}}, {129, 3, {}}}, seed += 10));
    all.push_back(make_case(16, 1, 256, 32, fill, {{0, 2, {}}, {200, 1, {}}}, seed += 10));
    all.push_back(make_case(3, 3, 32, 16, fill, {{127, 5, {}}}, seed += 10));
    all.push_back(make_case(0, 2, 32, 16, fill, {{61, 5, {}}, {130, 2, {}}}, seed += 10));
#ifndef ROOST_CONTRACT_CUDA  // a card has no kernel for codes
    for (const int64_t dim : {17, 64, 256}) {
      all.push_back(make_case(4, 2, dim, 5, fill, {{61, 5, {}}, {130, 2, {}}}, seed += 10));
      all.back().has_codes = true;
      all.back().name += ", codes";
    }
#endif
  }
  return all;
}

void swap_pair_sense(Case& c) {
  for (size_t i = 1; i < c.rope.size(); i += 2) c.rope[i] = -c.rope[i];
}

void rotate_heads(const Tensor& heads, int64_t dim) {
  auto* bits = heads.as<uint16_t>();
  std::rotate(bits, bits + dim, bits + heads.n_elements());
}

std::vector<Fault<QkNormRopeAppend, Case>> faults() {
  using Op = QkNormRopeAppend;
  return {
      {"eps left out", [](Case& c) { c.eps = 1e-30f; }},
      {"turned the other way", swap_pair_sense},
      {"rope of the next row",
       [](Case& c) {
         const auto width = 2 * c.n_pairs;
         std::rotate(c.rope.begin(), c.rope.begin() + width, c.rope.end());
       }},
      {"the gate taken for the query",
       [](Case& c) {
         if (c.n_heads > 0) std::rotate(c.q_gate.begin(), c.q_gate.begin() + c.dim, c.q_gate.end());
       }},
      {"query weight for the key", [](Case& c) { c.k_weight = c.q_weight; }},
      {"weight one element late",
       [](Case& c) { std::rotate(c.q_weight.begin(), c.q_weight.begin() + 1, c.q_weight.end()); }},
      {"last element of a head not in the mean",
       [](Case& c) {
         for (size_t i = static_cast<size_t>(c.dim) - 1; i < c.k.size();
              i += static_cast<size_t>(c.dim))
           c.k[i] = 0;
       }},
      {"slot of the next token", [](Case& c) { c.places[0].first_index += 1; }},
      {"stale page", [](Case& c) { c.places[0].pages.back() = 0; }},
      {"neighbour's query head", nullptr,
       [](const Op& op) {
         if (op.q.exists()) rotate_heads(op.q, op.q.dim(2));
       }},
      {"values normalized like keys", nullptr,
       [](const Op& op) { std::copy_n(op.k_pages.data, op.k_pages.n_bytes(), op.v_pages.data); }},
#ifndef ROOST_CONTRACT_CUDA  // a card has no kernel for codes
      {"scale of the next token", nullptr,
       [](const Op& op) {
         if (!op.has_codes()) return;
         auto* scales = op.k_scales.as<float>();
         std::rotate(scales, scales + 1, scales + op.k_scales.n_elements());
       }},
      {"a code too low", nullptr,
       [](const Op& op) {
         if (!op.has_codes()) return;
         auto* codes = op.k_pages.as<int8_t>();
         for (int64_t i = 0; i < op.k_pages.n_elements(); ++i)
           codes[i] -= codes[i] > 0 && codes[i] < 99;
       }},
#endif
      {"one row too many", nullptr,
       [](const Op& op) { op.k_pages.data[op.k_pages.n_bytes()] = std::byte{0}; }},
  };
}

class QkNormRopeAppendTest : public testing::Test {
 protected:
  Machine one_{1}, two_{2};
  std::vector<Backend<QkNormRopeAppend>> backends_{one_.backend<QkNormRopeAppend>(),
                                                   two_.backend<QkNormRopeAppend>()};
};

TEST_F(QkNormRopeAppendTest, keeps_its_contract) {
  double worst = 0;
  EXPECT_EQ(kernel_keeps_contract(kSuite, cases(), backends_, &worst), "");
  EXPECT_GT(worst, 0.2) << "the bound is far too wide";
}

TEST_F(QkNormRopeAppendTest, gives_a_row_the_same_bits_in_any_company) {
  std::vector<Case> alone;  // rows of one call in pages of their own, so that calls compare
  for (const Case& c : cases()) {
    std::vector<int64_t> all(static_cast<size_t>(c.n_rows()));
    std::iota(all.begin(), all.end(), 0);
    alone.push_back(select(c, all));
  }
  EXPECT_EQ(bits_are_the_rows_own(kSuite, alone, backends_), "");
}

TEST_F(QkNormRopeAppendTest, writes_the_same_pages_for_a_prompt_cut_anywhere) {
  for (const int32_t n_rows : {1, 2, 7, 64, 65}) {
    const Case whole =
        make_case(4, 2, 32, 8, Fill::kNormal, {{62, n_rows, {}}}, static_cast<uint64_t>(n_rows));
    Memory memory;
    const QkNormRopeAppend want = arrange(whole, memory);
    backends_[0].run(want);
    for (int32_t cut = 1; cut < n_rows; ++cut) {
      Memory other;
      QkNormRopeAppend op = arrange(whole, other);
      const RowSpan span = op.spans[0];
      const RowSpan parts[] = {
          {0, cut, span.first_index, span.page_table},
          {cut, n_rows - cut, span.first_index + cut, span.page_table},
      };
      for (const RowSpan& part : parts) {
        op.spans = {&part, 1};
        backends_[1].run(op);
      }
      ASSERT_EQ(other.difference(memory), "") << "cut behind row " << cut << " of " << n_rows;
    }
  }
}

#ifndef ROOST_CONTRACT_CUDA
TEST_F(QkNormRopeAppendTest, the_reference_writes_codes_as_the_kernel_does) {
  for (const Case& c : cases()) {
    if (!c.has_codes) continue;
    Memory memory;
    const QkNormRopeAppend op = arrange(c, memory);
    qk_norm_rope_append_reference(op, backends_[0].rules);
    Judge judged;
    judge(c, op, backends_[0].rules, judged);
    EXPECT_EQ(judged.report(), "") << c.name;
  }
}

TEST_F(QkNormRopeAppendTest, a_head_that_is_not_finite_has_a_scale_that_is_not) {
  Case c = make_case(1, 1, 64, 16, Fill::kNormal, {{3, 2, {}}}, 5);
  c.has_codes = true;
  c.k[7] = c.v[64 + 9] = NAN;
  Memory memory;
  const QkNormRopeAppend op = arrange(c, memory);
  backends_[0].run(op);
  const int64_t page = c.places[0].pages[0] * kPageTokens;
  EXPECT_TRUE(std::isnan(op.k_scales.get(page + 3)));
  EXPECT_FALSE(std::isnan(op.k_scales.get(page + 4)));
  EXPECT_FALSE(std::isnan(op.v_scales.get(page + 3)));
  EXPECT_TRUE(std::isnan(op.v_scales.get(page + 4)));
}
#endif

TEST_F(QkNormRopeAppendTest, sees_every_planted_fault) {
  EXPECT_EQ(faults_not_seen(kSuite, cases(), backends_[0], faults()), "");
}

}  // namespace
}  // namespace roost
