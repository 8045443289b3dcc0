#include "base/hash.h"

#include <gtest/gtest.h>

#include <set>
#include <vector>

namespace roost {
namespace {

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text));
}

TEST(Hash, sha256_is_that_of_the_standard) {
  EXPECT_EQ(sha256_hex({}), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(sha256_hex(bytes_of("abc")),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

TEST(Hash, tokens_are_hashed_as_little_endian_words) {
  const std::vector<int32_t> ids = {1, 0x01020304, 248319};
  const std::string words("\x01\0\0\0\x04\x03\x02\x01\xFF\xC9\x03\0", 12);
  EXPECT_EQ(token_sha256(ids), sha256_hex(bytes_of(words)));
  EXPECT_EQ(token_sha256({}), sha256_hex({}));
}

TEST(Hash, xxh3_is_that_of_the_library_and_depends_on_the_seed) {
  // XXH128 of the empty text with seed 0, from the algorithm's own test values.
  EXPECT_EQ(xxh3_128({}, 0), (Hash128{0x6001C324468D497Fu, 0x99AA06D3014798D8u}));
  EXPECT_NE(xxh3_128(bytes_of("abc"), 0), xxh3_128(bytes_of("abc"), 1));
  EXPECT_NE(xxh3_128(bytes_of("abc"), 1), xxh3_128(bytes_of("abd"), 1));
  EXPECT_EQ(xxh3_128(bytes_of("abc"), 1), xxh3_128(bytes_of("abc"), 1));
}

}  // namespace
}  // namespace roost
