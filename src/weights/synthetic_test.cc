// Synthetic checkpoints: their values by the stated formulas, their files by the loader.
#include "weights/synthetic.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "base/file.h"
#include "base/limits.h"
#include "weights/synthetic_text.h"
#include "weights/test_checkpoint.h"

namespace roost {
namespace {

using test::expect_refusal;

const std::string kFledgling = std::string(ROOST_SOURCE_DIR) + "/models/fledgling";

// The formulas once more, in their plainest form.
uint64_t mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}

uint64_t word(uint64_t seed, const std::string& name, uint64_t i) {
  uint64_t id = 0xCBF29CE484222325u;
  for (const char c : name) id = (id ^ static_cast<uint64_t>(c)) * 0x100000001B3u;
  const uint64_t golden = 0x9E3779B97F4A7C15u;
  return mix(mix(mix(seed + golden) ^ id) + (i + 1) * golden);
}

float jitter(uint64_t seed, const std::string& name, uint64_t i) {
  const uint64_t h = (word(seed, name, i / 4) >> (16 * (i % 4))) & 0xFFFF;
  return static_cast<float>(58982 + ((h * 13107) >> 16));
}

std::vector<SyntheticTensor> tensors_of(const SyntheticOptions& options) {
  return std::move(*synthetic_tensors(options));
}

struct Made {
  test::TempFolder folder;
  Result<ModelWeights> weights = Error{Refusal::FileMissing, "not made"};
};

void make(const SyntheticOptions& options, Made& made) {
  const Result<void> written = write_synthetic_checkpoint(options, kFledgling, made.folder.path());
  ASSERT_TRUE(written) << to_string(written.error());
  Result<std::string> config =
      read_file(made.folder.path() + "/config.json", limits::kConfigBytesMax);
  ASSERT_TRUE(config);
  made.weights = test::load_folder(made.folder.path(), *config);
  ASSERT_TRUE(made.weights) << to_string(made.weights.error());
}

TEST(Synthetic, known_words) {
  EXPECT_EQ(synthetic_word(0, 0, 0), mix(mix(mix(0x9E3779B97F4A7C15u)) + 0x9E3779B97F4A7C15u));
  EXPECT_NE(synthetic_word(1, 2, 3), synthetic_word(1, 2, 4));
  EXPECT_NE(synthetic_word(1, 2, 3), synthetic_word(1, 3, 3));
  EXPECT_NE(synthetic_word(1, 2, 3), synthetic_word(2, 2, 3));
}

TEST(Synthetic, values_follow_the_stated_formulas) {
  Made made;
  make({.shape = "tiny", .seed = 9}, made);
  const ModelWeights& w = *made.weights;
  const std::string layer = "language_model.model.layers.1.";

  const QuantMatrix& qkv = w.layers[1].delta.qkv;
  const std::string module = layer + "linear_attn.in_proj_qkv";
  const uint64_t row = 37, col = 200, n_in = 256;
  const uint64_t nibble = row * n_in + col;
  const uint64_t code = (word(9, module + ".weight", nibble / 16) >> (4 * (nibble % 16))) & 15;
  EXPECT_EQ(qkv.code(row, col), code);
  const auto base = static_cast<float>(1 / std::sqrt(256.0) / std::sqrt(255.0 / 12) * 0x1p-16);
  const uint64_t group = row * 4 + col / 64;
  const float scale = f32_from_bf16(bf16_from_f32(base * jitter(9, module + ".scales", group)));
  const float bias = f32_from_bf16(bf16_from_f32(scale * -15.0f * 0.5f));
  EXPECT_EQ(qkv.decode(row, col),
            static_cast<double>(scale) * static_cast<double>(code) + static_cast<double>(bias));

  const std::string norm = layer + "input_layernorm.weight";
  EXPECT_EQ(w.layers[1].input_norm.get(101),
            static_cast<double>(f32_from_bf16(bf16_from_f32(jitter(9, norm, 101) * 0x1p-16f))));

  const std::string conv = layer + "linear_attn.conv1d.weight";
  const uint64_t bits = word(9, conv, 77);
  const double sum = static_cast<double>((bits & 0xFFFF) + (bits >> 16 & 0xFFFF) +
                                         (bits >> 32 & 0xFFFF) + (bits >> 48));
  const auto tap =
      static_cast<float>(0.5 * std::sqrt(3.0) / 65536) * static_cast<float>(sum - 131070);
  EXPECT_EQ(w.layers[1].delta.conv.get(77), static_cast<double>(f32_from_bf16(bf16_from_f32(tap))));
}

TEST(Synthetic, gates_have_their_own_width) {
  for (const int bits : {2, 3, 4, 5, 6, 8}) {
    for (const int group : {32, 64, 128}) {
      Made made;
      make({.shape = "tiny", .bits = bits, .group = group}, made);
      const ModelWeights& w = *made.weights;
      EXPECT_EQ(w.embedding.bits, bits);
      EXPECT_EQ(w.embedding.group, group);
      EXPECT_EQ(w.layers[0].moe.router.bits, 8);
      EXPECT_EQ(w.layers[0].moe.router.group, 64);
      EXPECT_EQ(w.layers[0].moe.experts[15].down.bits, bits);
    }
  }
}

double deviation(const QuantMatrix& m) {
  double sum = 0, squares = 0;
  for (int64_t r = 0; r < m.n_out; ++r) {
    for (int64_t i = 0; i < m.n_in; ++i) {
      const double value = m.decode(r, i);
      sum += value;
      squares += value * value;
    }
  }
  const double n = static_cast<double>(m.n_out * m.n_in);
  EXPECT_LT(std::fabs(sum / n), 0.05 * std::sqrt(squares / n));
  return std::sqrt(squares / n);
}

TEST(Synthetic, decoded_weights_have_the_stated_deviations) {
  for (const int bits : {2, 3, 4, 5, 6, 8}) {
    Made made;
    make({.shape = "tiny", .bits = bits}, made);
    const ModelWeights& w = *made.weights;
    EXPECT_NEAR(deviation(w.embedding), 1, 0.02);
    EXPECT_NEAR(deviation(w.layers[0].delta.qkv), 1 / std::sqrt(256.0), 0.02 / 16);
    EXPECT_NEAR(deviation(w.layers[3].attention.o), 1 / std::sqrt(1024.0 * 8), 0.02 / 90);
    EXPECT_NEAR(deviation(w.layers[2].moe.router), 1 / std::sqrt(256.0), 0.04 / 16);
  }
}

TEST(Synthetic, decays_are_like_those_of_trained_models) {
  SyntheticTensor tensor{
      .name = "a", .kind = SyntheticKind::kALog, .dtype = DType::kF32, .shape = {4096}, .id = 5};
  std::vector<float> a_log(4096);
  fill_synthetic(tensor, 1, 0, std::as_writable_bytes(std::span(a_log)));
  double mean = 0;
  for (const float value : a_log) {
    const double rate = std::exp(static_cast<double>(value));
    ASSERT_TRUE(rate > 0 && rate < 16);
    mean += rate / 4096;
  }
  EXPECT_NEAR(mean, 8, 0.3);
  // ln by its series is the library's within the last bit of f32.
  const double u = static_cast<double>(synthetic_word(1, 5, 3) >> 48);
  EXPECT_NEAR(static_cast<double>(a_log[3]), std::log((2 * u + 1) / 8192), 1e-6);

  tensor = {
      .name = "d", .kind = SyntheticKind::kDtBias, .dtype = DType::kBF16, .shape = {4096}, .id = 6};
  std::vector<uint16_t> dt_bias(4096);
  fill_synthetic(tensor, 1, 0, std::as_writable_bytes(std::span(dt_bias)));
  double log_mean = 0;
  for (const uint16_t bits : dt_bias) {
    const double dt = std::log1p(std::exp(static_cast<double>(f32_from_bf16(bits))));
    ASSERT_TRUE(dt > 0.00097 && dt < 0.103) << dt;
    log_mean += std::log10(dt) / 4096;
  }
  EXPECT_NEAR(log_mean, -2, 0.05);
}

TEST(Synthetic, a_tensor_can_be_filled_in_pieces) {
  for (const SyntheticTensor& tensor : tensors_of({.shape = "tiny", .bits = 3})) {
    std::vector<std::byte> whole(tensor.n_bytes()), pieces(tensor.n_bytes());
    fill_synthetic(tensor, 3, 0, whole);
    for (size_t at = 0; at < pieces.size(); at += 192) {
      const size_t n = std::min<size_t>(192, pieces.size() - at);
      fill_synthetic(tensor, 3, at, std::span(pieces).subspan(at, n));
    }
    ASSERT_EQ(whole, pieces) << tensor.name;
  }
}

TEST(Synthetic, layers_do_not_depend_on_their_number_or_the_shards) {
  Made four, two;
  make({.shape = "tiny"}, four);
  make({.shape = "tiny", .n_layers = 2, .n_shards = 3}, two);
  EXPECT_EQ(two.weights->layers.size(), 2u);
  EXPECT_EQ(two.weights->checkpoint->files().size(), 3u);
  const QuantMatrix &a = four.weights->layers[1].delta.out, &b = two.weights->layers[1].delta.out;
  for (int64_t r = 0; r < a.n_out; ++r) {
    for (int64_t i = 0; i < a.n_in; ++i) ASSERT_EQ(a.decode(r, i), b.decode(r, i));
  }
}

TEST(Synthetic, tiny_splits_modules_over_shards_and_starts_at_odd_bytes) {
  Made made;
  make({.shape = "tiny", .n_shards = 2}, made);
  const Checkpoint& checkpoint = *made.weights->checkpoint;
  int n_split = 0;
  for (const auto& [name, entry] : checkpoint.tensors()) {
    if (!name.ends_with(".weight")) continue;
    const TensorEntry* scales = checkpoint.find(name.substr(0, name.size() - 6) + "scales");
    if (scales != nullptr && scales->file != entry.file) ++n_split;
    EXPECT_EQ(reinterpret_cast<uintptr_t>(entry.bytes.data()) % 2, 1u) << name;
  }
  EXPECT_GT(n_split, 5);
}

TEST(Synthetic, tiny_takes_dense_form_and_other_heads) {
  Made dense;
  make({.shape = "tiny", .has_experts = false, .n_heads = 12}, dense);
  EXPECT_FALSE(dense.weights->config.is_moe());
  EXPECT_EQ(dense.weights->config.n_heads, 12);
  EXPECT_TRUE(dense.weights->layers[0].mlp.down.exists());
  Made wide;
  make({.shape = "tiny", .n_heads = 32}, wide);
  EXPECT_EQ(wide.weights->layers[3].attention.q.n_out, 32 * 2 * 64);
}

TEST(Synthetic, published_shapes_have_the_published_counts) {
  uint64_t n_bytes = 0, n_tensors = 0;
  for (const SyntheticTensor& tensor : tensors_of({.shape = "ornith-122b"})) {
    n_bytes += tensor.n_bytes();
    ++n_tensors;
  }
  EXPECT_EQ(n_tensors, 2107u);
  EXPECT_EQ(n_bytes, 68'709'680'640u);
  std::set<std::string> modules[2];
  for (const SyntheticTensor& tensor : tensors_of({.shape = "35b-a3b"})) {
    if (tensor.kind == SyntheticKind::kCodes) modules[tensor.bits == 8].insert(tensor.name);
  }
  EXPECT_EQ(modules[0].size(), 432u);
  EXPECT_EQ(modules[1].size(), 80u);
  std::map<std::string, SyntheticTensor> dense;
  for (const SyntheticTensor& tensor : tensors_of({.shape = "27b"})) dense[tensor.name] = tensor;
  EXPECT_EQ(dense.at("language_model.model.layers.0.mlp.down_proj.weight").shape,
            (Shape{5120, 2176}));
  EXPECT_EQ(dense.at("language_model.model.layers.63.self_attn.q_proj.scales").shape,
            (Shape{12288, 80}));
}

TEST(Synthetic, unknown_shapes_and_widths_are_refused) {
  const SyntheticOptions wrong[] = {{.shape = "70b"},
                                    {.shape = "tiny", .bits = 7},
                                    {.shape = "tiny", .group = 16},
                                    {.shape = "tiny", .n_layers = -1},
                                    {.shape = "tiny", .n_layers = 100'000},
                                    {.shape = "tiny", .n_heads = 7},
                                    {.shape = "tiny", .n_shards = 0},
                                    {.shape = "27b", .n_shards = 2},
                                    {.shape = "27b", .has_experts = false}};
  for (const SyntheticOptions& options : wrong) {
    expect_refusal(synthetic_config(options), Refusal::FlagValue, "");
    expect_refusal(synthetic_tensors(options), Refusal::FlagValue, "");
  }
}

TEST(Synthetic, a_folder_that_cannot_be_written_is_refused) {
  const test::TempFolder folder;
  folder.write("file", "");
  expect_refusal(write_synthetic_checkpoint({.shape = "tiny"}, kFledgling, folder.path() + "/file"),
                 Refusal::FileWrite, "file");
  expect_refusal(write_synthetic_checkpoint({.shape = "tiny"}, folder.path(), folder.path() + "/x"),
                 Refusal::FileMissing, "chat_template.jinja");
}

TEST(Synthetic, large_shapes_get_a_tokenizer_of_the_family_size) {
  const auto files = synthetic_text_files({.shape = "35b-a3b"}, kFledgling);
  ASSERT_TRUE(files) << to_string(files.error());
  std::map<std::string, std::string> text(files->begin(), files->end());
  const auto tokenizer = json::parse(text.at("tokenizer.json"));
  ASSERT_TRUE(tokenizer) << to_string(tokenizer.error());
  const json::Value& model = *tokenizer->find("model");
  EXPECT_EQ(model.find("vocab")->members().size(), 248'044u);
  EXPECT_EQ(model.find("merges")->items().size(), 247'587u);
  EXPECT_EQ(tokenizer->find("added_tokens")->items().size(), 26u);
  EXPECT_EQ(tokenizer->find("added_tokens")->items().back().find("content")->as_string(),
            "</think>");
  EXPECT_EQ(tokenizer->find("added_tokens")->items().back().find("id")->as_int64(), 248'069);
  EXPECT_FALSE(tokenizer->find("added_tokens")->items().back().find("special")->as_bool());
  const auto config = json::parse(text.at("tokenizer_config.json"));
  ASSERT_TRUE(config);
  const json::Value& decoder = *config->find("added_tokens_decoder");
  EXPECT_EQ(decoder.members().size(), 33u);
  EXPECT_EQ(decoder.find("248076")->find("content")->as_string(), "<|audio_pad|>");

  // Every id once, and each merge's result is a token.
  std::set<std::string> tokens;
  int64_t next = 0;
  for (const auto& [token, id] : model.find("vocab")->members()) {
    EXPECT_EQ(id.as_int64(), next++);
    EXPECT_TRUE(tokens.insert(token).second);
  }
  for (const json::Value& merge : model.find("merges")->items()) {
    ASSERT_TRUE(tokens.contains(merge.items()[0].as_string() + merge.items()[1].as_string()));
  }
}

}  // namespace
}  // namespace roost
