// Cuts text into the pieces that merges never cross (docs/MODEL.md, tokenizer).
#pragma once

#include <cstddef>
#include <string_view>

namespace roost {

// True for the spellings of the family's split pattern that first_piece carries out.
bool is_known_split_pattern(std::string_view regex);

// Bytes of the first piece of a text that is not empty. Bytes that are not UTF-8 count as
// characters that are neither letter, mark, number nor space.
size_t first_piece(std::string_view text);

}  // namespace roost
