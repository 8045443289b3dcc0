// The harness itself: what it must notice, and what its fills and packings promise.
#include "tests/contract/contract.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <set>

#include "tests/contract/products.h"

namespace roost::contract {
namespace {

TEST(Memory, notices_a_byte_written_on_either_side) {
  for (const std::ptrdiff_t at : {-1, -64, 24, 25, 100}) {
    Memory memory;
    const Tensor out = memory.output(DType::kF32, {2, 3});
    EXPECT_EQ(memory.damage(), "");
    out.data[at] = std::byte{0};
    EXPECT_NE(memory.damage(), "") << at;
  }
}

TEST(Memory, notices_an_input_that_was_changed) {
  Memory memory;
  const Tensor in = memory.input(DType::kBF16, {3}, std::vector<double>{1, 2, 3});
  const QuantMatrix w = memory.matrix(
      matrix_values({QuantMatrix::Format::kAffine, 3, 32, DType::kF32}, 2, 64, Fill::kNormal, 1));
  EXPECT_EQ(memory.damage(), "");
  in.set(1, 2.5);
  EXPECT_NE(memory.damage(), "");
  in.set(1, 2);
  EXPECT_EQ(memory.damage(), "");
  const_cast<std::byte*>(w.scales)[3] ^= std::byte{1};
  EXPECT_NE(memory.damage(), "");
}

TEST(Memory, hands_out_weights_at_odd_addresses_unless_asked_otherwise) {
  Memory memory;
  const MatrixValues m =
      matrix_values({QuantMatrix::Format::kAffine, 4, 64, DType::kBF16}, 1, 64, Fill::kNormal, 1);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(memory.matrix(m).codes) % 2, 1u);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(memory.matrix(m).scales) % 2, 1u);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(memory.matrix(m, false).codes) % 64, 0u);
}

TEST(Memory, wide_outputs_keep_what_bf16_would_round_and_inputs_stay_as_they_are) {
  Memory wide(Memory::Mode::kWide);
  const Tensor out = wide.output(DType::kBF16, {1});
  out.set(0, 1 + 0x1p-20);
  EXPECT_EQ(out.get(0), 1 + 0x1p-20);
  const std::vector<double> fine{1 + 0x1p-20};
  EXPECT_EQ(wide.input(DType::kBF16, {1}, fine).get(0), 1);
  EXPECT_EQ(wide.in_out(DType::kBF16, {1}, fine).get(0), 1);
  EXPECT_EQ(wide.output(DType::kF32, {1}).dtype, DType::kF32);
}

TEST(Memory, packs_every_format_as_the_matrix_reads_it) {
  for (const MatrixFormat& format : all_formats()) {
    const MatrixValues m = matrix_values(format, 3, 2 * format.group, Fill::kNormal, 9);
    Memory memory;
    const QuantMatrix w = memory.matrix(m);
    for (int64_t r = 0; r < m.n_out; ++r) {
      for (int64_t i = 0; i < m.n_in; ++i) ASSERT_EQ(w.decode(r, i), m.at(r, i)) << name_of(format);
    }
  }
}

TEST(Memory, packs_codes_as_one_little_endian_bit_string) {
  MatrixValues m =
      matrix_values({QuantMatrix::Format::kAffine, 5, 32, DType::kBF16}, 1, 32, Fill::kNormal, 1);
  const uint32_t first[] = {31, 0, 16, 1, 8, 4, 2, 30};
  std::copy(std::begin(first), std::end(first), m.codes.begin());
  Memory memory;
  const QuantMatrix w = memory.matrix(m);
  const uint8_t want[] = {0x1F, 0xC0, 0x80, 0x88, 0xF0};
  EXPECT_EQ(std::memcmp(w.codes, want, sizeof(want)), 0);
}

TEST(Judge, takes_what_is_within_the_bound_and_nothing_else) {
  const auto is_near = [](double have, double want, double bound) {
    Memory memory;
    Judge judge;
    judge.near("y", memory.input(DType::kF64, {1}, std::vector{have}),
               memory.input(DType::kF64, {1}, std::vector{want}), [=](int64_t) { return bound; });
    return judge.is_ok();
  };
  const double nan = std::nan(""), infinity = std::numeric_limits<double>::infinity();
  EXPECT_TRUE(is_near(1.5, 1, 0.5));
  EXPECT_FALSE(is_near(1.5, 1, 0.49));
  EXPECT_TRUE(is_near(-0.0, 0, 0));
  EXPECT_FALSE(is_near(nan, 1, infinity));
  EXPECT_FALSE(is_near(1, nan, infinity));
  EXPECT_TRUE(is_near(nan, nan, 0));
  EXPECT_FALSE(is_near(1, 2, nan));
  EXPECT_FALSE(is_near(infinity, 1, 1e300));
}

TEST(Judge, an_output_that_was_not_written_is_never_near) {
  Memory memory;
  const std::vector<double> ones(4, 1.0);
  for (const DType dtype : {DType::kBF16, DType::kF32, DType::kF64, DType::kI32}) {
    Judge judge;
    judge.near("y", memory.output(dtype, {4}), memory.input(dtype, {4}, ones),
               [](int64_t) { return 1000.0; });
    EXPECT_FALSE(judge.is_ok());
  }
}

TEST(Fills, are_bf16_values_and_coordinates_tell_neighbours_apart) {
  for (const Fill fill : kFills) {
    for (const double value : values(fill, 500, 3))
      EXPECT_EQ(value, f32_from_bf16(bf16_from_f64(value))) << name_of(fill);
  }
  const std::vector<double> coordinates = values(Fill::kCoordinates, 502, 0);
  EXPECT_EQ(std::set<double>(coordinates.begin(), coordinates.end()).size(), 502u);
}

TEST(Regroupings, hold_rows_alone_doubled_and_in_other_places) {
  for (const int64_t n_rows : {1, 2, 9, 40}) {
    bool has_alone = false, has_more = false;
    for (const std::vector<int64_t>& rows : regroupings(n_rows)) {
      ASSERT_FALSE(rows.empty());
      for (const int64_t row : rows) EXPECT_TRUE(row >= 0 && row < n_rows);
      has_alone |= rows.size() == 1;
      has_more |= std::ssize(rows) > n_rows;
    }
    EXPECT_TRUE(has_alone && has_more);
  }
}

TEST(Products, slack_is_one_step_only_where_a_rounding_border_is_near) {
  EXPECT_EQ(rounding_slack({1.0, 1e-6}), 0);
  EXPECT_GE(rounding_slack({1 + 0x1p-8, 1e-6}), 0x1p-7);  // half way between two bf16 values
}

}  // namespace
}  // namespace roost::contract
