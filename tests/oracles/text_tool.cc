// Lets the oracles in this folder ask the text layer: records come in on stdin, answers go out on
// stdout. Numbers are little-endian u32; "bytes" is a count and that many bytes.
//
//   encode TOKENIZER [CONFIG]   bytes                      -> n, n ids
//   decode TOKENIZER [CONFIG]   skip_special, n, n ids     -> bytes
//   detokenize                  n, n times bytes           -> n + 1 times bytes, the last of
//   finish() normalize                   bytes                      -> bytes split bytes -> n, n
//   times the bytes of a piece
#include <cstdint>
#include <cstdio>
#include <iostream>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "base/json.h"
#include "base/limits.h"
#include "text/detokenizer.h"
#include "text/normalize.h"
#include "text/splitter.h"
#include "text/tokenizer.h"

namespace roost {
namespace {

class Input {
 public:
  explicit Input(std::string bytes) : bytes_(std::move(bytes)) {}
  bool at_end() const { return at_ == bytes_.size(); }
  uint32_t number() {
    const std::string_view raw = take(4);
    uint32_t value = 0;
    for (size_t i = 4; i-- > 0;) value = value << 8 | static_cast<unsigned char>(raw[i]);
    return value;
  }
  std::string_view text() { return take(number()); }

 private:
  std::string_view take(size_t n) {
    ROOST_CHECK(n <= bytes_.size() - at_);
    at_ += n;
    return std::string_view(bytes_).substr(at_ - n, n);
  }
  std::string bytes_;
  size_t at_ = 0;
};

class Output {
 public:
  void number(size_t value) {
    for (int shift = 0; shift < 32; shift += 8) bytes_ += static_cast<char>(value >> shift & 0xFF);
  }
  void text(std::string_view bytes) {
    number(bytes.size());
    bytes_ += bytes;
  }
  void flush() const { std::fwrite(bytes_.data(), 1, bytes_.size(), stdout); }

 private:
  std::string bytes_;
};

Result<json::Value> read_json(const char* path) {
  ROOST_TRY(const std::string text, read_file(path, limits::kTokenizerBytesMax));
  return json::parse(text);
}

Result<Tokenizer> read_tokenizer(int n_args, char** args) {
  if (n_args < 3) return Error{Refusal::FlagValue, "want a tokenizer.json"};
  ROOST_TRY(const json::Value file, read_json(args[2]));
  json::Value config;
  if (n_args > 3) {
    ROOST_TRY(config, read_json(args[3]));
  }
  return Tokenizer::create(file, config);
}

void answer(std::string_view mode, const std::optional<Tokenizer>& tokenizer, Input& in,
            Output& out) {
  if (mode == "encode") {
    const std::vector<Token> ids = tokenizer->encode(in.text());
    out.number(ids.size());
    for (const Token id : ids) out.number(static_cast<uint32_t>(id));
  } else if (mode == "decode") {
    const bool skip_special = in.number() != 0;
    std::vector<Token> ids(in.number());
    for (Token& id : ids) id = static_cast<Token>(in.number());
    out.text(tokenizer->decode(ids, skip_special));
  } else if (mode == "detokenize") {
    Detokenizer detokenizer;
    for (uint32_t n = in.number(); n > 0; --n) out.text(detokenizer.push(in.text()));
    out.text(detokenizer.finish());
  } else if (mode == "normalize") {
    std::string storage;
    out.text(normalize_nfc(in.text(), storage));
  } else {
    std::vector<size_t> pieces;
    for (std::string_view rest = in.text(); !rest.empty(); rest.remove_prefix(pieces.back()))
      pieces.push_back(first_piece(rest));
    out.number(pieces.size());
    for (const size_t n_bytes : pieces) out.number(n_bytes);
  }
}

}  // namespace

int text_tool(int n_args, char** args) {
  const std::string_view mode = n_args > 1 ? args[1] : "";
  std::optional<Tokenizer> tokenizer;
  if (mode == "encode" || mode == "decode") {
    Result<Tokenizer> read = read_tokenizer(n_args, args);
    if (!read) {
      std::fprintf(stderr, "%s\n", to_string(read.error()).c_str());
      return 1;
    }
    tokenizer = *read;
  } else if (mode != "detokenize" && mode != "normalize" && mode != "split") {
    std::fprintf(stderr, "no such mode\n");
    return 2;
  }
  Input in(std::string(std::istreambuf_iterator<char>(std::cin), {}));
  Output out;
  while (!in.at_end()) answer(mode, tokenizer, in, out);
  out.flush();
  return 0;
}

}  // namespace roost

int main(int n_args, char** args) {
  return roost::text_tool(n_args, args);
}
