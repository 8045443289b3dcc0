// Reading a weight matrix one element at a time, and cutting rows out of it.
#include "tensor/quant_layout.h"

#include <cstring>

#include "base/check.h"

namespace roost {

namespace {

// A bf16 or f32 at any address.
double load_number(const std::byte* from, DType dtype) {
  if (dtype == DType::kBF16) {
    uint16_t bits;
    std::memcpy(&bits, from, sizeof(bits));
    return f32_from_bf16(bits);
  }
  ROOST_CHECK(dtype == DType::kF32);
  float value;
  std::memcpy(&value, from, sizeof(value));
  return value;
}

}  // namespace

size_t QuantMatrix::row_bytes() const {
  const auto n = static_cast<size_t>(n_in);
  return format == Format::kPlain ? n * size_of(dtype) : n * static_cast<size_t>(bits) / 8;
}

size_t QuantMatrix::n_code_bytes() const {
  if (format == Format::kBricks)
    return static_cast<size_t>((n_out + 63) / 64 * (n_in / 64)) * brick_bytes();
  return static_cast<size_t>(n_out) * row_bytes();
}

size_t QuantMatrix::n_scale_bytes() const {
  if (format != Format::kAffine) return 0;
  return static_cast<size_t>(n_out * n_groups()) * size_of(dtype);
}

size_t QuantMatrix::n_bytes() const {
  return n_code_bytes() + 2 * n_scale_bytes();
}

uint32_t QuantMatrix::code(int64_t row, int64_t col) const {
  ROOST_DCHECK(format == Format::kAffine && row >= 0 && row < n_out && col >= 0 && col < n_in);
  const std::byte* bytes = codes + static_cast<size_t>(row) * row_bytes();
  const auto first_bit = static_cast<size_t>(col) * static_cast<size_t>(bits);
  const size_t byte = first_bit / 8;
  // A code of at most 8 bits touches at most two bytes; the second may lie behind the row's end.
  auto window = static_cast<uint32_t>(bytes[byte]);
  if (byte + 1 < row_bytes()) window |= static_cast<uint32_t>(bytes[byte + 1]) << 8;
  return (window >> (first_bit % 8)) & ((1u << bits) - 1u);
}

double QuantMatrix::decode(int64_t row, int64_t col) const {
  ROOST_DCHECK(format != Format::kBricks && row >= 0 && row < n_out && col >= 0 && col < n_in);
  if (format == Format::kPlain) {
    return load_number(codes + static_cast<size_t>(row * n_in + col) * size_of(dtype), dtype);
  }
  const size_t at = static_cast<size_t>(row * n_groups() + col / group) * size_of(dtype);
  return load_number(scales + at, dtype) * code(row, col) + load_number(biases + at, dtype);
}

QuantMatrix QuantMatrix::rows(int64_t begin, int64_t n) const {
  ROOST_CHECK(exists() && begin >= 0 && n >= 0 && n <= n_out - begin);
  QuantMatrix sub = *this;
  sub.n_out = n;
  if (format == Format::kBricks) {
    ROOST_CHECK(begin % 64 == 0);
    sub.codes += static_cast<size_t>(begin / 64 * (n_in / 64)) * brick_bytes();
    return sub;
  }
  sub.codes += static_cast<size_t>(begin) * row_bytes();
  if (format == Format::kAffine) {
    const size_t skip = static_cast<size_t>(begin * n_groups()) * size_of(dtype);
    sub.scales += skip;
    sub.biases += skip;
  }
  return sub;
}

}  // namespace roost
