// Matrices on their way to a card: as they lie, through a piece of its memory to bricks, or made
// there.
#include "weights/card_weights.h"

#include <algorithm>

#include "weights/card_kernels.h"

namespace roost {
namespace {

// Few pieces for the largest matrix, and nothing beside the weights.
constexpr size_t kPieceBytes = size_t{64} << 20;

SyntheticBytes::Kind kind_of(SyntheticKind kind) {
  if (kind == SyntheticKind::kScales) return SyntheticBytes::Kind::kScales;
  if (kind == SyntheticKind::kBiases) return SyntheticBytes::Kind::kBiases;
  ROOST_CHECK(kind == SyntheticKind::kCodes);
  return SyntheticBytes::Kind::kCodes;
}

}  // namespace

CardWeights::CardWeights(cuda::Card& card, const SyntheticMemory* synthetic)
    : WeightTaker(card), card_(card), synthetic_(synthetic), piece_(kPieceBytes) {}

QuantMatrix CardWeights::layout_of(const QuantMatrix& matrix) const {
  QuantMatrix kept = matrix;
  const bool has_bricks = matrix.format == QuantMatrix::Format::kAffine &&
                          (matrix.bits == 4 || matrix.bits == 8) && matrix.group == 64 &&
                          matrix.dtype == DType::kBF16;
  if (!has_bricks) return kept;
  kept.format = QuantMatrix::Format::kBricks;
  kept.scales = kept.biases = nullptr;
  return kept;
}

void CardWeights::bring(std::byte* to, const std::byte* from, size_t n_bytes) {
  const auto place = synthetic_ != nullptr ? synthetic_->find(from) : SyntheticMemory::Place{};
  if (place.tensor == nullptr) return card_.write(to, from, n_bytes);
  const SyntheticBytes bytes{.seed = synthetic_->seed(),
                             .tensor_id = place.tensor->id,
                             .kind = kind_of(place.tensor->kind),
                             .base = place.tensor->base,
                             .bits = place.tensor->bits,
                             .first_byte = place.offset};
  fill_synthetic_cuda(bytes, to, n_bytes, card_.stream());
}

void CardWeights::take(const QuantMatrix& from, const QuantMatrix& kept) {
  if (kept.format == QuantMatrix::Format::kBricks) return take_bricks(from, kept);
  bring(const_cast<std::byte*>(kept.codes), from.codes, from.n_code_bytes());
  if (from.format != QuantMatrix::Format::kAffine) return;
  bring(const_cast<std::byte*>(kept.scales), from.scales, from.n_scale_bytes());
  bring(const_cast<std::byte*>(kept.biases), from.biases, from.n_scale_bytes());
}

void CardWeights::take_bricks(const QuantMatrix& from, const QuantMatrix& kept) {
  const size_t row_bytes = from.row_bytes() + 2 * static_cast<size_t>(from.n_groups()) * 2;
  const int64_t n_fit = static_cast<int64_t>((kPieceBytes - 1024) / row_bytes) / 64 * 64;
  ROOST_CHECK(n_fit >= 64);
  for (int64_t begin = 0; begin < from.n_out; begin += n_fit) {
    const QuantMatrix part = from.rows(begin, std::min(n_fit, from.n_out - begin));
    const auto padded = [](size_t n) { return (n + 255) / 256 * 256; };
    std::byte* codes = piece_.data();
    std::byte* scales = codes + padded(part.n_code_bytes());
    std::byte* biases = scales + padded(part.n_scale_bytes());
    bring(codes, part.codes, part.n_code_bytes());
    bring(scales, part.scales, part.n_scale_bytes());
    bring(biases, part.biases, part.n_scale_bytes());
    const AffineRows rows{reinterpret_cast<const uint8_t*>(codes),
                          reinterpret_cast<const uint16_t*>(scales),
                          reinterpret_cast<const uint16_t*>(biases), part.n_out, part.n_in};
    const QuantMatrix to = kept.rows(begin, part.n_out);
    auto* bricks = reinterpret_cast<uint8_t*>(const_cast<std::byte*>(to.codes));
    make_bricks_cuda(rows, from.bits, bricks, card_.stream());
  }
}

}  // namespace roost
