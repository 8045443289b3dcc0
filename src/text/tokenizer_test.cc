#include "text/tokenizer.h"

#include <gtest/gtest.h>

#include <functional>
#include <thread>

#include "base/file.h"
#include "base/random.h"

namespace roost {
namespace {

using json::Value;

Value read_json(const std::string& name) {
  return *json::parse(
      *read_file(ROOST_SOURCE_DIR "/models/fledgling/" + name, limits::kTokenizerBytesMax));
}

const Value& fledgling_file() {
  static const Value file = read_json("tokenizer.json");
  return file;
}

const Tokenizer& fledgling() {
  static const Tokenizer tokenizer =
      *Tokenizer::create(fledgling_file(), read_json("tokenizer_config.json"));
  return tokenizer;
}

// The value at a path of keys; a digit is a place in an array.
Value& at(Value& value, const std::vector<std::string_view>& path) {
  Value* here = &value;
  for (const std::string_view step : path) {
    if (here->is_array()) {
      here = &here->items()[static_cast<size_t>(step[0] - '0')];
      continue;
    }
    for (json::Member& member : here->members())
      if (member.first == step) {
        here = &member.second;
        break;
      }
  }
  return *here;
}

// An entry of added_tokens; of added_tokens_decoder without an id.
Value added(std::optional<int64_t> id, std::string_view text, bool is_special) {
  Value token = Value::object();
  if (id) token.set("id", Value::integer(*id));
  token.set("content", Value::string(std::string(text)));
  for (const std::string_view flag : {"single_word", "lstrip", "rstrip", "normalized"})
    token.set(flag, Value::boolean(false));
  token.set("special", Value::boolean(is_special));
  return token;
}

// Fledgling's file without the vocabulary that a test does not need: bytes, few merges, few added.
Value small_file() {
  Value file = fledgling_file();
  Value vocab = Value::object();
  Token id = 0;
  for (const auto& [spelling, value] : fledgling_file().find("model")->find("vocab")->members())
    if (value.as_int64() < 256) vocab.set(spelling, Value::integer(id++));
  for (const std::string_view spelling : {"ab", "abc", "Ġa"})
    vocab.set(spelling, Value::integer(id++));
  at(file, {"model", "vocab"}) = vocab;
  at(file, {"model", "merges"}) = *json::parse(R"([["a","b"],["ab","c"],["Ġ","a"]])");
  at(file, {"added_tokens"}) = Value::array(
      {added(300, "<|x|>", true), added(301, "<t>", false), added(302, "<t><t>!", false)});
  return file;
}

std::string texts_of(const Tokenizer& tokenizer, std::string_view text) {
  std::string joined;
  for (const Token id : tokenizer.encode(text))
    joined += "[" + std::string(tokenizer.bytes_of(id)) + "]";
  return joined;
}

TEST(Tokenizer, merges_within_pieces_only) {
  const Tokenizer t = *Tokenizer::create(small_file(), Value());
  EXPECT_EQ(texts_of(t, "abcab ac"), "[abc][ab][ a][c]");
  EXPECT_EQ(texts_of(t, "a1b"), "[a][1][b]");
  EXPECT_EQ(texts_of(t, ""), "");
}

TEST(Tokenizer, merges_may_be_strings_or_pairs) {
  Value file = small_file();
  at(file, {"model", "merges"}) = *json::parse(R"(["a b","ab c",["Ġ","a"]])");
  const Tokenizer t = *Tokenizer::create(file, Value());
  EXPECT_EQ(texts_of(t, "abcab ac"), "[abc][ab][ a][c]");
}

TEST(Tokenizer, added_tokens_are_found_leftmost_and_longest) {
  const Tokenizer t = *Tokenizer::create(small_file(), Value());
  EXPECT_EQ(t.encode("<|x|><t>"), (std::vector<Token>{300, 301}));
  EXPECT_EQ(t.encode("<t><t>!"), (std::vector<Token>{302}));
  EXPECT_EQ(t.encode("<t><t>"), (std::vector<Token>{301, 301}));
  EXPECT_EQ(texts_of(t, "ab<<t>ab<|x|"), "[ab][<][<t>][ab][<][|][x][|]");
  EXPECT_EQ(texts_of(t, "a <t> b"), "[a][ ][<t>][ ][b]");
  EXPECT_EQ(t.find_added("<t>"), 301);
  EXPECT_EQ(t.find_added("<t"), std::nullopt);
  EXPECT_EQ(t.find_added("a"), std::nullopt);
}

TEST(Tokenizer, text_is_normalized_between_added_tokens_and_not_across) {
  const Tokenizer t = *Tokenizer::create(small_file(), Value());
  EXPECT_EQ(t.decode(t.encode("e\u0301"), false), "\u00E9");
  EXPECT_EQ(t.decode(t.encode("e<t>\u0301"), false), "e<t>\u0301");
}

TEST(Tokenizer, bytes_that_are_no_text_keep_their_ids) {
  const Tokenizer t = *Tokenizer::create(small_file(), Value());
  const std::string bytes =
      "a\xFF\xE2\x82"
      "ab\xED\xA0\x80";
  std::string back;
  for (const Token id : t.encode(bytes)) back += t.bytes_of(id);
  EXPECT_EQ(back, bytes);
  EXPECT_EQ(t.decode(t.encode("a\xE2\x82"), false), "a\uFFFD");
}

TEST(Tokenizer, decoding_hides_special_tokens_where_that_is_asked_and_skips_holes) {
  const Tokenizer t = *Tokenizer::create(small_file(), Value());
  EXPECT_EQ(t.decode({300, 301, 280, -1, 100000, 302}, false), "<|x|><t><t><t>!");
  EXPECT_EQ(t.decode({300, 301, 280, -1, 100000, 302}, true), "<t><t><t>!");
  EXPECT_TRUE(t.is_special(300));
  EXPECT_FALSE(t.is_special(301));
  EXPECT_FALSE(t.is_special(-1));
  EXPECT_TRUE(t.exists(258));
  EXPECT_FALSE(t.exists(280));
  EXPECT_FALSE(t.exists(303));
  EXPECT_FALSE(t.exists(-1));
  EXPECT_EQ(t.bytes_of(280), "");
  EXPECT_EQ(t.n_tokens(), 303);
}

TEST(Tokenizer, added_tokens_come_from_both_files) {
  Value decoder = Value::object();
  decoder.set("301", added({}, "<t>", false));
  decoder.set("310", added({}, "<|audio|>", true));
  Value config = Value::object();
  config.set("added_tokens_decoder", std::move(decoder));
  const Tokenizer t = *Tokenizer::create(small_file(), config);
  EXPECT_EQ(t.encode("<t><|audio|>"), (std::vector<Token>{301, 310}));
  EXPECT_EQ(t.n_tokens(), 311);
  EXPECT_TRUE(t.is_special(310));
}

TEST(Tokenizer, fledgling_knows_its_control_tokens) {
  const Tokenizer& t = fledgling();
  EXPECT_EQ(t.n_tokens(), 3071);
  EXPECT_EQ(t.find_added("<|endoftext|>"), 3056);
  EXPECT_TRUE(t.is_special(3057));
  EXPECT_EQ(t.bytes_of(3069), "</think>");
  EXPECT_FALSE(t.is_special(3069));
  EXPECT_EQ(t.encode("<|im_start|>").size(), 1u);
}

TEST(Tokenizer, any_text_comes_back_as_its_normal_form) {
  const std::string text =
      "def f(x):\n    return x**2  # é 日本語 👩\u200D👧\r\n\t'sound I'll <|im_start|>user\n";
  EXPECT_EQ(fledgling().decode(fledgling().encode(text), false), text);
  SeededRandom random(9);
  for (int round = 0; round < 2000; ++round) {
    std::string bytes;
    for (uint64_t n = random.next_u64() % 30; n > 0; --n)
      bytes += static_cast<char>(random.next_u64() % 0x80);
    EXPECT_EQ(fledgling().decode(fledgling().encode(bytes), false), bytes);
  }
}

TEST(Tokenizer, many_threads_encode_alike) {
  std::string text;
  for (int i = 0; i < 500; ++i) text += "word" + std::to_string(i) + " and more é text,\n";
  const std::vector<Token> wanted = fledgling().encode(text);
  std::vector<std::thread> threads;
  std::vector<std::vector<Token>> results(4);
  for (std::vector<Token>& result : results)
    threads.emplace_back([&result, &text] { result = fledgling().encode(text); });
  for (std::thread& thread : threads) thread.join();
  for (const std::vector<Token>& result : results) EXPECT_EQ(result, wanted);
}

// ---- What is not of the family's kind -----------------------------------------------------------

struct Change {
  std::string_view wanted;  // stands in the refusal
  std::vector<std::string_view> path;
  std::string_view json;  // the value put there
};

const Change kChanges[] = {
    {"tokenizer.json.version: \"2.0\"", {"version"}, R"("2.0")"},
    {"truncation", {"truncation"}, R"({"max_length":5})"},
    {"padding", {"padding"}, "{}"},
    {"normalizer.type: \"NFKC\"", {"normalizer", "type"}, R"("NFKC")"},
    {"normalizer: want an object", {"normalizer"}, "null"},
    {"pre_tokenizer", {"pre_tokenizer"}, R"({"type":"Whitespace"})"},
    {"pre_tokenizer: want a Split", {"pre_tokenizer", "pretokenizers"}, "[]"},
    {"pretokenizers[0].pattern.Regex",
     {"pre_tokenizer", "pretokenizers", "0", "pattern", "Regex"},
     R"("\\s+")"},
    {"pretokenizers[0].behavior",
     {"pre_tokenizer", "pretokenizers", "0", "behavior"},
     R"("Removed")"},
    {"pretokenizers[0].invert", {"pre_tokenizer", "pretokenizers", "0", "invert"}, "true"},
    {"pretokenizers[0].pattern",
     {"pre_tokenizer", "pretokenizers", "0", "pattern"},
     R"({"String":" "})"},
    {"pretokenizers[1].add_prefix_space",
     {"pre_tokenizer", "pretokenizers", "1", "add_prefix_space"},
     "true"},
    {"pretokenizers[1].use_regex", {"pre_tokenizer", "pretokenizers", "1", "use_regex"}, "true"},
    {"post_processor.type", {"post_processor"}, R"({"type":"TemplateProcessing"})"},
    {"decoder.type", {"decoder", "type"}, R"("WordPiece")"},
    {"decoder: want an object", {"decoder"}, "null"},
    {"model.type: \"Unigram\"", {"model", "type"}, R"("Unigram")"},
    {"model.dropout", {"model", "dropout"}, "0.1"},
    {"model.unk_token", {"model", "unk_token"}, R"("<unk>")"},
    {"model.continuing_subword_prefix", {"model", "continuing_subword_prefix"}, R"("##")"},
    {"model.end_of_word_suffix", {"model", "end_of_word_suffix"}, R"("</w>")"},
    {"model.fuse_unk", {"model", "fuse_unk"}, "true"},
    {"model.byte_fallback", {"model", "byte_fallback"}, "true"},
    {"model.ignore_merges", {"model", "ignore_merges"}, "true"},
    {"model.vocab: want an object", {"model", "vocab"}, "[]"},
    {"model.vocab: has no entry for the byte 0", {"model", "vocab"}, "{}"},
    {"model.vocab[\"a\"]: \"x\" is not an id", {"model", "vocab"}, R"({"a":"x"})"},
    {"model.vocab[\"a\"]: -1 is not an id", {"model", "vocab"}, R"({"a":-1})"},
    {"model.vocab[\"a\"]: 4194304 is not an id", {"model", "vocab"}, R"({"a":4194304})"},
    {"model.vocab[\"b\"]: another entry has the id 1", {"model", "vocab"}, R"({"a":1,"b":1})"},
    {"model.vocab[\"a\"]: is there twice", {"model", "vocab"}, R"({"a":1,"a":2})"},
    {"model.vocab[\"<0x41>é 日\"]: the spelling", {"model", "vocab"}, R"({"<0x41>é 日":1})"},
    {"model.merges: want an array", {"model", "merges"}, "{}"},
    {"model.merges[1]: \"zz\" is not in the vocabulary", {"model", "merges"}, R"(["a b","z z"])"},
    {"model.merges[0]: want", {"model", "merges"}, R"(["ab"])"},
    {"model.merges[0]: want", {"model", "merges"}, R"([["a"]])"},
    {"model.merges[0]: want", {"model", "merges"}, R"([["a",1]])"},
    {"model.merges[0]: want", {"model", "merges"}, R"(["a b c"])"},
    {"model.merges: the pair", {"model", "merges"}, R"(["a b","a b"])"},
    {"added_tokens: want an array", {"added_tokens"}, "{}"},
    {"added_tokens[0].id: is missing", {"added_tokens"}, "[3]"},
    {"added_tokens[1].id: 1.5 is not an id", {"added_tokens", "1", "id"}, "1.5"},
    {"added_tokens[1].lstrip", {"added_tokens", "1", "lstrip"}, "true"},
    {"added_tokens[1].rstrip", {"added_tokens", "1", "rstrip"}, "true"},
    {"added_tokens[1].normalized", {"added_tokens", "1", "normalized"}, "true"},
    {"added_tokens[1].single_word", {"added_tokens", "1", "single_word"}, "true"},
    {"added_tokens[1].special", {"added_tokens", "1", "special"}, "1"},
    {"added_tokens[1].content", {"added_tokens", "1", "content"}, R"("")"},
    {"added tokens: \"<t>\" with id 300 and \"<|x|>\" with id 300, special, contradict",
     {"added_tokens", "1", "id"},
     "300"},
    {"added tokens: \"<t>\" with id 7 contradicts model.vocab", {"added_tokens", "1", "id"}, "7"},
    {"added tokens: \"ab\" with id 301 contradicts", {"added_tokens", "1", "content"}, R"("ab")"},
    {"contradict", {"added_tokens", "1", "content"}, R"("<|x|>")"},
};

TEST(TokenizerFile, components_of_another_kind_are_refused_by_name) {
  ASSERT_TRUE(Tokenizer::create(small_file(), Value()));
  for (const Change& change : kChanges) {
    Value file = small_file();
    at(file, change.path) = *json::parse(change.json);
    const Result<Tokenizer> made = Tokenizer::create(file, Value());
    ASSERT_FALSE(made) << change.wanted;
    EXPECT_EQ(made.error().refusal, Refusal::TokenizerFile);
    EXPECT_NE(made.error().detail.find(change.wanted), std::string::npos)
        << made.error().detail << "\nwanted: " << change.wanted;
  }
}

TEST(TokenizerFile, fields_that_are_missing_or_not_known_are_refused_by_name) {
  for (const std::string_view name :
       {"version", "added_tokens", "normalizer", "pre_tokenizer", "decoder", "model"}) {
    Value file = small_file();
    std::erase_if(file.members(),
                  [name](const json::Member& member) { return member.first == name; });
    const Result<Tokenizer> made = Tokenizer::create(file, Value());
    ASSERT_FALSE(made) << name;
    EXPECT_NE(made.error().detail.find(std::string(name) + ": is missing"), std::string::npos)
        << made.error().detail;
  }
  Value file = small_file();
  at(file, {"model"}).set("surprise", Value());
  EXPECT_NE(Tokenizer::create(file, Value())
                .error()
                .detail.find("model: field \"surprise\" is not known"),
            std::string::npos);
  EXPECT_FALSE(Tokenizer::create(Value(), Value()));
  EXPECT_FALSE(Tokenizer::create(Value::array(), Value()));
}

TEST(TokenizerFile, settings_of_the_config_that_would_change_ids_or_text_are_refused) {
  for (const std::string_view name : {"add_prefix_space", "add_bos_token", "add_eos_token",
                                      "split_special_tokens", "clean_up_tokenization_spaces"}) {
    Value config = Value::object();
    config.set(name, Value::boolean(false));
    EXPECT_TRUE(Tokenizer::create(small_file(), config));
    config.set(name, Value::boolean(true));
    const Result<Tokenizer> made = Tokenizer::create(small_file(), config);
    ASSERT_FALSE(made) << name;
    EXPECT_NE(made.error().detail.find(name), std::string::npos);
  }
}

TEST(TokenizerFile, added_tokens_of_the_config_that_contradict_are_refused) {
  struct Case {
    std::string key;
    Value token;
  };
  const Case cases[] = {
      {"x", added({}, "<u>", false)},  {"4194304", added({}, "<u>", false)},
      {"320", Value::object()},        {"301", added({}, "<u>", false)},
      {"301", added({}, "<t>", true)}, {"320", added({}, "<t>", false)},
      {"5", added({}, "<u>", false)},
  };
  for (const Case& c : cases) {
    Value decoder = Value::object();
    decoder.set(c.key, c.token);
    Value config = Value::object();
    config.set("added_tokens_decoder", std::move(decoder));
    EXPECT_FALSE(Tokenizer::create(small_file(), config)) << json::write(config);
  }
  Value config = Value::object();
  config.set("added_tokens_decoder", Value::array());
  EXPECT_FALSE(Tokenizer::create(small_file(), config));
}

TEST(TokenizerFile, values_of_the_file_are_cut_in_a_refusal) {
  Value file = small_file();
  at(file, {"normalizer", "type"}) = Value::string(std::string(100'000, 'x') + "\n");
  const Error error = Tokenizer::create(file, Value()).error();
  EXPECT_LT(error.detail.size(), 200u);
}

}  // namespace
}  // namespace roost
