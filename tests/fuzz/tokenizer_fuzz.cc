// Any bytes as text, as tokenizer.json and as tokenizer_config.json; the first byte chooses.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "base/json.h"
#include "base/utf8.h"
#include "text/detokenizer.h"
#include "text/normalize.h"
#include "text/splitter.h"
#include "text/tokenizer.h"

namespace roost {
namespace {

// A file of the family's kind with a vocabulary of bytes, a few merges and three added tokens.
json::Value small_file() {
  json::Value vocab = json::Value::object();
  int n_shifted = 0;
  for (int byte = 0; byte < 256; ++byte) {
    const bool is_printable = (byte > ' ' && byte <= '~') || (byte >= 0xA1 && byte != 0xAD);
    std::string spelling;
    append_utf8(static_cast<char32_t>(is_printable ? byte : 0x100 + n_shifted++), spelling);
    vocab.set(spelling, json::Value::integer(byte));
  }
  int64_t id = 256;
  for (const char* spelling : {"aa", "aaaa", "ab", "aab", "Ġa", "Ġaa", "ĊĊ", "Ã©", "ĠĠ"})
    vocab.set(spelling, json::Value::integer(id++));
  const std::string flags =
      R"("single_word":false,"lstrip":false,"rstrip":false,"normalized":false,"special":)";
  json::Value file = *json::parse(
      R"json({"version":"1.0","truncation":null,"padding":null,"added_tokens":[)json"
      R"json({"id":300,"content":"<|x|>",)json" +
      flags + R"json(true},{"id":301,"content":"<t>",)json" + flags +
      R"json(false},{"id":302,"content":"<t><t>!",)json" + flags +
      R"json(false}],"normalizer":{"type":"NFC"},)json"
      R"json("pre_tokenizer":{"type":"Sequence","pretokenizers":[)json"
      R"json({"type":"Split","pattern":{"Regex":"(?i:'s|'t|'re|'ve|'m|'ll|'d)|)json"
      R"json([^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}|)json"
      R"json( ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|)json"
      R"json(\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"},"behavior":"Isolated","invert":false},)json"
      R"json({"type":"ByteLevel","add_prefix_space":false,"use_regex":false}]},)json"
      R"json("decoder":{"type":"ByteLevel"}})json");
  json::Value model = *json::parse(R"({"type":"BPE","merges":
    ["a a","aa aa","a b","a ab",["Ġ","a"],"Ġa a","Ċ Ċ","Ã ©","Ġ Ġ"]})");
  model.set("vocab", std::move(vocab));
  file.set("model", std::move(model));
  return file;
}

const json::Value& file_of_kind() {
  static const json::Value file = small_file();
  return file;
}

std::string joined(const Tokenizer& tokenizer, const std::vector<Token>& ids) {
  std::string bytes;
  for (const Token id : ids) bytes += tokenizer.bytes_of(id);
  return bytes;
}

void check_text(const Tokenizer& tokenizer, std::string_view text) {
  const std::vector<Token> ids = tokenizer.encode(text);
  const std::string bytes = joined(tokenizer, ids);
  // Only normalization changes bytes, and it does so once.
  ROOST_CHECK(joined(tokenizer, tokenizer.encode(bytes)) == bytes);
  const std::string decoded = tokenizer.decode(ids, false);
  ROOST_CHECK(decoded == replace_invalid_utf8(bytes));
  Detokenizer detokenizer;
  std::string streamed;
  for (const Token id : ids) streamed += detokenizer.push(tokenizer.bytes_of(id));
  ROOST_CHECK(streamed + detokenizer.finish() == decoded);

  std::string storage;
  std::string storage_again;
  const std::string_view normal = normalize_nfc(text, storage);
  ROOST_CHECK(normalize_nfc(normal, storage_again) == normal);
  for (std::string_view rest = text; !rest.empty();) {
    const size_t n_bytes = first_piece(rest);
    ROOST_CHECK(n_bytes > 0 && n_bytes <= rest.size());
    rest.remove_prefix(n_bytes);
  }
}

void try_input(uint8_t choice, std::string_view bytes) {
  static const Tokenizer tokenizer = *Tokenizer::create(file_of_kind(), json::Value());
  if (choice % 3 == 0) return check_text(tokenizer, bytes);
  const Result<json::Value> value = json::parse(bytes);
  if (!value) return;
  const bool is_config = choice % 3 == 1;
  const Result<Tokenizer> made = is_config ? Tokenizer::create(file_of_kind(), *value)
                                           : Tokenizer::create(*value, json::Value());
  if (!made) {
    ROOST_CHECK(made.error().refusal == Refusal::TokenizerFile);
    ROOST_CHECK(made.error().detail.size() < 2000);
    return;
  }
  const std::vector<Token> ids = made->encode(bytes);
  for (const Token id : ids) ROOST_CHECK(made->exists(id));
}

}  // namespace
}  // namespace roost

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size > 0) roost::try_input(data[0], {reinterpret_cast<const char*>(data) + 1, size - 1});
  return 0;
}
