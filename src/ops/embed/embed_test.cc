#include "ops/embed/embed.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/contract/contract.h"
#include "tests/contract/machine.h"

namespace roost {
namespace {

using namespace contract;

struct Case {
  std::string name;
  std::vector<double> tokens;
  MatrixValues table;
  bool misaligned = true;
};

Embed arrange(const Case& c, Memory& memory) {
  const auto n_rows = static_cast<int64_t>(c.tokens.size());
  return {.tokens = memory.input(DType::kI32, {n_rows}, c.tokens),
          .table = &memory.list(std::vector{memory.matrix(c.table, c.misaligned)})[0],
          .out = memory.output(DType::kBF16, {n_rows, c.table.n_in})};
}

void judge(const Case& c, const Embed& got, const ReferenceRules& rules, Judge& judge) {
  Memory wide(Memory::Mode::kWide);
  const Embed exact = arrange(c, wide);
  embed_reference(exact, rules);
  const bool is_affine = c.table.format.format == QuantMatrix::Format::kAffine;
  judge.near("out", got.out, exact.out, [&](int64_t i) {
    double parts = 0;  // |scale·code| + |bias|
    if (is_affine) {
      const auto at = static_cast<size_t>(
          static_cast<int64_t>(c.tokens[static_cast<size_t>(i / c.table.n_in)]) * c.table.n_in +
          i % c.table.n_in);
      const size_t g = at / static_cast<size_t>(c.table.format.group);
      parts = std::abs(c.table.scales[g] * c.table.codes[at]) + std::abs(c.table.biases[g]);
    }
    return 0x1p-8 * std::abs(exact.out.get(i)) + 0x1p-23 * parts;
  });
}

Case select(const Case& c, std::span<const int64_t> rows) {
  Case part = c;
  part.tokens.clear();
  for (const int64_t row : rows) part.tokens.push_back(c.tokens[static_cast<size_t>(row)]);
  return part;
}

const Suite<Embed, Case> kSuite{
    .name = [](const Case& c) { return c.name; },
    .arrange = arrange,
    .judge = judge,
    .n_rows = [](const Case& c) { return static_cast<int64_t>(c.tokens.size()); },
    .select = select,
    .row_outputs = [](const Embed& op) { return std::vector{op.out}; },
};

// All formats, each at the smallest width it can have and at one of three groups.
std::vector<Case> cases() {
  std::vector<Case> all;
  uint64_t seed = 1;
  for (const MatrixFormat& format : all_formats()) {
    const bool is_plain = format.format == QuantMatrix::Format::kPlain;
    const std::vector<int64_t> widths =
        is_plain ? std::vector<int64_t>{1, 7, 8, 9, 13} : std::vector<int64_t>{1, 3};
    for (const int64_t width : widths) {
      const Fill fill = kFills[seed % std::size(kFills)];
      Case c;
      c.table = matrix_values(format, 11, width * format.group, fill, seed++);
      c.tokens = {10, 0, 3, 3, 9};
      c.misaligned = width != 3;
      c.name = name_of(format) + " " + name_of(fill) + " 11x" + std::to_string(c.table.n_in);
      all.push_back(c);
    }
  }
  return all;
}

std::vector<Fault<Embed, Case>> faults() {
  return {
      {"the row of the next token", [](Case& c) { c.tokens[0] = 9; }},
      {"rows in another order", [](Case& c) { std::swap(c.tokens[0], c.tokens[1]); }},
      {"bias left out",
       [](Case& c) { std::fill(c.table.biases.begin(), c.table.biases.end(), 0); }},
      {"scale of the next group",
       [](Case& c) {
         std::rotate(c.table.scales.begin(), c.table.scales.begin() + !c.table.scales.empty(),
                     c.table.scales.end());
       }},
      {"codes one input late",
       [](Case& c) {
         std::rotate(c.table.codes.begin(), c.table.codes.begin() + !c.table.codes.empty(),
                     c.table.codes.end());
       }},
      {"top bit of every code lost",
       [](Case& c) {
         for (uint32_t& code : c.table.codes) code &= (1u << (c.table.format.bits - 1)) - 1;
       }},
      {"last element of a row not written", nullptr,
       [](const Embed& op) { op.out.set(op.out.n_elements() - 1, NAN); }},
      {"one row too many", nullptr,
       [](const Embed& op) { op.out.data[op.out.n_bytes()] = std::byte{0}; }},
      {"an input changed", nullptr, [](const Embed& op) { op.tokens.set(1, 1); }},
      {"rounded towards zero", nullptr,
       [](const Embed& op) {
         for (int64_t i = 0; i < op.out.n_elements(); ++i) op.out.as<uint16_t>()[i] -= 1;
       }},
  };
}

class EmbedTest : public testing::Test {
 protected:
  Machine one_{1}, two_{2};
  std::vector<Backend<Embed>> backends_{one_.backend<Embed>(), two_.backend<Embed>()};
};

TEST_F(EmbedTest, keeps_the_contract_in_every_format) {
  EXPECT_EQ(kernel_keeps_contract(kSuite, cases(), backends_), "");
}

TEST_F(EmbedTest, gives_a_row_the_same_bits_in_any_company) {
  EXPECT_EQ(bits_are_the_rows_own(kSuite, cases(), backends_), "");
}

TEST_F(EmbedTest, sees_every_planted_fault) {
  EXPECT_EQ(faults_not_seen(kSuite, cases(), backends_[0], faults()), "");
}

TEST(EmbedCheck, a_token_behind_the_table_is_a_bug) {
  Case c = cases()[0];
  c.tokens[2] = 11;
  Memory memory;
  EXPECT_DEATH(check(arrange(c, memory)), "token < op.table->n_out");
}

}  // namespace
}  // namespace roost
