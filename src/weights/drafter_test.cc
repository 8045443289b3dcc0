// The bundled drafter in every layout, and everything that is missing or wrong in one.
#include "weights/drafter.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "base/file.h"
#include "weights/test_checkpoint.h"

namespace roost {
namespace {

using test::expect_refusal;
using test::FileTensors;
using test::TempFolder;

const std::string kFolder = ROOST_SOURCE_DIR "/models/fledgling/drafter";

const ModelWeights& target() {
  static const ModelWeights weights = [] {
    const std::string folder = ROOST_SOURCE_DIR "/models/fledgling";
    const auto text = read_file(folder + "/config.json", 1 << 20);
    return test::load_folder(folder, *text).value();
  }();
  return weights;
}

std::string config_text() {
  return read_file(kFolder + "/config.json", 1 << 20).value();
}

// The bundled drafter's tensors as written to a file.
FileTensors files() {
  const Checkpoint checkpoint = Checkpoint::open(kFolder).value();
  FileTensors all;
  for (const auto& [name, entry] : checkpoint.tensors()) {
    std::vector<int64_t> shape;
    for (int i = 0; i < entry.shape.rank(); ++i) shape.push_back(entry.shape[i]);
    all[name] = {
        "BF16", shape,
        std::string(reinterpret_cast<const char*>(entry.bytes.data()), entry.bytes.size())};
  }
  return all;
}

Result<DrafterWeights> load(const FileTensors& tensors, const std::string& config) {
  const TempFolder folder;
  folder.write("config.json", config);
  folder.write("model.safetensors", test::safetensors_bytes(tensors, 1));
  return load_drafter(folder.path(), target());
}

TEST(DrafterWeights, the_bundled_drafter_fits_the_bundled_model) {
  const auto weights = load_drafter(kFolder, target());
  ASSERT_TRUE(weights) << to_string(weights.error());
  EXPECT_EQ(weights->checkpoint->tensors().size(), 51u);  // 15·L + 6
  EXPECT_EQ(weights->layers.size(), 3u);
  EXPECT_EQ(weights->fc.n_in, 1024);
  EXPECT_EQ(weights->layers[1].attention_conv.base.shape, (Shape{2, 2, 256}));
  EXPECT_EQ(weights->predecessor.n_out, 3072);
}

TEST(DrafterWeights, names_of_other_exporters_mean_the_same) {
  FileTensors renamed;
  for (const auto& [name, tensor] : files()) {
    std::string other = "model." + name;
    if (name == "fc.weight") other = "encoder.fc.weight";
    if (name == "hidden_norm.weight") other = "encoder.output_norm_enc.weight";
    if (name.starts_with("layers.0.")) other = "midlayer." + name.substr(9);
    if (name.ends_with("_codebook")) other = name + ".weight";
    renamed[other] = tensor;
  }
  const auto weights = load(renamed, config_text());
  ASSERT_TRUE(weights) << to_string(weights.error());
  const auto plain = load(files(), config_text());
  ASSERT_TRUE(plain);
  for (int64_t i = 0; i < 64; ++i) {
    EXPECT_EQ(weights->fc.decode(i, i), plain->fc.decode(i, i));
    EXPECT_EQ(weights->layers[0].q.decode(i, i), plain->layers[0].q.decode(i, i));
    EXPECT_EQ(weights->successor.decode(i, i % 32), plain->successor.decode(i, i % 32));
  }
}

TEST(DrafterWeights, the_first_version_has_neither_convolutions_nor_a_selector) {
  FileTensors first;
  for (const auto& [name, tensor] : files()) {
    if (name.find("conv") == std::string::npos && !name.starts_with("candidate"))
      first[name] = tensor;
  }
  std::string config = config_text();
  config.replace(config.find("DFlash2DraftModel"), 17, "DFlashDraftModel");
  const auto weights = load(first, config);
  ASSERT_TRUE(weights) << to_string(weights.error());
  EXPECT_EQ(weights->checkpoint->tensors().size(), 36u);  // 11·L + 3
  EXPECT_FALSE(weights->predecessor.exists());
  // A file of the second version under the first one's name would lose half of itself unseen.
  expect_refusal(load(files(), config), Refusal::TensorUnknown, "candidate_selector");
}

// Codes of affine quantization as the MLX converter writes them, 4 or 8 bits in groups of 64.
void quantize(FileTensors& all, const std::string& module, int bits) {
  const auto tensor = all.at(module + (all.contains(module) ? "" : ".weight"));
  const size_t n = tensor.bytes.size() / 2;
  std::string codes(n * static_cast<size_t>(bits) / 8, '\0');
  std::vector<float> scales, biases;
  for (size_t g = 0; g < n / 64; ++g) {
    float low = 1e9f, high = -1e9f;
    std::vector<float> w(64);
    for (size_t i = 0; i < 64; ++i) {
      uint16_t raw;
      std::memcpy(&raw, tensor.bytes.data() + 2 * (g * 64 + i), 2);
      w[i] = f32_from_bf16(raw);
      low = std::min(low, w[i]), high = std::max(high, w[i]);
    }
    const auto top = static_cast<float>((1 << bits) - 1);
    const float scale = f32_from_bf16(bf16_from_f32(std::max((high - low) / top, 1e-8f)));
    const float bias = f32_from_bf16(bf16_from_f32(low));
    for (size_t i = 0; i < 64; ++i) {
      const auto code =
          static_cast<unsigned>(std::clamp(std::nearbyint((w[i] - bias) / scale), 0.0f, top));
      const size_t at = (g * 64 + i) * static_cast<size_t>(bits);
      codes[at / 8] = static_cast<char>(codes[at / 8] | static_cast<char>(code << (at % 8)));
    }
    scales.push_back(scale), biases.push_back(bias);
  }
  std::vector<int64_t> words = tensor.shape, groups = tensor.shape;
  words.back() = words.back() * bits / 32;
  groups.back() /= 64;
  all.erase(module);
  all[module + ".weight"] = {"U32", words, codes};
  all[module + ".scales"] = {"BF16", groups, test::encoded(scales, "BF16")};
  all[module + ".biases"] = {"BF16", groups, test::encoded(biases, "BF16")};
}

TEST(DrafterWeights, mlx_quantized_files_are_read_as_they_lie) {
  FileTensors all = files();
  std::vector<std::string> modules = {"fc", "candidate_selector.hidden_projection"};
  for (int l = 0; l < 3; ++l) {
    for (const char* name : {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj",
                             "self_attn.o_proj", "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj",
                             "attention_conv.kernel_projection", "mlp_conv.kernel_projection"})
      modules.push_back("layers." + std::to_string(l) + "." + name);
  }
  for (const std::string& module : modules) quantize(all, module, module == "fc" ? 8 : 4);
  const std::string config = test::with_quantization(
      config_text(), R"({"group_size": 64, "bits": 4, "mode": "affine", "model.fc": {"bits": 8}})");
  const auto weights = load(all, config);
  ASSERT_TRUE(weights) << to_string(weights.error());
  EXPECT_EQ(weights->fc.bits, 8);
  EXPECT_EQ(weights->layers[2].mlp_conv.dynamic.bits, 4);
  EXPECT_EQ(weights->predecessor.format, QuantMatrix::Format::kPlain);
  const auto plain = load(files(), config_text());
  for (int64_t i = 0; i < 256; ++i)
    EXPECT_NEAR(weights->fc.decode(i, i), plain->fc.decode(i, i), 0.01);
  expect_refusal(load(all, config_text()), Refusal::QuantFormat, "config.json has no quantization");
}

// Every value is as near as half a step and the rounding of scale and bias allow.
TEST(DrafterWeights, matrices_become_4_bit_codes_when_that_is_asked) {
  const auto plain = load_drafter(kFolder, target());
  const auto narrow = load_drafter(kFolder, target(), DrafterWidth::kFourBits);
  ASSERT_TRUE(plain && narrow);
  EXPECT_EQ(narrow->layers[1].mlp.down.bits, 4);
  EXPECT_EQ(narrow->predecessor.format, QuantMatrix::Format::kPlain);
  EXPECT_NE(narrow->identity, plain->identity);
  EXPECT_LT(narrow->bytes_mapped + narrow->bytes_owned,
            (plain->bytes_mapped + plain->bytes_owned) / 2);
  for (const auto& [have, want] :
       {std::pair(&narrow->fc, &plain->fc), std::pair(&narrow->layers[2].attention_conv.dynamic,
                                                      &plain->layers[2].attention_conv.dynamic)}) {
    for (int64_t row = 0; row < have->n_out; row += 7) {
      for (int64_t first = 0; first < have->n_in; first += 64) {
        double lo = 1e9, hi = -1e9;
        for (int64_t c = first; c < first + 64; ++c) {
          lo = std::min(lo, want->decode(row, c));
          hi = std::max(hi, want->decode(row, c));
        }
        const double step = (hi - lo) / 15;
        const double slack = 15 * step / 256 + std::abs(lo) / 256;  // of bf16
        for (int64_t c = first; c < first + 64; ++c)
          ASSERT_NEAR(have->decode(row, c), want->decode(row, c), 0.51 * step + slack);
      }
    }
  }
}

TEST(DrafterWeights, what_is_missing_or_has_another_shape_is_named) {
  for (const char* name :
       {"fc.weight", "hidden_norm.weight", "norm.weight", "layers.1.self_attn.k_norm.weight",
        "layers.2.mlp.up_proj.weight", "layers.0.attention_conv.base_kernel",
        "layers.0.mlp_conv.kernel_projection.weight", "candidate_selector.successor_codebook"}) {
    FileTensors all = files();
    all.erase(name);
    expect_refusal(load(all, config_text()), Refusal::TensorMissing, name);
    all = files();
    all[name].shape.insert(all[name].shape.begin(), 1);
    expect_refusal(load(all, config_text()), Refusal::TensorShape, name);
  }
}

TEST(DrafterWeights, what_is_left_over_is_refused) {
  FileTensors all = files();
  all["mask_embedding"] = all["norm.weight"];
  expect_refusal(load(all, config_text()), Refusal::TensorUnknown, "mask_embedding");
  all = files();
  all["layers.3.input_layernorm.weight"] = all["norm.weight"];
  expect_refusal(load(all, config_text()), Refusal::TensorUnknown, "layers.3");
  all = files();
  all["model.fc.weight"] = all["fc.weight"];
  expect_refusal(load(all, config_text()), Refusal::CheckpointDuplicate, "fc.weight");
  all = files();
  all["lm_head.weight"] = {"BF16", {3072, 256}, std::string(3072 * 512, '\0')};
  expect_refusal(load(all, config_text()), Refusal::DrafterMismatch, "lm_head.weight");
}

TEST(DrafterWeights, a_value_that_is_not_finite_is_found_wherever_it_is) {
  for (const char* name :
       {"fc.weight", "norm.weight", "layers.2.self_attn.v_proj.weight",
        "candidate_selector.predecessor_codebook", "layers.1.mlp_conv.base_kernel"}) {
    for (const uint16_t bits : {0x7FC0, 0xFF80}) {
      FileTensors all = files();
      std::string& bytes = all[name].bytes;
      std::memcpy(bytes.data() + bytes.size() - 2, &bits, 2);
      expect_refusal(load(all, config_text()), Refusal::TensorValue, name);
    }
  }
}

TEST(DrafterWeights, another_weight_or_configuration_is_another_identity) {
  const auto a = load(files(), config_text()), same = load(files(), config_text());
  ASSERT_TRUE(a && same);
  EXPECT_EQ(a->identity, same->identity);
  FileTensors all = files();
  all["fc.weight"].bytes[100] = static_cast<char>(all["fc.weight"].bytes[100] ^ 1);
  EXPECT_FALSE(load(all, config_text())->identity == a->identity);
  std::string config = config_text();
  config.replace(config.find("\"sliding_window\": 256"), 21, "\"sliding_window\": 255");
  EXPECT_FALSE(load(files(), config)->identity == a->identity);
}

TEST(DrafterWeights, a_folder_without_a_drafter_is_refused) {
  expect_refusal(load_drafter("/nowhere", target()), Refusal::FileMissing, "/nowhere/config.json");
  const TempFolder folder;
  folder.write("config.json", "{");
  expect_refusal(load_drafter(folder.path(), target()), Refusal::JsonInvalid, "");
  folder.write("config.json", config_text());
  expect_refusal(load_drafter(folder.path(), target()), Refusal::FileMissing, "safetensors");
}

}  // namespace
}  // namespace roost
