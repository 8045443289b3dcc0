#include "base/hash.h"

#include <fmt/format.h>
#include <openssl/evp.h>
#include <xxhash.h>

#include <memory>
#include <vector>

#include "base/check.h"

namespace roost {

std::string hex_of(std::span<const std::byte> bytes) {
  static constexpr char kHex[] = "0123456789abcdef";
  std::string text;
  text.reserve(2 * bytes.size());
  for (const std::byte byte : bytes) {
    text += kHex[std::to_integer<int>(byte >> 4)];
    text += kHex[std::to_integer<int>(byte & std::byte{15})];
  }
  return text;
}

std::string sha256_hex(std::span<const std::byte> bytes) {
  std::array<unsigned char, 32> digest{};
  unsigned int n_digest = 0;
  ROOST_CHECK(
      EVP_Digest(bytes.data(), bytes.size(), digest.data(), &n_digest, EVP_sha256(), nullptr) == 1);
  ROOST_CHECK(n_digest == digest.size());
  return hex_of(std::as_bytes(std::span(digest)));
}

std::string token_sha256(std::span<const int32_t> ids) {
  std::vector<std::byte> bytes;
  bytes.reserve(ids.size() * 4);
  for (const int32_t id : ids) {
    const auto u = static_cast<uint32_t>(id);
    for (int shift = 0; shift < 32; shift += 8) bytes.push_back(std::byte(u >> shift & 0xFF));
  }
  return sha256_hex(bytes);
}

Hash128 xxh3_128(std::span<const std::byte> bytes, uint64_t seed) {
  const XXH128_hash_t hash = XXH3_128bits_withSeed(bytes.data(), bytes.size(), seed);
  return {hash.low64, hash.high64};
}

std::string hex_of(const Hash128& hash) {
  return fmt::format("{:016x}{:016x}", hash.high, hash.low);
}

}  // namespace roost
