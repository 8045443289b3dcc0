#include "text/tokenizer_file.h"

#include <algorithm>
#include <initializer_list>
#include <span>
#include <tuple>
#include <unordered_map>

#include <fmt/core.h>

#include "base/hash.h"
#include "base/limits.h"
#include "base/random.h"
#include "base/utf8.h"
#include "text/splitter.h"

namespace roost {
namespace {

using json::Value;

Error refuse(std::string_view place, std::string_view what) {
  return Error{Refusal::TokenizerFile, fmt::format("{}: {}", place, what)};
}

// A value of the file in a refusal: short, on one line.
std::string shown(const Value& value) {
  if (value.is_array()) return "an array";
  if (value.is_object()) return "an object";
  std::string text = json::write(value);
  if (text.size() > limits::kErrorValueBytesMax) {
    text.resize(limits::kErrorValueBytesMax);
    text = replace_invalid_utf8(text) + "…";
  }
  return text;
}

std::string shown(std::string_view text) {
  return shown(Value::string(std::string(text)));
}

// ---- Fields that must have certain values -------------------------------------------------------

struct Field {
  std::string_view name;
  std::vector<std::string_view> allowed;  // as JSON; none: any value, which the caller looks at
  bool is_optional = false;
};

const std::vector<std::string_view> kFalse = {"false"};
const std::vector<std::string_view> kNull = {"null"};
const std::vector<std::string_view> kBoolean = {"false", "true"};

// The value is an object with these fields, and no others, and they have values that are allowed.
Result<void> check_fields(const Value* value, const std::string& place,
                          std::initializer_list<Field> fields) {
  if (value == nullptr || !value->is_object()) return refuse(place, "want an object");
  for (const Field& field : fields) {
    const Value* found = value->find(field.name);
    const std::string name = fmt::format("{}.{}", place, field.name);
    if (found == nullptr) {
      if (!field.is_optional) return refuse(name, "is missing");
      continue;
    }
    const std::string spelling =
        found->is_array() || found->is_object() ? std::string() : json::write(*found);
    const bool is_allowed =
        field.allowed.empty() ||
        std::find(field.allowed.begin(), field.allowed.end(), spelling) != field.allowed.end();
    if (!is_allowed) return refuse(name, fmt::format("{} is not supported", shown(*found)));
  }
  for (const json::Member& member : value->members()) {
    const bool is_known = std::any_of(fields.begin(), fields.end(), [&](const Field& field) {
      return field.name == member.first;
    });
    if (!is_known) return refuse(place, fmt::format("field {} is not known", shown(member.first)));
  }
  return {};
}

Result<void> check_byte_level(const Value* value, const std::string& place) {
  // All of them speak of offsets, or of blanks at a place where none are added or taken.
  return check_fields(value, place,
                      {{"type", {R"("ByteLevel")"}},
                       {"add_prefix_space", kBoolean, true},
                       {"trim_offsets", kBoolean, true},
                       {"use_regex", kBoolean, true}});
}

Result<void> check_pre_tokenizer(const Value* value) {
  const std::string place = "pre_tokenizer";
  ROOST_TRY_DO(check_fields(value, place, {{"type", {R"("Sequence")"}}, {"pretokenizers", {}}}));
  const Value& steps = *value->find("pretokenizers");
  if (!steps.is_array() || steps.items().size() != 2)
    return refuse(place, "want a Split and a ByteLevel");
  const Value& split = steps.items()[0];
  const std::string split_place = place + ".pretokenizers[0]";
  ROOST_TRY_DO(check_fields(&split, split_place,
                            {{"type", {R"("Split")"}},
                             {"pattern", {}},
                             {"behavior", {R"("Isolated")"}},
                             {"invert", kFalse}}));
  ROOST_TRY_DO(check_fields(split.find("pattern"), split_place + ".pattern", {{"Regex", {}}}));
  const Value& regex = *split.find("pattern")->find("Regex");
  if (!regex.is_string() || !is_known_split_pattern(regex.as_string()))
    return refuse(split_place + ".pattern.Regex", fmt::format("{} is not supported", shown(regex)));
  return check_fields(&steps.items()[1], place + ".pretokenizers[1]",
                      {{"type", {R"("ByteLevel")"}},
                       {"add_prefix_space", kFalse},
                       {"trim_offsets", kBoolean, true},
                       {"use_regex", kFalse}});
}

Result<void> check_components(const Value& tokenizer) {
  ROOST_TRY_DO(check_fields(&tokenizer, "tokenizer.json",
                            {{"version", {R"("1.0")"}},
                             {"truncation", kNull, true},
                             {"padding", kNull, true},
                             {"added_tokens", {}},
                             {"normalizer", {}},
                             {"pre_tokenizer", {}},
                             {"post_processor", {}, true},
                             {"decoder", {}},
                             {"model", {}}}));
  ROOST_TRY_DO(check_fields(tokenizer.find("normalizer"), "normalizer", {{"type", {R"("NFC")"}}}));
  ROOST_TRY_DO(check_pre_tokenizer(tokenizer.find("pre_tokenizer")));
  const Value* post_processor = tokenizer.find("post_processor");
  if (post_processor != nullptr && !post_processor->is_null())
    ROOST_TRY_DO(check_byte_level(post_processor, "post_processor"));
  ROOST_TRY_DO(check_byte_level(tokenizer.find("decoder"), "decoder"));
  const std::vector<std::string_view> no_text = {"null", R"("")"};
  return check_fields(tokenizer.find("model"), "model",
                      {{"type", {R"("BPE")"}},
                       {"dropout", {"null", "0", "0.0"}, true},
                       {"unk_token", kNull, true},
                       {"continuing_subword_prefix", no_text, true},
                       {"end_of_word_suffix", no_text, true},
                       {"fuse_unk", kFalse, true},
                       {"byte_fallback", kFalse, true},
                       {"ignore_merges", kFalse, true},
                       {"vocab", {}},
                       {"merges", {}}});
}

// ---- Vocabulary and merges ----------------------------------------------------------------------

// Vocabulary entries are spelled in characters that stand for bytes: printable bytes for
// themselves, the others, in order, for the characters from U+0100 on.
class ByteAlphabet {
 public:
  ByteAlphabet() {
    byte_of_.fill(-1);
    int n_shifted = 0;
    for (int byte = 0; byte < 256; ++byte) {
      const bool is_printable = (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xAC) ||
                                (byte >= 0xAE && byte <= 0xFF);
      byte_of_[static_cast<size_t>(is_printable ? byte : 0x100 + n_shifted++)] = byte;
    }
  }

  // False if a character stands for no byte.
  bool decode(std::string_view spelling, std::string& bytes) const {
    bytes.clear();
    for (size_t at = 0; at < spelling.size();) {
      const Utf8Unit unit = read_utf8(spelling, at);
      if (unit.kind != Utf8::kWhole || unit.code_point >= byte_of_.size()) return false;
      const int byte = byte_of_[unit.code_point];
      if (byte < 0) return false;
      bytes += static_cast<char>(byte);
      at += unit.n_bytes;
    }
    return true;
  }

 private:
  std::array<int, 0x100 + 68> byte_of_{};  // 68 bytes are not printable
};

// Seeded, so that no choice of entries makes the map slow.
struct SeededHash {
  uint64_t seed;
  size_t operator()(std::string_view text) const {
    return xxh3_128(std::as_bytes(std::span(text)), seed).low;
  }
};
using IdOf = std::unordered_map<std::string_view, Token, SeededHash>;

std::optional<Token> id_in(const Value& value) {
  const std::optional<int64_t> id = value.is_number() ? value.as_int64() : std::nullopt;
  if (!id || *id < 0 || *id >= limits::kVocabularyMax) return std::nullopt;
  return static_cast<Token>(*id);
}

Error not_an_id(std::string_view place, const Value& value) {
  return refuse(
      place, fmt::format("{} is not an id from 0 to {}", shown(value), limits::kVocabularyMax - 1));
}

Result<void> read_vocabulary(const Value& vocab, IdOf& id_of, TokenizerFile& file) {
  if (!vocab.is_object()) return refuse("model.vocab", "want an object");
  static const ByteAlphabet alphabet;
  std::string bytes;
  for (const auto& [spelling, value] : vocab.members()) {
    // Spelled only for a refusal: there are a quarter of a million entries.
    const auto place = [&entry = spelling] { return fmt::format("model.vocab[{}]", shown(entry)); };
    const std::optional<Token> id = id_in(value);
    if (!id) return not_an_id(place(), value);
    if (spelling.empty() || !alphabet.decode(spelling, bytes))
      return refuse(place(), "the spelling is not one of bytes");
    if (!id_of.emplace(spelling, *id).second) return refuse(place(), "is there twice");
    const auto i = static_cast<size_t>(*id);
    if (i >= file.bytes_of_id.size()) file.bytes_of_id.resize(i + 1);
    if (!file.bytes_of_id[i].empty())
      return refuse(place(), fmt::format("another entry has the id {} too", *id));
    file.bytes_of_id[i] = bytes;
  }
  file.byte_tokens.fill(-1);
  for (const auto& [spelling, id] : id_of) {
    const std::string& token_bytes = file.bytes_of_id[static_cast<size_t>(id)];
    if (token_bytes.size() == 1) file.byte_tokens[static_cast<unsigned char>(token_bytes[0])] = id;
  }
  for (int byte = 0; byte < 256; ++byte)
    if (file.byte_tokens[static_cast<size_t>(byte)] < 0)
      return refuse("model.vocab", fmt::format("has no entry for the byte {}", byte));
  return {};
}

struct Spelling {
  std::string_view left, right;
};

// "a b" or ["a", "b"].
std::optional<Spelling> spelling_of(const Value& value) {
  if (value.is_string()) {
    const std::string_view text = value.as_string();
    const size_t space = text.find(' ');
    if (space == std::string_view::npos || text.find(' ', space + 1) != std::string_view::npos)
      return std::nullopt;
    return Spelling{text.substr(0, space), text.substr(space + 1)};
  }
  if (!value.is_array() || value.items().size() != 2 || !value.items()[0].is_string() ||
      !value.items()[1].is_string())
    return std::nullopt;
  return Spelling{value.items()[0].as_string(), value.items()[1].as_string()};
}

Result<void> read_merges(const Value& merges, const IdOf& id_of, TokenizerFile& file) {
  if (!merges.is_array()) return refuse("model.merges", "want an array");
  file.merges.reserve(merges.items().size());
  std::vector<std::pair<Token, Token>> pairs;
  pairs.reserve(merges.items().size());
  std::string merged;
  for (size_t i = 0; i < merges.items().size(); ++i) {
    const auto refuse_here = [i](std::string_view what) {
      return refuse(fmt::format("model.merges[{}]", i), what);
    };
    const std::optional<Spelling> parts = spelling_of(merges.items()[i]);
    if (!parts) return refuse_here("want \"a b\" or [\"a\", \"b\"]");
    merged.assign(parts->left);
    merged += parts->right;
    Token ids[3];
    const std::string_view spellings[3] = {parts->left, parts->right, merged};
    for (int k = 0; k < 3; ++k) {
      const auto entry = id_of.find(spellings[k]);
      if (entry == id_of.end())
        return refuse_here(fmt::format("{} is not in the vocabulary", shown(spellings[k])));
      ids[k] = entry->second;
    }
    file.merges.push_back({.left = ids[0], .right = ids[1], .merged = ids[2]});
    pairs.emplace_back(ids[0], ids[1]);
  }
  std::sort(pairs.begin(), pairs.end());
  const auto twin = std::adjacent_find(pairs.begin(), pairs.end());
  if (twin != pairs.end())
    return refuse("model.merges", fmt::format("the pair of ids {} and {} is there twice",
                                              twin->first, twin->second));
  return {};
}

// ---- Added tokens -------------------------------------------------------------------------------

constexpr size_t kAddedTextBytesMax = 1024;  // bounds the work of a match at each place of a text

Result<AddedToken> read_added(const Value& value, Token id, const std::string& place) {
  ROOST_TRY_DO(check_fields(&value, place,
                            {{"id", {}, true},
                             {"content", {}},
                             {"single_word", kFalse},
                             {"lstrip", kFalse},
                             {"rstrip", kFalse},
                             {"normalized", kFalse},
                             {"special", kBoolean}}));
  const Value& content = *value.find("content");
  if (!content.is_string() || content.as_string().empty() ||
      content.as_string().size() > kAddedTextBytesMax)
    return refuse(place + ".content", fmt::format("want a text of 1 to {} bytes, have {}",
                                                  kAddedTextBytesMax, shown(content)));
  return AddedToken{id, content.as_string(), value.find("special")->as_bool()};
}

// Those of tokenizer.json, then those that only tokenizer_config.json has.
Result<std::vector<AddedToken>> read_all_added(const Value& tokenizer, const Value& config) {
  std::vector<AddedToken> all;
  const Value& list = *tokenizer.find("added_tokens");
  if (!list.is_array()) return refuse("added_tokens", "want an array");
  for (size_t i = 0; i < list.items().size(); ++i) {
    const std::string place = fmt::format("added_tokens[{}]", i);
    const Value* id_value = list.items()[i].find("id");
    if (id_value == nullptr) return refuse(place + ".id", "is missing");
    const std::optional<Token> id = id_in(*id_value);
    if (!id) return not_an_id(place + ".id", *id_value);
    ROOST_TRY(AddedToken token, read_added(list.items()[i], *id, place));
    all.push_back(std::move(token));
  }
  const Value* decoder = config.find("added_tokens_decoder");
  if (decoder == nullptr || decoder->is_null()) return all;
  if (!decoder->is_object()) return refuse("added_tokens_decoder", "want an object");
  for (const auto& [key, value] : decoder->members()) {
    const std::string place =
        fmt::format("tokenizer_config.json: added_tokens_decoder[{}]", shown(key));
    const bool is_number = !key.empty() && key.size() <= 10 &&
                           key.find_first_not_of("0123456789") == std::string::npos;
    const std::optional<Token> id = is_number ? id_in(Value::spelled(key)) : std::nullopt;
    if (!id) return not_an_id(place, Value::string(key));
    ROOST_TRY(AddedToken token, read_added(value, *id, place));
    all.push_back(std::move(token));
  }
  return all;
}

// Equal entries, as the two files have them, become one; entries that contradict are refused.
Result<void> join_added(std::vector<AddedToken> all, const IdOf& id_of, TokenizerFile& file) {
  const auto contradiction = [](const AddedToken& a, const AddedToken& b) {
    return refuse("added tokens",
                  fmt::format("{} with id {}{} and {} with id {}{} contradict", shown(a.text), a.id,
                              a.is_special ? ", special," : "", shown(b.text), b.id,
                              b.is_special ? ", special," : ""));
  };
  std::sort(all.begin(), all.end(), [](const AddedToken& a, const AddedToken& b) {
    return std::tie(a.id, a.text) < std::tie(b.id, b.text);
  });
  for (AddedToken& token : all) {
    if (!file.added.empty() && file.added.back().id == token.id) {
      const AddedToken& known = file.added.back();
      if (known.text != token.text || known.is_special != token.is_special)
        return contradiction(known, token);
      continue;
    }
    file.added.push_back(std::move(token));
  }
  std::vector<const AddedToken*> by_text;
  for (const AddedToken& token : file.added) by_text.push_back(&token);
  std::sort(by_text.begin(), by_text.end(),
            [](const AddedToken* a, const AddedToken* b) { return a->text < b->text; });
  for (size_t i = 1; i < by_text.size(); ++i)
    if (by_text[i - 1]->text == by_text[i]->text)
      return contradiction(*by_text[i - 1], *by_text[i]);

  // An added token may stand in the vocabulary as well, but then it is the same token there.
  for (const AddedToken& token : file.added) {
    const auto i = static_cast<size_t>(token.id);
    const bool id_is_taken = i < file.bytes_of_id.size() && !file.bytes_of_id[i].empty();
    const auto entry = id_of.find(token.text);
    const bool is_same = entry != id_of.end() && entry->second == token.id;
    if ((id_is_taken || entry != id_of.end()) && !is_same)
      return refuse("added tokens", fmt::format("{} with id {} contradicts model.vocab",
                                                shown(token.text), token.id));
  }
  return {};
}

// Fields that would change ids or text; of the others the server reads what it needs.
Result<void> check_config(const Value& config) {
  if (config.is_null()) return {};
  if (!config.is_object()) return refuse("tokenizer_config.json", "want an object");
  for (const std::string_view name : {"add_prefix_space", "add_bos_token", "add_eos_token",
                                      "split_special_tokens", "clean_up_tokenization_spaces"}) {
    const Value* value = config.find(name);
    if (value == nullptr || value->is_null() || (value->is_bool() && !value->as_bool())) continue;
    return refuse(fmt::format("tokenizer_config.json: {}", name),
                  fmt::format("{} is not supported", shown(*value)));
  }
  return {};
}

}  // namespace

Result<TokenizerFile> read_tokenizer_file(const Value& tokenizer, const Value& tokenizer_config) {
  ROOST_TRY_DO(check_components(tokenizer));
  ROOST_TRY_DO(check_config(tokenizer_config));
  TokenizerFile file;
  const Value& model = *tokenizer.find("model");
  const Value& vocab = *model.find("vocab");
  const size_t n_entries = vocab.is_object() ? vocab.members().size() : 0;
  IdOf id_of(2 * n_entries, SeededHash{system_random().next_u64()});
  ROOST_TRY_DO(read_vocabulary(vocab, id_of, file));
  ROOST_TRY_DO(read_merges(*model.find("merges"), id_of, file));
  ROOST_TRY(std::vector<AddedToken> added, read_all_added(tokenizer, tokenizer_config));
  ROOST_TRY_DO(join_added(std::move(added), id_of, file));
  return file;
}

}  // namespace roost
