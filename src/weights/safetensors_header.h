// The JSON header of a safetensors file, read by a scanner of its own: a header is one fixed shape,
// so nothing of it needs to become a tree that a hostile file could blow up.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace roost {

// One tensor as the header spells it; nothing is checked against the data yet.
struct HeaderEntry {
  std::string name;
  std::string dtype;  // "BF16"
  std::vector<uint64_t> shape;
  uint64_t begin = 0, end = 0;  // data_offsets
};

// Refuses checkpoint.header with the byte offset for everything that is not such a header.
Result<std::vector<HeaderEntry>> parse_safetensors_header(std::string_view header);

}  // namespace roost
