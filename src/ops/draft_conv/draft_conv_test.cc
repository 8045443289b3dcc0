#include "ops/draft_conv/draft_conv.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/contract/contract.h"
#include "tests/contract/machine.h"

namespace roost {
namespace {

using namespace contract;
using Values = std::vector<double>;

struct Case {
  std::string name;
  int64_t width, group, n_taps;
  std::vector<int32_t> blocks;  // rows of each
  int side;
  Values x, dynamic, base;

  int64_t n_rows() const {
    int64_t n = 0;
    for (const int32_t rows : blocks) n += rows;
    return n;
  }
  int64_t n_groups() const { return width / group; }
};

DraftConv arrange(const Case& c, Memory& memory) {
  std::vector<DraftSpan> spans;
  int32_t first_row = 0;
  for (const int32_t rows : c.blocks) {
    spans.push_back({.first_row = first_row, .n_rows = rows});
    first_row += rows;
  }
  const Shape shape{c.n_rows(), c.width};
  return {
      .x = memory.input(DType::kBF16, shape, c.x),
      .dynamic = memory.input(DType::kF32, {c.n_rows(), 2 * c.n_taps * c.n_groups()}, c.dynamic),
      .base = memory.input(DType::kF32, {2, c.n_taps, c.width}, c.base),
      .out = memory.output(DType::kBF16, shape),
      .group = c.group,
      .side = c.side,
      .spans = memory.list(spans)};
}

// Σ_o (|base| + |dynamic|)·|x| of each output.
Values magnitudes(const Case& c) {
  Values sums;
  int64_t t = 0;
  for (const int32_t rows : c.blocks) {
    for (int32_t row = 0; row < rows; ++row, ++t) {
      for (int64_t ch = 0; ch < c.width; ++ch) {
        double sum = 0;
        for (int64_t tap = 0; tap < c.n_taps && tap <= row; ++tap) {
          const int64_t at = c.side * c.n_taps + tap;
          sum += (std::abs(c.base[static_cast<size_t>(at * c.width + ch)]) +
                  std::abs(c.dynamic[static_cast<size_t>((t * 2 * c.n_taps + at) * c.n_groups() +
                                                         ch / c.group)])) *
                 std::abs(c.x[static_cast<size_t>((t - tap) * c.width + ch)]);
        }
        sums.push_back(sum);
      }
    }
  }
  return sums;
}

void judge(const Case& c, const DraftConv& got, const ReferenceRules& rules, Judge& judge) {
  Memory wide(Memory::Mode::kWide);
  const DraftConv exact = arrange(c, wide);
  draft_conv_reference(exact, rules);
  const Values sums = magnitudes(c);
  judge.near("out", got.out, exact.out, [&](int64_t i) {
    return 0x1p-8 * std::abs(exact.out.get(i)) +
           static_cast<double>(c.n_taps + 2) * 0x1p-24 * sums[static_cast<size_t>(i)];
  });
}

const Suite<DraftConv, Case> kSuite{.name = [](const Case& c) { return c.name; },
                                    .arrange = arrange,
                                    .judge = judge,
                                    .n_rows = nullptr,
                                    .select = nullptr,
                                    .row_outputs = nullptr};

Case make(int64_t width, int64_t group, int64_t n_taps, std::vector<int32_t> blocks, int side,
          Fill fill, uint64_t seed) {
  Case c{.name = name_of(fill) + " " + std::to_string(width) + " in groups of " +
                 std::to_string(group) + ", " + std::to_string(n_taps) + " taps",
         .width = width,
         .group = group,
         .n_taps = n_taps,
         .blocks = std::move(blocks),
         .side = side};
  c.x = values(fill, c.n_rows() * width, seed);
  for (const double d : uniform(-1, 1, c.n_rows() * 2 * n_taps * c.n_groups(), seed + 1))
    c.dynamic.push_back(static_cast<float>(d / 3));  // coefficients need not be bf16 values
  for (const double b : uniform(-2, 2, 2 * n_taps * width, seed + 2))
    c.base.push_back(static_cast<float>(b / 3));
  return c;
}

std::vector<Case> cases() {
  std::vector<Case> all;
  uint64_t seed = 1;
  for (const Fill fill : kFills) {
    for (const int side : {0, 1}) {
      all.push_back(make(1, 1, 1, {1}, side, fill, seed += 5));
      all.push_back(make(12, 3, 2, {2, 1, 3}, side, fill, seed += 5));
      all.push_back(make(34, 17, 2, {16, 7}, side, fill, seed += 5));
      all.push_back(make(64, 16, 4, {8, 16}, side, fill, seed += 5));
      all.push_back(make(256, 16, 2, {16, 2, 1, 5}, side, fill, seed += 5));
    }
  }
  for (const int64_t width : {2048, 3072, 5120, 6656})
    all.push_back(make(width, 16, 2, {1, 16}, static_cast<int>(width % 3 % 2), Fill::kNormal,
                       static_cast<uint64_t>(width)));
  return all;
}

std::vector<Fault<DraftConv, Case>> faults() {
  return {
      {"the other side's coefficients", [](Case& c) { c.side = 1 - c.side; }},
      {"dynamic part one group late",
       [](Case& c) { std::rotate(c.dynamic.begin(), c.dynamic.begin() + 1, c.dynamic.end()); }},
      {"dynamic part left out", [](Case& c) { std::fill(c.dynamic.begin(), c.dynamic.end(), 0); }},
      {"dynamic part of the row before",
       [](Case& c) {
         const auto width = 2 * c.n_taps * c.n_groups();
         std::rotate(c.dynamic.begin(), c.dynamic.end() - width, c.dynamic.end());
       }},
      {"base taps in the other order",
       [](Case& c) {
         for (int64_t side = 0; side < 2; ++side) {
           const auto from = c.base.begin() + side * c.n_taps * c.width;
           std::rotate(from, from + (c.n_taps - 1) * c.width, from + c.n_taps * c.width);
         }
       }},
      {"rows of the block in front are seen",
       [](Case& c) { c.blocks = {static_cast<int32_t>(std::min<int64_t>(c.n_rows(), 16))}; }},
      {"last channel not written", nullptr,
       [](const DraftConv& op) { op.out.set(op.out.n_elements() - 1, NAN); }},
      {"one row too many", nullptr,
       [](const DraftConv& op) { op.out.data[op.out.n_bytes()] = std::byte{0}; }},
  };
}

// The fault of merged blocks only exists where the rows still fit the case.
std::vector<Case> cases_for_faults() {
  std::vector<Case> all = cases();
  std::erase_if(all, [](const Case& c) { return c.n_rows() > 16; });
  return all;
}

class DraftConvTest : public testing::Test {
 protected:
  Machine one_{1}, two_{2};
  std::vector<Backend<DraftConv>> backends_{one_.backend<DraftConv>(), two_.backend<DraftConv>()};
};

TEST_F(DraftConvTest, keeps_the_contract) {
  double worst = 0;
  EXPECT_EQ(kernel_keeps_contract(kSuite, cases(), backends_, &worst), "");
  EXPECT_GT(worst, 0.3) << "the bound is far too wide";
  EXPECT_EQ(bits_are_the_rows_own(kSuite, cases(), backends_), "");
}

TEST_F(DraftConvTest, gives_a_block_the_same_bits_alone_and_cut_short) {
  const Case whole = make(64, 16, 2, {5, 16, 3}, 1, Fill::kNormal, 77);
  Memory memory;
  const DraftConv want = arrange(whole, memory);
  backends_[0].run(want);
  for (const DraftSpan& block : want.spans) {
    for (int32_t n = 1; n <= block.n_rows; ++n) {
      Memory other;
      DraftConv op = arrange(whole, other);
      const DraftSpan part = {.first_row = block.first_row, .n_rows = n};
      op.spans = {&part, 1};
      backends_[1].run(op);
      for (int32_t row = 0; row < n; ++row)
        ASSERT_EQ(row_difference(op.out, block.first_row + row, want.out, block.first_row + row),
                  "");
    }
  }
}

TEST_F(DraftConvTest, sees_every_planted_fault) {
  EXPECT_EQ(faults_not_seen(kSuite, cases_for_faults(), backends_[0], faults()), "");
}

// Written out by hand from the formula.
TEST_F(DraftConvTest, computes_the_worked_example) {
  Case c = make(4, 2, 2, {3}, 0, Fill::kNormal, 1);
  c.x = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
  c.base = {1, 1, 1, 1, 0.5, 0.5, 0.25, 0.25, 2, 2, 2, 2, 0, 1, 0, 1};
  c.dynamic = {0.1f, 0.2f, 0.3f, 0.4f, 0,  0, 0, 0,      0, 0, 1, 2,
               0,    0,    0,    0,    -1, 0, 0, -0.25f, 1, 0, 0, 1};
  const Values before = {1.1, 2.2, 3.6, 4.8, 6.5, 9, 13.75, 17, 2.5, 3, 11, 12};
  const Values behind = {2, 4, 6, 8, 10, 14, 14, 20, 27, 36, 29, 40};
  for (const int side : {0, 1}) {
    c.side = side;
    Memory memory;
    const DraftConv op = arrange(c, memory);
    backends_[0].run(op);
    const Values& want = side == 0 ? before : behind;
    for (size_t i = 0; i < want.size(); ++i)
      EXPECT_NEAR(op.out.get(static_cast<int64_t>(i)), want[i], 0x1p-8 * want[i])
          << side << " " << i;
  }
}

TEST(DraftConvCheck, a_block_longer_than_a_block_can_be_is_a_bug) {
  Memory memory;
  const Case c = make(4, 2, 2, {17}, 0, Fill::kNormal, 1);
  EXPECT_DEATH(check(arrange(c, memory)), "kRowsMax");
}

}  // namespace
}  // namespace roost
