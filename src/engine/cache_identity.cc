#include "engine/cache_identity.h"

#include <algorithm>
#include <span>

#include "base/hash.h"

namespace roost {
namespace {

// Raised when the bits of any op, of the page or of the state layout change.
constexpr int kNumericsVersion = 1;
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
                           const std::string& backend) {
  const ModelConfig& c = weights.config;
  // The number of threads changes no bit.
  std::string text = backend.substr(0, backend.find(',')) + " numerics " +
                     std::to_string(kNumericsVersion) + " page " + std::to_string(kPageTokens) +
                     (kv == KvFormat::kInt8 ? " kv int8" : "");
  for (const int64_t n :
       {c.n_layers, c.hidden, c.n_heads, c.n_kv_heads, c.head_dim, c.rotary_dims, c.n_key_heads,
        c.n_value_heads, c.key_dim, c.value_dim, c.n_experts, c.experts_per_token})
    text += " " + std::to_string(n);
  text += " " + std::to_string(c.rope_theta) + " " + std::to_string(c.norm_eps * 1e9);
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
