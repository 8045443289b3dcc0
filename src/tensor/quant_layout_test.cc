// The packing of codes at every width and group, and rows of matrices.
#include "tensor/quant_layout.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

namespace roost {
namespace {

constexpr int kWidths[] = {2, 3, 4, 5, 6, 8};
constexpr int kGroups[] = {32, 64, 128};

// Packs by the definition, bit by bit: code i occupies bits [i·bits, (i+1)·bits) of the row.
std::vector<std::byte> pack(const std::vector<uint32_t>& codes, int bits) {
  std::vector<std::byte> bytes(codes.size() * static_cast<size_t>(bits) / 8);
  for (size_t i = 0; i < codes.size(); ++i) {
    for (size_t b = 0; b < static_cast<size_t>(bits); ++b) {
      const size_t at = i * static_cast<size_t>(bits) + b;
      if ((codes[i] >> b) & 1u) bytes[at / 8] |= std::byte{1} << (at % 8);
    }
  }
  return bytes;
}

QuantMatrix one_row(const std::vector<std::byte>& bytes, int bits, int64_t n) {
  return {.bits = bits, .group = 32, .n_out = 1, .n_in = n, .codes = bytes.data()};
}

struct CheckValue {
  int bits;
  std::vector<uint32_t> codes;
  std::vector<unsigned> bytes;
};

TEST(QuantMatrix, reads_the_published_check_values) {
  const CheckValue values[] = {
      {2, {0, 1, 2, 3, 3, 2, 1, 0}, {0xE4, 0x1B}},
      {3, {0, 1, 2, 3, 4, 5, 6, 7}, {0x88, 0xC6, 0xFA}},
      {4, {1, 2, 3, 4, 5, 6, 7, 8}, {0x21, 0x43, 0x65, 0x87}},
      {5, {1, 2, 3, 4, 5, 6, 7, 8}, {0x41, 0x0C, 0x52, 0xCC, 0x41}},
      {5, {31, 0, 16, 1, 8, 4, 2, 30}, {0x1F, 0xC0, 0x80, 0x88, 0xF0}},
      {6, {1, 2, 3, 63}, {0x81, 0x30, 0xFC}},
      {8, {1, 255, 0, 7}, {0x01, 0xFF, 0x00, 0x07}},
  };
  for (const CheckValue& value : values) {
    std::vector<std::byte> bytes;
    for (const unsigned b : value.bytes) bytes.push_back(static_cast<std::byte>(b));
    const QuantMatrix m = one_row(bytes, value.bits, static_cast<int64_t>(value.codes.size()));
    for (size_t i = 0; i < value.codes.size(); ++i) {
      EXPECT_EQ(m.code(0, static_cast<int64_t>(i)), value.codes[i])
          << value.bits << " bits, code " << i;
    }
    EXPECT_EQ(pack(value.codes, value.bits), bytes) << value.bits;
  }
}

// A matrix in memory that starts at an odd address.
struct Case {
  QuantMatrix m;
  std::vector<std::byte> codes, scales, biases;
  std::vector<uint32_t> plain_codes;
  std::vector<double> scale_values, bias_values;
};

void append_number(std::vector<std::byte>& to, DType dtype, double value) {
  std::byte raw[4];
  if (dtype == DType::kBF16) {
    const uint16_t bits = bf16_from_f64(value);
    std::memcpy(raw, &bits, 2);
  } else {
    const auto f = static_cast<float>(value);
    std::memcpy(raw, &f, 4);
  }
  to.insert(to.end(), raw, raw + size_of(dtype));
}

Case make_case(int bits, int group, DType dtype) {
  Case c;
  const int64_t n_out = 5, n_in = 2 * 128;
  c.codes.push_back(std::byte{0});
  c.scales.push_back(std::byte{0});
  c.biases.push_back(std::byte{0});
  uint32_t state = 12345;
  for (int64_t r = 0; r < n_out; ++r) {
    std::vector<uint32_t> row;
    for (int64_t i = 0; i < n_in; ++i) {
      state = state * 1664525u + 1013904223u;
      row.push_back((state >> 16) & ((1u << bits) - 1u));
    }
    const auto packed = pack(row, bits);
    c.codes.insert(c.codes.end(), packed.begin(), packed.end());
    c.plain_codes.insert(c.plain_codes.end(), row.begin(), row.end());
    for (int64_t g = 0; g < n_in / group; ++g) {
      c.scale_values.push_back(0.25 + static_cast<double>(r) + static_cast<double>(g) / 8);
      c.bias_values.push_back(-3.0 - static_cast<double>(g));
      append_number(c.scales, dtype, c.scale_values.back());
      append_number(c.biases, dtype, c.bias_values.back());
    }
  }
  c.m = {.bits = bits,
         .group = group,
         .dtype = dtype,
         .n_out = n_out,
         .n_in = n_in,
         .codes = c.codes.data() + 1,
         .scales = c.scales.data() + 1,
         .biases = c.biases.data() + 1};
  return c;
}

TEST(QuantMatrix, decodes_every_width_group_and_scale_type) {
  for (const int bits : kWidths) {
    for (const int group : kGroups) {
      for (const DType dtype : {DType::kBF16, DType::kF32}) {
        const Case c = make_case(bits, group, dtype);
        for (int64_t r = 0; r < c.m.n_out; ++r) {
          for (int64_t i = 0; i < c.m.n_in; ++i) {
            const auto at = static_cast<size_t>(r * c.m.n_in + i);
            const auto g = static_cast<size_t>(r * (c.m.n_in / group) + i / group);
            ASSERT_EQ(c.m.code(r, i), c.plain_codes[at]);
            ASSERT_EQ(c.m.decode(r, i), c.scale_values[g] * c.plain_codes[at] + c.bias_values[g])
                << bits << " bits, group " << group << ", row " << r << ", col " << i;
          }
        }
        EXPECT_EQ(c.m.row_bytes(), c.m.n_in * bits / 8u);
        EXPECT_EQ(c.m.n_bytes(), c.codes.size() + c.scales.size() + c.biases.size() - 3);
      }
    }
  }
}

TEST(QuantMatrix, rows_are_the_same_numbers) {
  for (const int bits : kWidths) {
    const Case c = make_case(bits, 64, DType::kBF16);
    const QuantMatrix sub = c.m.rows(2, 3);
    EXPECT_EQ(sub.n_out, 3);
    for (int64_t r = 0; r < 3; ++r) {
      for (int64_t i = 0; i < c.m.n_in; ++i) ASSERT_EQ(sub.decode(r, i), c.m.decode(r + 2, i));
    }
  }
}

TEST(QuantMatrix, plain_matrices_decode_as_they_are) {
  std::vector<std::byte> bytes{std::byte{0}};
  for (int i = 0; i < 12; ++i) append_number(bytes, DType::kBF16, i * 0.5 - 2);
  const QuantMatrix m{
      .format = QuantMatrix::Format::kPlain, .n_out = 3, .n_in = 4, .codes = bytes.data() + 1};
  EXPECT_EQ(m.decode(0, 0), -2);
  EXPECT_EQ(m.decode(2, 3), 3.5);
  EXPECT_EQ(m.rows(1, 2).decode(1, 3), 3.5);
  EXPECT_EQ(m.row_bytes(), 8u);
  EXPECT_EQ(m.n_bytes(), 24u);
}

TEST(QuantMatrix, bricks_are_whole_and_rows_are_cut_at_them) {
  const std::byte here{};
  QuantMatrix w{.format = QuantMatrix::Format::kBricks,
                .bits = 4,
                .group = 64,
                .n_out = 130,
                .n_in = 192,
                .codes = &here};
  EXPECT_EQ(w.brick_bytes(), 2304u);
  EXPECT_EQ(w.n_code_bytes(), 3u * 3u * 2304u);  // 130 rows are three bricks, the last one padded
  EXPECT_EQ(w.n_scale_bytes(), 0u);
  EXPECT_EQ(w.n_bytes(), w.n_code_bytes());
  const QuantMatrix rest = w.rows(64, 66);
  EXPECT_EQ(rest.codes - w.codes, 3 * 2304);
  EXPECT_EQ(rest.n_code_bytes(), 2u * 3u * 2304u);
  w.bits = 8;
  EXPECT_EQ(w.brick_bytes(), 4352u);
}

}  // namespace
}  // namespace roost
