#include "text/tokenizer.h"

#include <algorithm>
#include <array>

#include "base/random.h"
#include "base/utf8.h"
#include "text/bpe.h"
#include "text/normalize.h"
#include "text/splitter.h"
#include "text/tokenizer_file.h"

namespace roost {

struct Tokenizer::Tables {
  struct Entry {
    std::string bytes;  // empty: the id has no token
    bool is_special = false;
  };
  std::vector<Entry> entries;     // by id
  std::vector<AddedToken> added;  // by text
  std::array<bool, 256> begins_added{};
  Bpe bpe;

  const AddedToken* match_added(std::string_view text, size_t at) const;
  void encode_plain(std::string_view text, Bpe::Scratch& scratch, std::string& storage,
                    std::vector<Token>& out) const;
};

// The longest added token that begins at a place. The candidates are a stretch of the sorted list
// that gets shorter with every byte read; the shortest text of a stretch stands first in it.
const AddedToken* Tokenizer::Tables::match_added(std::string_view text, size_t at) const {
  const AddedToken* longest = nullptr;
  auto begin = added.begin();
  auto end = added.end();
  for (size_t n = 0; begin != end && at + n < text.size(); ++n) {
    const auto byte = static_cast<unsigned char>(text[at + n]);
    begin = std::partition_point(begin, end, [n, byte](const AddedToken& token) {
      return token.text.size() <= n || static_cast<unsigned char>(token.text[n]) < byte;
    });
    end = std::partition_point(begin, end, [n, byte](const AddedToken& token) {
      return static_cast<unsigned char>(token.text[n]) == byte;
    });
    if (begin != end && begin->text.size() == n + 1) longest = &*begin;
  }
  return longest;
}

void Tokenizer::Tables::encode_plain(std::string_view text, Bpe::Scratch& scratch,
                                     std::string& storage, std::vector<Token>& out) const {
  std::string_view rest = normalize_nfc(text, storage);
  while (!rest.empty()) {
    const size_t n_bytes = first_piece(rest);
    bpe.encode(rest.substr(0, n_bytes), scratch, out);
    rest.remove_prefix(n_bytes);
  }
}

Result<Tokenizer> Tokenizer::create(const json::Value& tokenizer,
                                    const json::Value& tokenizer_config) {
  ROOST_TRY(TokenizerFile file, read_tokenizer_file(tokenizer, tokenizer_config));
  auto tables = std::make_shared<Tables>();
  tables->entries.resize(file.bytes_of_id.size());
  for (size_t i = 0; i < file.bytes_of_id.size(); ++i)
    tables->entries[i].bytes = std::move(file.bytes_of_id[i]);
  for (const AddedToken& token : file.added) {
    const auto i = static_cast<size_t>(token.id);
    if (i >= tables->entries.size()) tables->entries.resize(i + 1);
    tables->entries[i] = {token.text, token.is_special};
    tables->begins_added[static_cast<unsigned char>(token.text[0])] = true;
  }
  tables->added = std::move(file.added);
  std::sort(tables->added.begin(), tables->added.end(),
            [](const AddedToken& a, const AddedToken& b) { return a.text < b.text; });
  tables->bpe = Bpe(file.byte_tokens, std::move(file.merges), system_random().next_u64());
  Tokenizer made;
  made.tables_ = std::move(tables);
  return made;
}

std::vector<Token> Tokenizer::encode(std::string_view text) const {
  const Tables& tables = *tables_;
  std::vector<Token> ids;
  Bpe::Scratch scratch(text.size());
  std::string storage;
  size_t n_done = 0;
  for (size_t at = 0; at < text.size();) {
    const AddedToken* token = tables.begins_added[static_cast<unsigned char>(text[at])]
                                  ? tables.match_added(text, at)
                                  : nullptr;
    if (token == nullptr) {
      ++at;
      continue;
    }
    tables.encode_plain(text.substr(n_done, at - n_done), scratch, storage, ids);
    ids.push_back(token->id);
    at += token->text.size();
    n_done = at;
  }
  tables.encode_plain(text.substr(n_done), scratch, storage, ids);
  return ids;
}

std::string_view Tokenizer::bytes_of(Token id) const {
  return exists(id) ? tables_->entries[static_cast<size_t>(id)].bytes : std::string_view();
}

bool Tokenizer::is_special(Token id) const {
  return exists(id) && tables_->entries[static_cast<size_t>(id)].is_special;
}

bool Tokenizer::exists(Token id) const {
  return id >= 0 && id < n_tokens() && !tables_->entries[static_cast<size_t>(id)].bytes.empty();
}

std::optional<Token> Tokenizer::find_added(std::string_view text) const {
  const auto& added = tables_->added;
  const auto place = std::lower_bound(
      added.begin(), added.end(), text,
      [](const AddedToken& token, std::string_view wanted) { return token.text < wanted; });
  if (place == added.end() || place->text != text) return std::nullopt;
  return place->id;
}

Token Tokenizer::n_tokens() const {
  return static_cast<Token>(tables_->entries.size());
}

std::string Tokenizer::decode(const std::vector<Token>& ids, bool skip_special) const {
  std::string bytes;
  for (const Token id : ids)
    if (!skip_special || !is_special(id)) bytes += bytes_of(id);
  return replace_invalid_utf8(bytes);
}

}  // namespace roost
