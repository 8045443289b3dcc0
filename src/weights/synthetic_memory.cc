// Laying the tensors of a synthetic checkpoint out in memory.
#include "weights/synthetic_memory.h"

#include <iterator>
#include <utility>

namespace roost {
namespace {

constexpr uint64_t kAlign = 4096;

uint64_t rounded_up(uint64_t n) {
  return (n + kAlign - 1) / kAlign * kAlign;
}

bool is_large(SyntheticKind kind) {
  return kind == SyntheticKind::kCodes || kind == SyntheticKind::kScales ||
         kind == SyntheticKind::kBiases;
}

}  // namespace

Result<SyntheticMemory> SyntheticMemory::create(const SyntheticOptions& options, bool is_filled) {
  SyntheticMemory made;
  made.seed_ = options.seed;
  ROOST_TRY(const json::Value config, synthetic_config(options));
  ROOST_TRY(made.config_, parse_config(config));
  ROOST_TRY(const std::vector<SyntheticTensor> tensors, synthetic_tensors(options));
  uint64_t n_bytes = 0;
  for (const SyntheticTensor& tensor : tensors) n_bytes += rounded_up(tensor.n_bytes());

  MappedFile memory = MappedFile::anonymous(n_bytes);
  const std::span<std::byte> bytes = memory.anonymous_bytes();
  std::vector<TensorEntry> entries;
  uint64_t at = 0;
  for (const SyntheticTensor& tensor : tensors) {
    const std::span<std::byte> place = bytes.subspan(at, tensor.n_bytes());
    if (is_filled || !is_large(tensor.kind)) fill_synthetic(tensor, options.seed, 0, place);
    entries.push_back(
        {.name = tensor.name, .dtype = tensor.dtype, .shape = tensor.shape, .bytes = place});
    made.tensors_.emplace(place.data(), tensor);
    at += rounded_up(tensor.n_bytes());
  }
  made.checkpoint_ = std::make_shared<const Checkpoint>(
      Checkpoint::in_memory(std::move(memory), std::move(entries)));
  return made;
}

SyntheticMemory::Place SyntheticMemory::find(const std::byte* byte) const {
  const auto behind = tensors_.upper_bound(byte);
  if (behind == tensors_.begin()) return {};
  const auto& [first, tensor] = *std::prev(behind);
  const auto offset = static_cast<uint64_t>(byte - first);
  return offset < tensor.n_bytes() ? Place{&tensor, offset} : Place{};
}

}  // namespace roost
