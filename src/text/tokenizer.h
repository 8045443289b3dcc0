// Text to token ids and back: byte-level BPE as tokenizer.json describes it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/json.h"
#include "base/result.h"

namespace roost {

using Token = int32_t;

class Tokenizer {
 public:
  // tokenizer: tokenizer.json; tokenizer_config: tokenizer_config.json or null. Added tokens come
  // from both. Refuses tokenizer.file for every component that is not of this family's kind.
  static Result<Tokenizer> create(const json::Value& tokenizer,
                                  const json::Value& tokenizer_config);

  // Added tokens in the text become their ids (leftmost, longest); the rest is normalized (NFC),
  // split and merged. text must be UTF-8 (invalid bytes are encoded as the bytes they are).
  std::vector<Token> encode(std::string_view text) const;

  // Exact bytes of a token: its vocabulary bytes, or the text of an added token. Empty for ids
  // without a token.
  std::string_view bytes_of(Token id) const;
  bool is_special(Token id) const;  // added with special: true; hidden from clients
  bool exists(Token id) const;
  std::optional<Token> find_added(std::string_view text) const;  // id of an added token
  Token n_tokens() const;                                        // one more than the largest id

  // All bytes joined; incomplete UTF-8 becomes U+FFFD. skip_special hides special tokens.
  std::string decode(const std::vector<Token>& ids, bool skip_special) const;

 private:
  struct Tables;
  std::shared_ptr<const Tables> tables_;
};

}  // namespace roost
