// Scanner of the safetensors header: {"name": {"dtype", "shape", "data_offsets"}, "__metadata__":
// {…}}.
#include "weights/safetensors_header.h"

#include <optional>

#include "base/json.h"
#include "base/limits.h"
#include "tensor/shape.h"

namespace roost {

namespace {

constexpr size_t kNameBytesMax = 4096;  // of a tensor; error texts quote names whole

class Scanner {
 public:
  explicit Scanner(std::string_view text) : text_(text) {}

  Result<std::vector<HeaderEntry>> header();

 private:
  Error refuse(const std::string& what) const {
    return {Refusal::CheckpointHeader, what + " at byte " + std::to_string(at_)};
  }
  void skip_blanks() {
    while (at_ < text_.size() &&
           (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\r' || text_[at_] == '\t')) {
      ++at_;
    }
  }
  bool take(char c) {
    skip_blanks();
    if (at_ == text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  Result<void> expect(char c) {
    if (!take(c)) return refuse(std::string("expected '") + c + "'");
    return {};
  }
  Result<std::string> string();
  Result<uint64_t> number();
  Result<std::vector<uint64_t>> numbers(size_t n_max);
  Result<void> metadata();
  Result<HeaderEntry> entry(std::string name);

  std::string_view text_;
  size_t at_ = 0;
};

// Plain ASCII is taken as it is; escapes and other characters go through the JSON reader.
Result<std::string> Scanner::string() {
  skip_blanks();
  const size_t begin = at_;
  if (at_ == text_.size() || text_[at_] != '"') return refuse("expected a string");
  bool is_plain = true;
  for (++at_; at_ < text_.size() && text_[at_] != '"'; ++at_) {
    const auto c = static_cast<unsigned char>(text_[at_]);
    if (c < 0x20) return refuse("control character in a string");
    if (c >= 0x80) is_plain = false;
    if (c == '\\') {
      is_plain = false;
      ++at_;
    }
  }
  if (at_ >= text_.size()) return refuse("a string does not end");
  ++at_;
  if (is_plain) return std::string(text_.substr(begin + 1, at_ - begin - 2));
  Result<json::Value> value = json::parse(text_.substr(begin, at_ - begin));
  if (!value || !value->is_string()) return refuse("a string is not valid JSON");
  return value->as_string();
}

Result<uint64_t> Scanner::number() {
  skip_blanks();
  const size_t begin = at_;
  uint64_t value = 0;
  for (; at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9'; ++at_) {
    const auto digit = static_cast<uint64_t>(text_[at_] - '0');
    if (__builtin_mul_overflow(value, uint64_t{10}, &value) ||
        __builtin_add_overflow(value, digit, &value)) {
      return refuse("a number does not fit 64 bits");
    }
  }
  const size_t n_digits = at_ - begin;
  if (n_digits == 0) return refuse("expected a number without sign");
  if (n_digits > 1 && text_[begin] == '0') return refuse("a number starts with 0");
  return value;
}

Result<std::vector<uint64_t>> Scanner::numbers(size_t n_max) {
  std::vector<uint64_t> values;
  ROOST_TRY_DO(expect('['));
  if (take(']')) return values;
  do {
    if (values.size() == n_max)
      return refuse("a list has more than " + std::to_string(n_max) + " numbers");
    ROOST_TRY(const uint64_t value, number());
    values.push_back(value);
  } while (take(','));
  ROOST_TRY_DO(expect(']'));
  return values;
}

// Free-form notes of the writer: strings only, kept nowhere.
Result<void> Scanner::metadata() {
  ROOST_TRY_DO(expect('{'));
  if (take('}')) return {};
  do {
    ROOST_TRY_DO(string());
    ROOST_TRY_DO(expect(':'));
    ROOST_TRY_DO(string());
  } while (take(','));
  return expect('}');
}

Result<HeaderEntry> Scanner::entry(std::string name) {
  HeaderEntry entry{.name = std::move(name), .dtype = {}, .shape = {}, .begin = 0, .end = 0};
  bool has_dtype = false, has_shape = false, has_offsets = false;
  if (entry.name.size() > kNameBytesMax) {
    return refuse("a name of " + std::to_string(entry.name.size()) + " bytes");
  }
  ROOST_TRY_DO(expect('{'));
  do {
    ROOST_TRY(const std::string key, string());
    ROOST_TRY_DO(expect(':'));
    if (key == "dtype" && !has_dtype) {
      ROOST_TRY(entry.dtype, string());
      has_dtype = true;
    } else if (key == "shape" && !has_shape) {
      ROOST_TRY(entry.shape, numbers(Shape::kRankMax));
      has_shape = true;
    } else if (key == "data_offsets" && !has_offsets) {
      ROOST_TRY(const std::vector<uint64_t> offsets, numbers(2));
      if (offsets.size() != 2) return refuse(entry.name + ": data_offsets are not two numbers");
      entry.begin = offsets[0];
      entry.end = offsets[1];
      has_offsets = true;
    } else {
      return refuse(entry.name + ": repeated or unknown key \"" +
                    key.substr(0, limits::kErrorValueBytesMax) + "\"");
    }
  } while (take(','));
  ROOST_TRY_DO(expect('}'));
  if (!has_dtype || !has_shape || !has_offsets) {
    return refuse(entry.name + ": needs dtype, shape and data_offsets");
  }
  return entry;
}

Result<std::vector<HeaderEntry>> Scanner::header() {
  std::vector<HeaderEntry> entries;
  bool has_metadata = false;
  if (text_.empty() || text_[0] != '{') return refuse("expected '{'");
  ROOST_TRY_DO(expect('{'));
  if (!take('}')) {
    do {
      ROOST_TRY(std::string name, string());
      ROOST_TRY_DO(expect(':'));
      if (name == "__metadata__") {
        if (has_metadata) return refuse("__metadata__ twice");
        has_metadata = true;
        ROOST_TRY_DO(metadata());
        continue;
      }
      if (entries.size() == limits::kTensorsMax) {
        return refuse("more than " + std::to_string(limits::kTensorsMax) + " tensors");
      }
      ROOST_TRY(HeaderEntry next, entry(std::move(name)));
      entries.push_back(std::move(next));
    } while (take(','));
    ROOST_TRY_DO(expect('}'));
  }
  skip_blanks();  // writers pad with blanks
  if (at_ != text_.size()) return refuse("something behind the header's last '}'");
  return entries;
}

}  // namespace

Result<std::vector<HeaderEntry>> parse_safetensors_header(std::string_view header) {
  return Scanner(header).header();
}

}  // namespace roost
