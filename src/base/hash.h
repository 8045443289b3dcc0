// Hashes: SHA-256 for identity that people compare, XXH3-128 for pages and prefixes.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace roost {

// Two lower-case digits a byte.
std::string hex_of(std::span<const std::byte> bytes);

std::string sha256_hex(std::span<const std::byte> bytes);

// SHA-256 over the ids as little-endian u32, as replies report it.
std::string token_sha256(std::span<const int32_t> ids);

struct Hash128 {
  uint64_t low = 0, high = 0;
  friend bool operator==(const Hash128&, const Hash128&) = default;
};
Hash128 xxh3_128(std::span<const std::byte> bytes, uint64_t seed);
std::string hex_of(const Hash128& hash);  // 32 digits

}  // namespace roost
