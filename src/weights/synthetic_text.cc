// Generates the tokenizer of the large synthetic shapes from Fledgling's.
#include "weights/synthetic_text.h"

#include <unordered_set>

#include "base/file.h"
#include "base/json.h"
#include "base/limits.h"

namespace roost {

namespace {

using Files = std::vector<std::pair<std::string, std::string>>;

// The family's published counts (docs/MODEL.md, tokenizer).
constexpr int64_t kBaseTokens = 248'044;  // ids below are the vocabulary, the added tokens follow
constexpr size_t kMerges = 247'587;  // fewer than pieces: some entries are not reachable by merges
constexpr int kFirstUnfiled = 248'070;  // from here on only tokenizer_config.json names the token
constexpr int kFirstNotSpecial = 248'058, kLastNotSpecial = 248'069;

constexpr std::string_view kAddedTokens[] = {"<|endoftext|>",
                                             "<|im_start|>",
                                             "<|im_end|>",
                                             "<|object_ref_start|>",
                                             "<|object_ref_end|>",
                                             "<|box_start|>",
                                             "<|box_end|>",
                                             "<|quad_start|>",
                                             "<|quad_end|>",
                                             "<|vision_start|>",
                                             "<|vision_end|>",
                                             "<|vision_pad|>",
                                             "<|image_pad|>",
                                             "<|video_pad|>",
                                             "<tool_call>",
                                             "</tool_call>",
                                             "<|fim_prefix|>",
                                             "<|fim_middle|>",
                                             "<|fim_suffix|>",
                                             "<|fim_pad|>",
                                             "<|repo_name|>",
                                             "<|file_sep|>",
                                             "<tool_response>",
                                             "</tool_response>",
                                             "<think>",
                                             "</think>",
                                             "<|audio_start|>",
                                             "<|audio_end|>",
                                             "<tts_pad>",
                                             "<tts_text_bos>",
                                             "<tts_text_eod>",
                                             "<tts_text_bos_single>",
                                             "<|audio_pad|>"};

Error refuse(const std::string& what) {
  return {Refusal::TokenizerFile, "Fledgling's tokenizer.json: " + what};
}

json::Value added_token(int id, std::string_view text, bool with_id) {
  using json::Value;
  Value token = Value::object();
  if (with_id) token.set("id", Value::integer(id));
  token.set("content", Value::string(std::string(text)));
  for (const char* key : {"single_word", "lstrip", "rstrip", "normalized"})
    token.set(key, Value::boolean(false));
  token.set("special", Value::boolean(id < kFirstNotSpecial || id > kLastNotSpecial));
  return token;
}

std::string tokenizer_config() {
  using json::Value;
  Value decoder = Value::object();
  int id = static_cast<int>(kBaseTokens);
  for (const std::string_view text : kAddedTokens) {
    decoder.set(std::to_string(id), added_token(id, text, false));
    ++id;
  }
  Value config = Value::object();
  config.set("add_bos_token", Value::boolean(false));
  config.set("add_prefix_space", Value::boolean(false));
  config.set("added_tokens_decoder", std::move(decoder));
  config.set("bos_token", Value());
  config.set("clean_up_tokenization_spaces", Value::boolean(false));
  config.set("eos_token", Value::string("<|im_end|>"));
  config.set("model_max_length", Value::integer(262'144));
  config.set("pad_token", Value::string("<|endoftext|>"));
  config.set("tokenizer_class", Value::string("Qwen2Tokenizer"));
  config.set("unk_token", Value());
  return json::write(config, json::Style::kPython);
}

bool is_letters(std::string_view text) {
  for (const char c : text) {
    if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'))) return false;
  }
  return !text.empty();
}

// Vocabulary and merges, growing from Fledgling's to the family's size.
class Pieces {
 public:
  Result<void> take(const json::Value& model);
  Result<void> grow();
  std::string model_json() const;

 private:
  std::vector<std::string> tokens_;  // by id
  std::unordered_set<std::string> known_;
  std::vector<std::pair<std::string, std::string>> merges_;
};

Result<void> Pieces::take(const json::Value& model) {
  const json::Value* vocab = model.find("vocab");
  const json::Value* merges = model.find("merges");
  if (vocab == nullptr || !vocab->is_object() || merges == nullptr || !merges->is_array()) {
    return refuse("no vocabulary or no merges");
  }
  tokens_.resize(vocab->members().size());
  for (const auto& [token, id] : vocab->members()) {
    const std::optional<int64_t> place = id.is_number() ? id.as_int64() : std::nullopt;
    if (!place || *place < 0 || *place >= static_cast<int64_t>(tokens_.size()))
      return refuse("ids with gaps");
    tokens_[static_cast<size_t>(*place)] = token;
  }
  known_.insert(tokens_.begin(), tokens_.end());
  for (const json::Value& merge : merges->items()) {
    if (!merge.is_array() || merge.items().size() != 2 || !merge.items()[0].is_string() ||
        !merge.items()[1].is_string()) {
      return refuse("a merge is not a pair");
    }
    merges_.emplace_back(merge.items()[0].as_string(), merge.items()[1].as_string());
  }
  if (tokens_.size() >= static_cast<size_t>(kBaseTokens) || merges_.size() >= kMerges)
    return refuse("too large");
  return {};
}

// A made-up piece joins two words of letters that are there already; the first may begin with a
// blank.
Result<void> Pieces::grow() {
  constexpr std::string_view kBlank = "\u0120";  // a blank in the byte alphabet
  std::vector<std::string> firsts, seconds;
  for (const std::string& token : tokens_) {
    const bool has_blank = token.starts_with(kBlank);
    const std::string_view letters = std::string_view(token).substr(has_blank ? kBlank.size() : 0);
    if (!is_letters(letters) || letters.size() < 2) continue;
    firsts.push_back(token);
    if (!has_blank) seconds.push_back(token);
  }
  if (firsts.empty() || seconds.empty()) return refuse("no words to join");
  constexpr uint64_t kTriesMax = 16'000'000;
  for (uint64_t i = 0; i < kTriesMax && merges_.size() < kMerges; ++i) {
    const uint64_t word = synthetic_word(0, kMerges, i);
    const std::string& first = firsts[(word & 0xFFFFFFFF) % firsts.size()];
    const std::string& second = seconds[(word >> 32) % seconds.size()];
    if (!known_.insert(first + second).second) continue;
    tokens_.push_back(first + second);
    merges_.emplace_back(first, second);
  }
  // Runs of digits: digits are split one by one, so no text reaches these.
  for (int n = 0; tokens_.size() < static_cast<size_t>(kBaseTokens); ++n) {
    std::string digits = std::to_string(1'000'000 + n);
    if (known_.insert(digits).second) tokens_.push_back(std::move(digits));
  }
  return merges_.size() == kMerges ? Result<void>() : refuse("too few words to join");
}

std::string Pieces::model_json() const {
  std::string text =
      R"({"type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": "", )"
      R"("end_of_word_suffix": "", "fuse_unk": false, "byte_fallback": false, )"
      R"("ignore_merges": false, "vocab": {)";
  for (size_t id = 0; id < tokens_.size(); ++id) {
    text += id == 0 ? "\n" : ",\n";
    json::write_string(tokens_[id], text);
    text += ": " + std::to_string(id);
  }
  text += "\n}, \"merges\": [";
  for (size_t i = 0; i < merges_.size(); ++i) {
    text += i == 0 ? "\n[" : ",\n[";
    json::write_string(merges_[i].first, text);
    text += ", ";
    json::write_string(merges_[i].second, text);
    text += "]";
  }
  return text + "\n]}";
}

Result<std::string> large_tokenizer(const std::string& fledgling_text) {
  Result<json::Value> fledgling = json::parse(fledgling_text);
  if (!fledgling) return refuse(fledgling.error().detail);
  const json::Value* model = fledgling->find("model");
  if (model == nullptr) return refuse("no model");
  Pieces pieces;
  ROOST_TRY_DO(pieces.take(*model));
  ROOST_TRY_DO(pieces.grow());

  json::Value added = json::Value::array();
  int id = static_cast<int>(kBaseTokens);
  for (const std::string_view text : kAddedTokens) {
    if (id < kFirstUnfiled) added.push(added_token(id, text, true));
    ++id;
  }
  std::string text;
  for (const auto& [key, value] : fledgling->members()) {
    text += text.empty() ? "{\n" : ",\n";
    json::write_string(key, text);
    text += ": ";
    text += key == "model"
                ? pieces.model_json()
                : json::write(key == "added_tokens" ? added : value, json::Style::kPython);
  }
  return text + "\n}\n";
}

constexpr std::string_view kLargeGenerationConfig =
    R"({"bos_token_id": 248044, "do_sample": true, "eos_token_id": [248046, 248044], )"
    R"("pad_token_id": 248044, "temperature": 1.0, "top_k": 20, "top_p": 0.95})";

}  // namespace

Result<Files> synthetic_text_files(const SyntheticOptions& options,
                                   const std::string& fledgling_folder) {
  Files files;
  for (const char* name : {"chat_template.jinja", "tokenizer.json", "tokenizer_config.json",
                           "generation_config.json"}) {
    ROOST_TRY(std::string text,
              read_file(fledgling_folder + "/" + name, limits::kTokenizerBytesMax));
    files.emplace_back(name, std::move(text));
  }
  if (options.shape == "tiny") return files;
  ROOST_TRY(files[1].second, large_tokenizer(files[1].second));
  files[2].second = tokenizer_config();
  files[3].second = kLargeGenerationConfig;
  return files;
}

}  // namespace roost
