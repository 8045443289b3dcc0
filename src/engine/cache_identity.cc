#include "engine/cache_identity.h"

#include <algorithm>
#include <span>

#include "base/hash.h"

namespace roost {
namespace {

constexpr size_t kSampleBytes = 4096;  // from the start, the middle and the end of a tensor

std::string sample_of(std::span<const std::byte> bytes) {
  std::string text = std::to_string(bytes.size());
  for (const size_t at : {size_t{0}, bytes.size() / 2, bytes.size()}) {
    const size_t from = std::min(at, bytes.size() - std::min(bytes.size(), kSampleBytes));
    const Hash128 hash =
        xxh3_128(bytes.subspan(from, std::min(kSampleBytes, bytes.size() - from)), 0);
    text += " " + std::to_string(hash.low);
  }
  return text;
}

}  // namespace

std::string cache_identity(const ModelWeights& weights, const DrafterWeights* drafter, KvFormat kv,
                           const std::string& backend, const std::string& build) {
  // The number of threads changes no bit.
  std::string text = "build " + build + " " + backend.substr(0, backend.find(',')) + " page " +
                     std::to_string(kPageTokens) + (kv == KvFormat::kInt8 ? " kv int8" : "") +
                     " config " + weights.config.digest;
  if (drafter != nullptr)
    text += " drafter " + std::to_string(drafter->identity.low) + " " +
            std::to_string(drafter->identity.high);
  if (weights.checkpoint) {
    for (const auto& [name, tensor] : weights.checkpoint->tensors())
      text += "\n" + name + " " + sample_of(tensor.bytes);
  }
  return sha256_hex(std::as_bytes(std::span(text)));
}

}  // namespace roost
