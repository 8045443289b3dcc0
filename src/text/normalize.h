// Unicode normalization form C, which the tokenizer wants before it splits.
#pragma once

#include <string>
#include <string_view>

namespace roost {

// The text in NFC: `text` itself where it is NFC at first sight, else bytes that lie in `storage`.
// Bytes that are not UTF-8 stay as they are and end every composition. Time grows as n log n at
// most.
std::string_view normalize_nfc(std::string_view text, std::string& storage);

}  // namespace roost
