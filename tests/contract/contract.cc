// Fills, guarded memory and comparison of the contract harness.
#include "tests/contract/contract.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace roost::contract {
namespace {

constexpr size_t kAlign = 64;
constexpr std::byte kGuard{0xC3};
constexpr std::byte kNoInteger{0xA5};  // a value that no op answers with
constexpr std::byte kNan{0xFF};        // NaN in every float type

bool is_float(DType dtype) {
  return dtype == DType::kBF16 || dtype == DType::kF16 || dtype == DType::kF32 ||
         dtype == DType::kF64;
}

double as_bf16(double value) {
  return static_cast<double>(f32_from_bf16(bf16_from_f32(static_cast<float>(value))));
}

// A small generator of the tests' own: values must not move when another folder changes.
class Stream {
 public:
  explicit Stream(uint64_t seed) : state_(seed * 0x9E3779B97F4A7C15u + 1) {}
  uint64_t next() {
    state_ += 0x9E3779B97F4A7C15u;
    uint64_t x = state_;
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
    return x ^ (x >> 31);
  }
  double unit() { return static_cast<double>(next() >> 11) * 0x1p-53; }
  double normal() {  // Box and Muller
    return std::sqrt(-2 * std::log(1 - unit())) * std::cos(6.283185307179586 * unit());
  }

 private:
  uint64_t state_;
};

// 251 magnitudes and two signs: neighbours at any power-of-two distance differ.
double coordinate(int64_t i) {
  const double magnitude = static_cast<double>(i % 251 + 1) / 64;
  return (i / 251) % 2 == 0 ? magnitude : -magnitude;
}

// The rows as one little-endian bit string each; rows are whole bytes.
std::vector<std::byte> packed_codes(const MatrixValues& m) {
  std::vector<std::byte> bytes;
  bytes.reserve(m.codes.size() * static_cast<size_t>(m.format.bits) / 8);
  uint64_t window = 0;
  int n_bits = 0;
  for (const uint32_t code : m.codes) {
    window |= uint64_t{code} << n_bits;
    n_bits += m.format.bits;
    for (; n_bits >= 8; n_bits -= 8, window >>= 8) bytes.push_back(static_cast<std::byte>(window));
  }
  return bytes;
}

std::vector<std::byte> stored(DType dtype, std::span<const double> numbers) {
  std::vector<std::byte> bytes(numbers.size() * size_of(dtype));
  for (size_t i = 0; i < numbers.size(); ++i) {
    const auto value = static_cast<float>(numbers[i]);
    const uint16_t half = bf16_from_f32(value);
    if (dtype == DType::kBF16) std::memcpy(&bytes[i * 2], &half, 2);
    if (dtype == DType::kF32) std::memcpy(&bytes[i * 4], &value, 4);
  }
  return bytes;
}

}  // namespace

std::string name_of(Fill fill) {
  switch (fill) {
    case Fill::kNormal:
      return "normal";
    case Fill::kTiny:
      return "tiny";
    case Fill::kHuge:
      return "huge";
    case Fill::kCancelling:
      return "cancelling";
    case Fill::kCoordinates:
      return "coordinates";
  }
  return "";
}

std::vector<double> values(Fill fill, int64_t n, uint64_t seed) {
  Stream stream(seed);
  std::vector<double> out(static_cast<size_t>(n));
  for (size_t i = 0; i < out.size(); ++i) {
    double value = stream.normal();
    if (fill == Fill::kTiny) value *= 1e-4;
    if (fill == Fill::kHuge) value *= 1e4;
    if (fill == Fill::kCancelling && i % 2 == 1) value = -out[i - 1] * (1 + value / 64);
    if (fill == Fill::kCoordinates) value = coordinate(static_cast<int64_t>(i + seed % 7));
    out[i] = as_bf16(value);
  }
  return out;
}

std::vector<double> uniform(double low, double high, int64_t n, uint64_t seed) {
  Stream stream(seed);
  std::vector<double> out(static_cast<size_t>(n));
  for (double& value : out) value = as_bf16(low + (high - low) * stream.unit());
  return out;
}

std::vector<MatrixFormat> all_formats() {
  std::vector<MatrixFormat> formats;
  for (const DType dtype : {DType::kBF16, DType::kF32}) {
    for (const int bits : {2, 3, 4, 5, 6, 8}) {
      for (const int group : {32, 64, 128})
        formats.push_back({QuantMatrix::Format::kAffine, bits, group, dtype});
    }
    formats.push_back({QuantMatrix::Format::kPlain, 0, 1, dtype});
  }
  return formats;
}

std::string name_of(const MatrixFormat& format) {
  if (format.format == QuantMatrix::Format::kPlain)
    return fmt::format("plain-{}", name_of(format.dtype));
  return fmt::format("q{}g{}-{}", format.bits, format.group, name_of(format.dtype));
}

double MatrixValues::at(int64_t row, int64_t col) const {
  const auto i = static_cast<size_t>(row * n_in + col);
  if (format.format == QuantMatrix::Format::kPlain) return plain[i];
  const size_t g = i / static_cast<size_t>(format.group);
  return scales[g] * codes[i] + biases[g];
}

double MatrixValues::magnitude(int64_t row, int64_t col) const {
  const auto i = static_cast<size_t>(row * n_in + col);
  if (format.format == QuantMatrix::Format::kPlain) return std::abs(plain[i]);
  const size_t g = i / static_cast<size_t>(format.group);
  return std::abs(scales[g] * codes[i]) + std::abs(biases[g]);
}

MatrixValues MatrixValues::rows(int64_t begin, int64_t n) const {
  const auto cut = [&](const auto& list) {
    const auto width = static_cast<std::ptrdiff_t>(list.size()) / n_out;
    return std::remove_cvref_t<decltype(list)>(list.begin() + begin * width,
                                               list.begin() + (begin + n) * width);
  };
  return {format, n, n_in, cut(codes), cut(scales), cut(biases), cut(plain)};
}

MatrixValues matrix_values(const MatrixFormat& format, int64_t n_out, int64_t n_in, Fill fill,
                           uint64_t seed, double size) {
  MatrixValues m{format, n_out, n_in, {}, {}, {}, {}};
  if (format.format == QuantMatrix::Format::kPlain) {
    m.plain = values(fill, n_out * n_in, seed);
    for (double& value : m.plain) value = as_bf16(value * size);
    return m;
  }
  ROOST_CHECK(n_in % format.group == 0);
  Stream stream(seed);
  m.codes.resize(static_cast<size_t>(n_out * n_in));
  for (size_t i = 0; i < m.codes.size(); ++i) {
    const uint64_t draw = fill == Fill::kCoordinates ? i : stream.next();
    m.codes[i] = static_cast<uint32_t>(draw) & ((1u << format.bits) - 1);
  }
  const int64_t n_groups = n_out * n_in / format.group;
  const double step = size * 4 / ((1 << format.bits) - 1);
  m.scales = values(fill, n_groups, seed + 1);
  m.biases.resize(m.scales.size());
  for (size_t i = 0; i < m.scales.size(); ++i) {
    m.scales[i] *= step;
    // About the middle of the codes, so that weights are of both signs.
    m.biases[i] = -m.scales[i] * ((1 << format.bits) - 1) * (0.4 + 0.2 * stream.unit());
    if (format.dtype == DType::kBF16) {
      m.scales[i] = as_bf16(m.scales[i]);
      m.biases[i] = as_bf16(m.biases[i]);
    } else {
      m.scales[i] = static_cast<float>(m.scales[i] * 1.0009765625);
      m.biases[i] = static_cast<float>(m.biases[i]);
    }
  }
  return m;
}

Memory::Block& Memory::add(Kind kind, size_t n_bytes, size_t skew) {
  Block& block = blocks_.emplace_back();
  block.kind = kind;
  block.n_bytes = n_bytes;
  block.bytes.assign(kAlign + skew + kGuardBytes + n_bytes + kGuardBytes, kGuard);
  const auto start = reinterpret_cast<uintptr_t>(block.bytes.data()) + kGuardBytes;
  block.offset = kGuardBytes + (kAlign - start % kAlign) % kAlign + skew;
  return block;
}

Tensor Memory::tensor(Block& block, DType dtype, const Shape& shape,
                      std::span<const double> numbers) {
  const Tensor tensor{block.data(), dtype, shape};
  ROOST_CHECK(static_cast<size_t>(tensor.n_elements()) == numbers.size());
  for (size_t i = 0; i < numbers.size(); ++i) tensor.set(static_cast<int64_t>(i), numbers[i]);
  return tensor;
}

Tensor Memory::input(DType dtype, const Shape& shape, std::span<const double> numbers) {
  Block& block = add(Kind::kInput, numbers.size() * size_of(dtype), 0);
  const Tensor made = tensor(block, dtype, shape, numbers);
  block.original.assign(block.data(), block.data() + block.n_bytes);
  return made;
}

Tensor Memory::output(DType dtype, const Shape& shape) {
  if (mode_ == Mode::kWide && dtype == DType::kBF16) dtype = DType::kF64;
  const size_t n_bytes = static_cast<size_t>(shape.n_elements()) * size_of(dtype);
  Block& block = add(Kind::kOutput, n_bytes, 0);
  std::fill_n(block.data(), n_bytes, is_float(dtype) ? kNan : kNoInteger);
  return {block.data(), dtype, shape};
}

Tensor Memory::in_out(DType dtype, const Shape& shape, std::span<const double> numbers) {
  const bool is_wide = mode_ == Mode::kWide && dtype == DType::kBF16;
  Block& block = add(Kind::kOutput, numbers.size() * size_of(is_wide ? DType::kF64 : dtype), 0);
  if (!is_wide) return tensor(block, dtype, shape, numbers);
  std::vector<double> rounded(numbers.begin(), numbers.end());
  for (double& value : rounded) value = as_bf16(value);
  return tensor(block, DType::kF64, shape, rounded);
}

const std::byte* Memory::keep_input(std::span<const std::byte> bytes, size_t skew) {
  Block& block = add(Kind::kInput, bytes.size(), skew);
  std::copy(bytes.begin(), bytes.end(), block.data());
  block.original.assign(bytes.begin(), bytes.end());
  return block.data();
}

QuantMatrix Memory::matrix(const MatrixValues& m, bool misaligned) {
  QuantMatrix w;
  w.format = m.format.format;
  w.dtype = m.format.dtype;
  w.n_out = m.n_out;
  w.n_in = m.n_in;
  const size_t skew = misaligned ? 3 : 0;
  if (w.format == QuantMatrix::Format::kPlain) {
    w.codes = keep_input(stored(w.dtype, m.plain), skew);
    return w;
  }
  w.bits = m.format.bits;
  w.group = m.format.group;
  w.codes = keep_input(packed_codes(m), skew);
  w.scales = keep_input(stored(w.dtype, m.scales), misaligned ? 1 : 0);
  w.biases = keep_input(stored(w.dtype, m.biases), misaligned ? 5 : 0);
  return w;
}

std::string Memory::damage() const {
  for (size_t b = 0; b < blocks_.size(); ++b) {
    const Block& block = blocks_[b];
    for (size_t i = 0; i < block.bytes.size(); ++i) {
      const bool is_guard = i < block.offset || i >= block.offset + block.n_bytes;
      if (is_guard && block.bytes[i] != kGuard)
        return fmt::format(
            "tensor {} of the call: written {} bytes {} it", b,
            i < block.offset ? block.offset - i : i + 1 - block.offset - block.n_bytes,
            i < block.offset ? "in front of" : "behind");
    }
    if (block.kind == Kind::kInput &&
        std::memcmp(block.data(), block.original.data(), block.n_bytes) != 0)
      return fmt::format("tensor {} of the call: an input was changed", b);
  }
  return "";
}

std::string Memory::difference(const Memory& other) const {
  ROOST_CHECK(blocks_.size() == other.blocks_.size());
  for (size_t b = 0; b < blocks_.size(); ++b) {
    const Block& mine = blocks_[b];
    const Block& theirs = other.blocks_[b];
    ROOST_CHECK(mine.n_bytes == theirs.n_bytes);
    const auto at = std::mismatch(mine.data(), mine.data() + mine.n_bytes, theirs.data()).first;
    if (at != mine.data() + mine.n_bytes)
      return fmt::format("tensor {} of the call at byte {}", b, at - mine.data());
  }
  return "";
}

void Judge::fail(const std::string& what) {
  if (report_.empty()) report_ = what;
}

void Judge::near(const std::string& name, const Tensor& got, const Tensor& exact,
                 const Bound& bound) {
  ROOST_CHECK(got.shape == exact.shape);
  for (int64_t i = 0; i < got.n_elements(); ++i) {
    const double have = got.get(i), want = exact.get(i);
    if ((std::isnan(have) && std::isnan(want)) || have == want) continue;
    const double error = std::abs(have - want), allowed = bound(i);
    if (allowed > 0 && error <= allowed) {
      worst_ = std::max(worst_, error / allowed);
      continue;
    }
    return fail(fmt::format("{}[{}] of {}: have {:.9g}, want {:.9g}, off by {:.3g}, bound {:.3g}",
                            name, i, to_string(got.shape), have, want, error, allowed));
  }
}

void Judge::equal(const std::string& name, const Tensor& got, const Tensor& exact) {
  near(name, got, exact, [](int64_t) { return 0.0; });
}

std::string row_difference(const Tensor& a, int64_t i, const Tensor& b, int64_t j) {
  const Tensor row_a = a.at(i), row_b = b.at(j);
  ROOST_CHECK(row_a.n_bytes() == row_b.n_bytes() && a.dtype == b.dtype);
  if (std::memcmp(row_a.data, row_b.data, row_a.n_bytes()) == 0) return "";
  for (int64_t k = 0; k < row_a.n_elements(); ++k) {
    if (std::memcmp(row_a.data + k * static_cast<int64_t>(size_of(a.dtype)),
                    row_b.data + k * static_cast<int64_t>(size_of(a.dtype)), size_of(a.dtype)) != 0)
      return fmt::format("row {} differs from row {} at {}: {:.9g} and {:.9g}", i, j, k,
                         row_a.get(k), row_b.get(k));
  }
  return "";
}

void CpuMachine::spoil_workspace() {
  const Arena::Scope scope(workspace_);
  const std::span<std::byte> used = workspace_.span<std::byte>(workspace_.n_used_max());
  std::fill(used.begin(), used.end(), kNan);
}

std::vector<std::vector<int64_t>> regroupings(int64_t n_rows) {
  std::vector<std::vector<int64_t>> groups;
  std::vector<int64_t> all, reversed, shifted;
  for (int64_t i = 0; i < n_rows; ++i) {
    all.push_back(i);
    reversed.push_back(n_rows - 1 - i);
    shifted.push_back((i + 1) % n_rows);
    // Every row of a small call alone; of a large one the first, the last and some between.
    if (n_rows <= 8 || i == 0 || i == n_rows - 1 || i % 7 == 3) groups.push_back({i});
  }
  std::vector<int64_t> doubled{n_rows - 1};
  doubled.insert(doubled.end(), all.begin(), all.end());
  groups.push_back(doubled);
  groups.push_back(reversed);
  groups.push_back(shifted);
  if (n_rows > 2) groups.push_back({all.begin() + n_rows / 3, all.end()});
  return groups;
}

}  // namespace roost::contract
