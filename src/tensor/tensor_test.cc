// Conversions and views of tensors.
#include "tensor/tensor.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <vector>

namespace roost {
namespace {

TEST(Dtype, bf16_from_f64_rounds_once) {
  EXPECT_EQ(bf16_from_f64(1.0), 0x3F80);
  EXPECT_EQ(bf16_from_f64(-1.0), 0xBF80);
  EXPECT_EQ(bf16_from_f64(0.0), 0x0000);
  EXPECT_EQ(bf16_from_f64(-0.0), 0x8000);
  // Half a step above 1: a tie, to even. The smallest excess decides upwards, and a rounding to f32
  // in between would have lost it.
  EXPECT_EQ(bf16_from_f64(1.0 + 0x1p-8), 0x3F80);
  EXPECT_EQ(bf16_from_f64(1.0 + 0x1p-8 + 0x1p-40), 0x3F81);
  EXPECT_EQ(bf16_from_f32(static_cast<float>(1.0 + 0x1p-8 + 0x1p-40)), 0x3F80);
  EXPECT_EQ(bf16_from_f64(1.0 + 3 * 0x1p-8), 0x3F82);
  EXPECT_EQ(bf16_from_f64(1.0 + 3 * 0x1p-8 - 0x1p-40), 0x3F81);
}

TEST(Dtype, bf16_from_f64_handles_the_ends_of_the_range) {
  const double max_bf16 = f32_from_bf16(0x7F7F);
  EXPECT_EQ(bf16_from_f64(max_bf16), 0x7F7F);
  EXPECT_EQ(bf16_from_f64(max_bf16 * (1 + 0x1p-10)), 0x7F7F);
  EXPECT_EQ(bf16_from_f64(1e39), 0x7F80);
  EXPECT_EQ(bf16_from_f64(-1e300), 0xFF80);
  EXPECT_EQ(bf16_from_f64(std::numeric_limits<double>::infinity()), 0x7F80);
  EXPECT_TRUE(std::isnan(f32_from_bf16(bf16_from_f64(std::nan("")))));
  EXPECT_EQ(bf16_from_f64(0x1p-133), 0x0001);  // smallest subnormal
  EXPECT_EQ(bf16_from_f64(0x1p-134), 0x0000);  // a tie, to even
  EXPECT_EQ(bf16_from_f64(0x1p-134 * (1 + 0x1p-50)), 0x0001);
  EXPECT_EQ(bf16_from_f64(1e-300), 0x0000);
}

TEST(Dtype, bf16_from_f64_keeps_every_bf16) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const float value = f32_from_bf16(static_cast<uint16_t>(bits));
    if (std::isnan(value)) continue;
    ASSERT_EQ(bf16_from_f64(value), bits);
    ASSERT_EQ(bf16_from_f32(value), bits);
  }
}

TEST(Dtype, bf16_from_f64_takes_the_nearer_neighbour) {
  for (uint32_t bits = 0x0000; bits < 0x7F7F; bits += 13) {
    const double low = f32_from_bf16(static_cast<uint16_t>(bits));
    const double high = f32_from_bf16(static_cast<uint16_t>(bits + 1));
    const double middle = (low + high) / 2;
    ASSERT_EQ(bf16_from_f64(middle), bits % 2 == 0 ? bits : bits + 1);
    ASSERT_EQ(bf16_from_f64(std::nextafter(middle, 0.0)), bits);
    ASSERT_EQ(bf16_from_f64(std::nextafter(middle, 1e300)), bits + 1);
  }
}

TEST(Dtype, f16_goes_through_f64_and_back) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const float value = f32_from_f16(static_cast<uint16_t>(bits));
    if (std::isnan(value)) {
      EXPECT_GT(bits & 0x3FFu, 0u);
      continue;
    }
    ASSERT_EQ(f16_from_f64(value), bits);
  }
  EXPECT_EQ(f32_from_f16(0x3C00), 1.0f);
  EXPECT_EQ(f32_from_f16(0xC000), -2.0f);
  EXPECT_EQ(f32_from_f16(0x7BFF), 65504.0f);
  EXPECT_EQ(f32_from_f16(0x0001), 0x1p-24f);
  EXPECT_TRUE(std::isinf(f32_from_f16(0x7C00)));
}

TEST(Dtype, f16_from_f64_rounds_ties_to_even) {
  EXPECT_EQ(f16_from_f64(1.0 + 0x1p-11), 0x3C00);
  EXPECT_EQ(f16_from_f64(1.0 + 3 * 0x1p-11), 0x3C02);
  EXPECT_EQ(f16_from_f64(65519.9), 0x7BFF);
  EXPECT_EQ(f16_from_f64(65520.0), 0x7C00);
  EXPECT_EQ(f16_from_f64(0x1p-25), 0x0000);
  EXPECT_EQ(f16_from_f64(0x1p-14 * (1 - 0x1p-30)), 0x0400);  // rounds up into the normal range
  EXPECT_EQ(f16_from_f64(2.0 * (1 - 0x1p-30)), 0x4000);      // carries into the exponent
}

TEST(Dtype, sizes_and_names) {
  EXPECT_EQ(size_of(DType::kBF16), 2u);
  EXPECT_EQ(size_of(DType::kF64), 8u);
  EXPECT_EQ(size_of(DType::kU32), 4u);
  EXPECT_EQ(size_of(DType::kI8), 1u);
  EXPECT_EQ(name_of(DType::kBF16), "bf16");
  EXPECT_EQ(name_of(DType::kI64), "i64");
}

TEST(Shape, text_of_a_shape) {
  EXPECT_EQ(to_string(Shape{2, 3}), "2x3");
  EXPECT_EQ(to_string(Shape{7}), "7");
  EXPECT_EQ(to_string(Shape{}), "scalar");
}

TEST(Tensor, elements_of_every_type_keep_their_value) {
  for (const DType dtype : {DType::kBF16, DType::kF16, DType::kF32, DType::kF64, DType::kI8,
                            DType::kI16, DType::kI32, DType::kI64, DType::kU8, DType::kU32}) {
    std::vector<std::byte> memory(6 * 8);
    const Tensor t{.data = memory.data(), .dtype = dtype, .shape = {2, 3}};
    for (int i = 0; i < 6; ++i) t.set(i, i * 2);
    for (int i = 0; i < 6; ++i) EXPECT_EQ(t.get(i), i * 2) << name_of(dtype);
  }
}

TEST(Tensor, sub_views_lie_where_they_should) {
  std::vector<float> memory(24);
  for (int i = 0; i < 24; ++i) memory[static_cast<size_t>(i)] = static_cast<float>(i);
  const Tensor t{.data = reinterpret_cast<std::byte*>(memory.data()),
                 .dtype = DType::kF32,
                 .shape = {2, 3, 4}};
  EXPECT_EQ(t.at(1).shape, (Shape{3, 4}));
  EXPECT_EQ(t.at(1).get(0), 12);
  EXPECT_EQ(t.at(1).at(2).get(3), 23);
  EXPECT_EQ(t.at(1).rows(1, 2).shape, (Shape{2, 4}));
  EXPECT_EQ(t.at(1).rows(1, 2).get(0), 16);
  EXPECT_EQ(t.reshaped({6, 4}).at(5).get(3), 23);
  EXPECT_EQ(t.n_bytes(), 96u);
}

}  // namespace
}  // namespace roost
