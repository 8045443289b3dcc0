// What tokenizer.json and tokenizer_config.json say, read and checked.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "text/bpe.h"
#include "text/tokenizer.h"

namespace roost {

struct AddedToken {
  Token id = 0;
  std::string text;  // not empty
  bool is_special = false;
};

struct TokenizerFile {
  std::vector<std::string> bytes_of_id;  // base vocabulary; empty for ids without an entry
  std::array<Token, 256> byte_tokens{};  // the token of each single byte
  std::vector<Merge> merges;             // in order of rank, no pair twice
  std::vector<AddedToken> added;         // no text and no id twice
};

// Refuses tokenizer.file, naming the place and the value, for every component that is not of the
// family's kind. tokenizer_config may be null.
Result<TokenizerFile> read_tokenizer_file(const json::Value& tokenizer,
                                          const json::Value& tokenizer_config);

}  // namespace roost
