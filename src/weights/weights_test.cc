// One small model in every layout gives the same weights; everything that is missing or wrong is
// named.
#include "weights/weights.h"

#include <gtest/gtest.h>

#include <functional>

#include "base/file.h"
#include "weights/test_checkpoint.h"

namespace roost {
namespace {

using test::expect_refusal;
using test::FileTensors;
using test::load_files;
using test::SmallModel;
using test::with_quantization;

constexpr const char* kQuantized = R"({"group_size": 32, "bits": 4, "mode": "affine",
  "language_model.model.layers.0.mlp.gate": {"bits": 8},
  "model.language_model.layers.1.mlp.gate": {"bits": 8, "group_size": 32},
  "language_model.model.layers.2.linear_attn.out_proj": {"bits": 6},
  "language_model.model.layers.3.self_attn.o_proj": {"bits": 5, "group_size": 32},
  "language_model.model.layers.1.mlp.switch_mlp.down_proj": {"bits": 8, "group_size": 64},
  "language_model.lm_head": false})";

const std::map<std::string, SmallModel::Width> kWidths = {
    {"language_model.model.layers.0.mlp.gate",
     {8, 64}},  // the class default of a missing group is 64
    {"language_model.model.layers.1.mlp.gate", {8, 32}},
    {"language_model.model.layers.2.linear_attn.out_proj", {6, 64}},
    {"language_model.model.layers.3.self_attn.o_proj", {5, 32}},
    {"language_model.model.layers.1.mlp.switch_mlp.down_proj", {8, 64}},
    {"language_model.lm_head", {0, 0}}};

void expect_same(const QuantMatrix& a, const QuantMatrix& b, const std::string& what) {
  ASSERT_EQ(a.exists(), b.exists()) << what;
  if (!a.exists()) return;
  ASSERT_EQ(a.n_out, b.n_out) << what;
  ASSERT_EQ(a.n_in, b.n_in) << what;
  for (int64_t r = 0; r < a.n_out; ++r) {
    for (int64_t i = 0; i < a.n_in; ++i)
      ASSERT_EQ(a.decode(r, i), b.decode(r, i)) << what << " " << r << "," << i;
  }
}

void expect_same(const Tensor& a, const Tensor& b, const std::string& what) {
  ASSERT_EQ(a.exists(), b.exists()) << what;
  if (!a.exists()) return;
  ASSERT_EQ(a.dtype, DType::kF32);
  ASSERT_EQ(a.shape, b.shape) << what;
  for (int64_t i = 0; i < a.n_elements(); ++i) ASSERT_EQ(a.get(i), b.get(i)) << what << " " << i;
}

void expect_same(const GatedMlp& a, const GatedMlp& b, const std::string& what) {
  expect_same(a.gate, b.gate, what + " gate");
  expect_same(a.up, b.up, what + " up");
  expect_same(a.down, b.down, what + " down");
}

void expect_same(const LayerWeights& a, const LayerWeights& b, const std::string& what) {
  ASSERT_EQ(a.is_full_attention, b.is_full_attention);
  expect_same(a.input_norm, b.input_norm, what + " input norm");
  expect_same(a.post_norm, b.post_norm, what + " post norm");
  expect_same(a.attention.q, b.attention.q, what + " q");
  expect_same(a.attention.k, b.attention.k, what + " k");
  expect_same(a.attention.v, b.attention.v, what + " v");
  expect_same(a.attention.o, b.attention.o, what + " o");
  expect_same(a.attention.q_norm, b.attention.q_norm, what + " q norm");
  expect_same(a.attention.k_norm, b.attention.k_norm, what + " k norm");
  expect_same(a.delta.qkv, b.delta.qkv, what + " qkv");
  expect_same(a.delta.z, b.delta.z, what + " z");
  expect_same(a.delta.b, b.delta.b, what + " b");
  expect_same(a.delta.a, b.delta.a, what + " a");
  expect_same(a.delta.out, b.delta.out, what + " out");
  expect_same(a.delta.conv, b.delta.conv, what + " conv");
  expect_same(a.delta.a_log, b.delta.a_log, what + " a_log");
  expect_same(a.delta.dt_bias, b.delta.dt_bias, what + " dt_bias");
  expect_same(a.delta.norm, b.delta.norm, what + " norm");
  expect_same(a.mlp, b.mlp, what + " mlp");
  expect_same(a.moe.router, b.moe.router, what + " router");
  expect_same(a.moe.shared_gate, b.moe.shared_gate, what + " shared gate");
  expect_same(a.moe.shared, b.moe.shared, what + " shared");
  ASSERT_EQ(a.moe.experts.size(), b.moe.experts.size());
  for (size_t e = 0; e < a.moe.experts.size(); ++e) {
    expect_same(a.moe.experts[e], b.moe.experts[e], what + " expert " + std::to_string(e));
  }
}

void expect_same(const ModelWeights& a, const ModelWeights& b) {
  expect_same(a.embedding, b.embedding, "embedding");
  expect_same(a.head, b.head, "head");
  expect_same(a.final_norm, b.final_norm, "final norm");
  ASSERT_EQ(a.layers.size(), b.layers.size());
  for (size_t l = 0; l < a.layers.size(); ++l)
    expect_same(a.layers[l], b.layers[l], "layer " + std::to_string(l));
}

// The numbers that the small model was made of, found without the loader's code.
void expect_numbers(const ModelWeights& w, const SmallModel& model) {
  const auto& t = model.tensors();
  const auto at = [&](const char* name, size_t i) { return t.at(name).values[i]; };
  EXPECT_EQ(w.embedding.decode(7, 9), at("embed_tokens.weight", 7 * 64 + 9));
  EXPECT_EQ(w.final_norm.get(5), 1 + at("norm.weight", 5));
  EXPECT_EQ(w.layers[1].input_norm.get(63), 1 + at("layers.1.input_layernorm.weight", 63));
  EXPECT_EQ(w.layers[3].attention.k_norm.get(31), 1 + at("layers.3.self_attn.k_norm.weight", 31));
  EXPECT_EQ(w.layers[2].delta.norm.get(31), at("layers.2.linear_attn.norm.weight", 31));
  EXPECT_EQ(w.layers[2].delta.conv.get(4 * 77 + 3),
            at("layers.2.linear_attn.conv1d.weight", 4 * 77 + 3));
  EXPECT_EQ(w.layers[0].delta.a_log.get(1), at("layers.0.linear_attn.A_log", 1));
  if (!model.is_moe()) return;
  EXPECT_EQ(w.layers[1].moe.experts[3].up.decode(10, 20),
            at("layers.1.mlp.experts.gate_up_proj", (3 * 128 + 64 + 10) * 64 + 20));
  EXPECT_EQ(w.layers[1].moe.experts[2].down.decode(50, 60),
            at("layers.1.mlp.experts.down_proj", (2 * 64 + 50) * 64 + 60));
}

TEST(Weights, every_layout_of_one_model_gives_the_same_weights) {
  for (const bool is_moe : {true, false}) {
    const SmallModel model(is_moe);
    const auto plain = load_files(model.hf("BF16", true), model.config());
    ASSERT_TRUE(plain) << to_string(plain.error());
    expect_numbers(*plain, model);
    std::vector<std::pair<std::string, Result<ModelWeights>>> others;
    others.emplace_back("f16", load_files(model.hf("F16", true), model.config()));
    others.emplace_back("f32", load_files(model.hf("F32", true), model.config()));
    others.emplace_back("one by one", load_files(model.hf("BF16", false), model.config()));
    others.emplace_back("flat names", load_files(model.hf("BF16", true, "model."), model.config()));
    others.emplace_back(
        "one by one under the MLX prefix",
        load_files(model.hf("BF16", false, "language_model.model."), model.config()));
    others.emplace_back("MLX, not quantized", load_files(model.mlx({}, {0, 0}), model.config()));
    std::map<std::string, SmallModel::Width> widths = kWidths;
    if (!is_moe)
      std::erase_if(widths, [](const auto& w) { return w.first.find("mlp") != std::string::npos; });
    others.emplace_back("MLX", load_files(model.mlx(widths, {4, 32}),
                                          with_quantization(model.config(), kQuantized)));
    for (const auto& [what, other] : others) {
      SCOPED_TRACE(what);
      ASSERT_TRUE(other) << to_string(other.error());
      expect_same(*plain, *other);
      EXPECT_TRUE(other->left_out.empty());
      EXPECT_TRUE(other->is_text_only);
    }
  }
}

TEST(Weights, every_width_and_group_that_fits_is_read) {
  const SmallModel model(true);
  const auto plain = load_files(model.hf("BF16", true), model.config());
  ASSERT_TRUE(plain);
  for (const int bits : {4, 5, 6, 8}) {
    const std::string entry = "{\"group_size\": 32, \"bits\": " + std::to_string(bits) + "}";
    const auto w = load_files(model.mlx({}, {bits, 32}), with_quantization(model.config(), entry));
    ASSERT_TRUE(w) << to_string(w.error());
    EXPECT_EQ(w->embedding.bits, bits);
    expect_same(*plain, *w);
  }
}

TEST(Weights, scales_of_other_types_are_converted) {
  const SmallModel model(true);
  const std::string config = with_quantization(model.config(), R"({"group_size": 32, "bits": 4})");
  const FileTensors files = model.mlx({}, {4, 32});
  const auto plain = load_files(files, config);
  ASSERT_TRUE(plain);
  for (const auto& [scales, biases] :
       {std::pair("F16", "F16"), std::pair("F32", "F32"), std::pair("BF16", "F32")}) {
    FileTensors changed = files;
    for (auto& [name, tensor] : changed) {
      const bool is_scale = name.ends_with(".scales");
      if (!is_scale && !name.ends_with(".biases")) continue;
      const size_t n = tensor.bytes.size() / 2;
      const char* dtype = is_scale ? scales : biases;
      tensor = {dtype, tensor.shape,
                test::encoded(std::vector<float>(n, is_scale ? 1.0f / 32 : -0.25f), dtype)};
    }
    const auto w = load_files(changed, config);
    ASSERT_TRUE(w) << to_string(w.error());
    EXPECT_EQ(w->head.dtype, DType::kF32);
    expect_same(*plain, *w);
  }
}

TEST(Weights, what_can_be_used_in_place_is_not_copied) {
  const SmallModel model(true);
  const auto bf16 = load_files(model.hf("BF16", true), model.config());
  const auto f16 = load_files(model.hf("F16", true), model.config());
  ASSERT_TRUE(bf16 && f16);
  EXPECT_GT(bf16->bytes_mapped, 300'000u);
  EXPECT_LT(bf16->bytes_owned, 20'000u);
  EXPECT_EQ(f16->bytes_mapped, 0u);
  EXPECT_GT(f16->bytes_owned, 2 * bf16->bytes_mapped);
}

TEST(Weights, the_parts_of_a_module_may_lie_in_two_shards) {
  const SmallModel model(true);
  const FileTensors files = model.mlx({}, {4, 32});
  const std::string config = with_quantization(model.config(), R"({"group_size": 32, "bits": 4})");
  const auto whole = load_files(files, config);
  FileTensors shards[2];
  size_t i = 0;
  for (const auto& [name, tensor] : files) shards[i++ % 2][name] = tensor;
  const test::TempFolder folder;
  folder.write("model-00001-of-00002.safetensors", test::safetensors_bytes(shards[0], 0));
  folder.write("model-00002-of-00002.safetensors", test::safetensors_bytes(shards[1], 1));
  const auto split = test::load_folder(folder.path(), config);
  ASSERT_TRUE(whole && split);
  expect_same(*whole, *split);
}

TEST(Weights, the_head_is_tied_when_there_is_none) {
  const SmallModel model(false);
  FileTensors files = model.hf("BF16", true);
  const std::string config = "{\"tie_word_embeddings\": true, " + model.config().substr(1);
  const auto untied = load_files(files, config);
  ASSERT_TRUE(untied) << to_string(untied.error());
  EXPECT_FALSE(untied->config.tie_embeddings);
  EXPECT_NE(untied->head.codes, untied->embedding.codes);
  files.erase("lm_head.weight");
  const auto tied = load_files(files, config);
  ASSERT_TRUE(tied) << to_string(tied.error());
  EXPECT_TRUE(tied->config.tie_embeddings);
  EXPECT_EQ(tied->head.codes, tied->embedding.codes);
}

TEST(Weights, a_head_may_be_missing_only_where_a_flag_ties_it) {
  const SmallModel model(false);
  FileTensors files = model.hf("BF16", true);
  files.erase("lm_head.weight");
  expect_refusal(load_files(files, model.config()), Refusal::TensorMissing, "lm_head");
  const auto with_flags = [&](const std::string& outer, const std::string& inner) {
    std::string config = model.config();
    const std::string text = "\"text_config\": {";
    config.insert(config.find(text) + text.size(), "\"tie_word_embeddings\": " + inner + ", ");
    return "{\"tie_word_embeddings\": " + outer + ", " + config.substr(1);
  };
  expect_refusal(load_files(files, with_flags("false", "false")), Refusal::TensorMissing,
                 "lm_head");
  EXPECT_TRUE(load_files(files, with_flags("false", "true")));
  EXPECT_TRUE(load_files(files, with_flags("true", "false")));
}

TEST(Weights, a_model_without_a_shared_expert_loads) {
  const SmallModel model(true);
  FileTensors files = model.hf("BF16", true);
  std::erase_if(files, [](const auto& file) {
    return file.first.find("shared_expert") != std::string::npos;
  });
  std::string config = model.config();
  const std::string field = "\"shared_expert_intermediate_size\": 32";
  config.replace(config.find(field), field.size(), "\"shared_expert_intermediate_size\": 0");
  const auto w = load_files(files, config);
  ASSERT_TRUE(w) << to_string(w.error());
  EXPECT_FALSE(w->layers[0].moe.shared.gate.exists());
  EXPECT_FALSE(w->layers[0].moe.shared_gate.exists());
}

TEST(Weights, what_is_left_out_is_named) {
  const SmallModel model(true);
  FileTensors files = model.hf("BF16", true);
  files["mtp.fc.weight"] = {"BF16", {1}, "ab"};
  files["model.visual.pos_embed.weight"] = {"BF16", {1}, "ab"};
  files["model.language_model.layers.3.self_attn.rotary_emb.inv_freq"] = {"F32", {1}, "abcd"};
  const auto w = load_files(files, model.config());
  ASSERT_TRUE(w) << to_string(w.error());
  EXPECT_EQ(w->left_out.size(), 3u);
  EXPECT_FALSE(w->is_text_only);
}

TEST(Weights, active_bytes_count_the_chosen_experts) {
  const SmallModel model(true);
  const auto w = load_files(model.hf("BF16", true), model.config());
  ASSERT_TRUE(w);
  const size_t delta = 64 * (128 + 64 + 2 + 2) + 64 * 64,
               attention = 64 * (128 + 32 + 32) + 64 * 64;
  const size_t moe = 64 * 4 + 64 + 2 * 3 * 64 * 64 + 3 * 64 * 32;
  const ActiveBytes active = active_bytes(*w);
  EXPECT_EQ(active.layers, 2 * (3 * delta + attention + 4 * moe));
  EXPECT_EQ(active.head, 2u * 96 * 64);
  EXPECT_EQ(active.flop_layers_per_row, 2.0 * static_cast<double>(3 * delta + attention + 4 * moe));
}

struct Fault {
  const char* what;
  std::function<void(FileTensors&)> plant;
  Refusal refusal;
  const char* detail;
};

void replace(FileTensors& files, const std::string& name, const std::string& dtype,
             std::vector<int64_t> shape) {
  size_t n = dtype == "U8" ? 1 : dtype == "F32" || dtype == "U32" || dtype == "I32" ? 4 : 2;
  for (const int64_t dim : shape) n *= static_cast<size_t>(dim);
  files[name] = {dtype, std::move(shape), std::string(n, '\0')};
}

TEST(Weights, wrong_files_of_the_transformers_layout_are_refused) {
  const std::string p = "model.language_model.";
  const Fault faults[] = {
      {"a matrix is missing",
       [&](auto& f) { f.erase(p + "layers.2.linear_attn.in_proj_z.weight"); },
       Refusal::TensorMissing, "layers.2.linear_attn.in_proj_z.weight (64x64)"},
      {"a norm is missing", [&](auto& f) { f.erase(p + "norm.weight"); }, Refusal::TensorMissing,
       "norm.weight (64)"},
      {"the experts are missing",
       [&](auto& f) { f.erase(p + "layers.1.mlp.experts.gate_up_proj"); }, Refusal::TensorMissing,
       "layers.1.mlp.switch_mlp.gate_proj.weight"},
      {"the first convolution is missing",
       [&](auto& f) { f.erase(p + "layers.0.linear_attn.conv1d.weight"); }, Refusal::TensorMissing,
       "conv1d.weight"},
      {"q without its gate",
       [&](auto& f) { replace(f, p + "layers.3.self_attn.q_proj.weight", "BF16", {64, 64}); },
       Refusal::TensorShape, "q_proj.weight: have 64x64, want 128x64"},
      {"a norm of another length",
       [&](auto& f) { replace(f, p + "layers.0.input_layernorm.weight", "BF16", {63}); },
       Refusal::TensorShape, "have 63, want 64"},
      {"a norm of another rank", [&](auto& f) { replace(f, p + "norm.weight", "BF16", {64, 1}); },
       Refusal::TensorShape, "have 64x1, want 64"},
      {"a convolution of three taps",
       [&](auto& f) { replace(f, p + "layers.0.linear_attn.conv1d.weight", "BF16", {128, 1, 3}); },
       Refusal::TensorShape, "have 128x1x3, want 128x1x4"},
      {"a flat convolution",
       [&](auto& f) { replace(f, p + "layers.0.linear_attn.conv1d.weight", "BF16", {128, 4}); },
       Refusal::TensorShape, "have 128x4"},
      {"one converted convolution",
       [&](auto& f) { replace(f, p + "layers.2.linear_attn.conv1d.weight", "BF16", {128, 4, 1}); },
       Refusal::TensorShape, "other order of axes"},
      {"too few experts",
       [&](auto& f) { replace(f, p + "layers.0.mlp.experts.gate_up_proj", "BF16", {3, 128, 64}); },
       Refusal::TensorShape, "have 3x128x64, want 4x128x64"},
      {"integers for weights",
       [&](auto& f) { replace(f, p + "layers.0.mlp.gate.weight", "I16", {4, 64}); },
       Refusal::CheckpointDtype, "have i16, want bf16, f16 or f32"},
      {"integers for a vector",
       [&](auto& f) { replace(f, p + "layers.0.linear_attn.A_log", "I32", {2}); },
       Refusal::CheckpointDtype, "A_log: have i32"},
      {"a bias", [&](auto& f) { replace(f, p + "layers.3.self_attn.q_proj.bias", "BF16", {128}); },
       Refusal::TensorUnknown, "layers.3.self_attn.q_proj.bias (128)"},
      {"a layer too many",
       [&](auto& f) { replace(f, p + "layers.4.input_layernorm.weight", "BF16", {64}); },
       Refusal::TensorUnknown, "layers.4.input_layernorm.weight"},
      {"an unknown part", [&](auto& f) { replace(f, "audio_tower.x", "BF16", {64}); },
       Refusal::TensorUnknown, "audio_tower.x"},
      {"a second name of one weight",
       [&](auto& f) { replace(f, "model.norm.weight", "BF16", {64}); },
       Refusal::CheckpointDuplicate, "model.norm.weight and model.language_model.norm.weight"},
      {"both forms of experts",
       [&](auto& f) {
         replace(f, p + "layers.0.mlp.experts.0.gate_proj.weight", "BF16", {64, 64});
       },
       Refusal::TensorMissing, "layers.0.mlp.experts.0.up_proj.weight"},
      {"scales without a configuration",
       [&](auto& f) { replace(f, p + "layers.0.mlp.gate.scales", "BF16", {4, 2}); },
       Refusal::QuantFormat, "config.json has no quantization"}};
  const SmallModel model(true);
  for (const Fault& fault : faults) {
    SCOPED_TRACE(fault.what);
    FileTensors files = model.hf("BF16", true);
    fault.plant(files);
    expect_refusal(load_files(files, model.config()), fault.refusal, fault.detail);
  }
}

TEST(Weights, wrong_files_of_the_mlx_layout_are_refused) {
  const std::string p = "language_model.model.";
  const Fault faults[] = {
      {"scales are missing", [&](auto& f) { f.erase(p + "layers.0.mlp.gate.scales"); },
       Refusal::TensorMissing, "layers.0.mlp.gate.scales"},
      {"biases are missing", [&](auto& f) { f.erase(p + "embed_tokens.biases"); },
       Refusal::TensorMissing, "embed_tokens.biases"},
      {"codes are missing", [&](auto& f) { f.erase(p + "embed_tokens.weight"); },
       Refusal::TensorMissing, "embed_tokens.weight"},
      {"scales of a floating mode",
       [&](auto& f) {
         f.erase(p + "embed_tokens.biases");
         replace(f, p + "embed_tokens.scales", "U8", {96, 2});
       },
       Refusal::QuantFormat, "scales of u8"},
      {"codes of another type",
       [&](auto& f) { replace(f, p + "embed_tokens.weight", "I32", {96, 8}); },
       Refusal::CheckpointDtype, "have i32, want u32"},
      {"another width than stated",
       [&](auto& f) { replace(f, p + "embed_tokens.weight", "U32", {96, 16}); },
       Refusal::QuantFormat,
       "config.json says 4 bits in groups of 32, the shapes say 8 bits in groups of 32"},
      {"another group than stated",
       [&](auto& f) {
         replace(f, p + "embed_tokens.scales", "BF16", {96, 1});
         replace(f, p + "embed_tokens.biases", "BF16", {96, 1});
       },
       Refusal::QuantFormat, "the shapes say 4 bits in groups of 64"},
      {"an impossible width",
       [&](auto& f) { replace(f, p + "embed_tokens.weight", "U32", {96, 9}); },
       Refusal::TensorShape, "have 96x9, want 96x8"},
      {"too few rows", [&](auto& f) { replace(f, p + "embed_tokens.weight", "U32", {95, 8}); },
       Refusal::TensorShape, "have 95x8"},
      {"no columns", [&](auto& f) { replace(f, p + "embed_tokens.weight", "U32", {96, 0}); },
       Refusal::TensorShape, "have 96x0"},
      {"biases of another shape",
       [&](auto& f) { replace(f, p + "embed_tokens.biases", "BF16", {96, 1}); },
       Refusal::TensorShape, "have 96x1, want 96x2"},
      {"a module that must not be quantized",
       [&](auto& f) { replace(f, "language_model.lm_head.scales", "BF16", {96, 2}); },
       Refusal::QuantFormat, "is not quantized"}};
  const SmallModel model(true);
  const std::string config = with_quantization(model.config(), kQuantized);
  for (const Fault& fault : faults) {
    SCOPED_TRACE(fault.what);
    FileTensors files = model.mlx(kWidths, {4, 32});
    ASSERT_TRUE(load_files(files, config));
    fault.plant(files);
    expect_refusal(load_files(files, config), fault.refusal, fault.detail);
  }
}

TEST(Weights, a_group_that_does_not_divide_the_inputs_is_refused) {
  const SmallModel model(true);
  const std::string config = with_quantization(model.config(), R"({"group_size": 128, "bits": 4})");
  expect_refusal(load_files(model.mlx({}, {4, 32}), config), Refusal::QuantFormat, "groups of 128");
}

TEST(Weights, experts_of_different_formats_are_refused) {
  const SmallModel model(true);
  FileTensors files = model.hf("BF16", false);
  replace(files, "model.language_model.layers.0.mlp.experts.2.up_proj.weight", "F32", {64, 64});
  expect_refusal(load_files(files, model.config()), Refusal::QuantFormat,
                 "layers.0.mlp.experts.2.");
}

TEST(Weights, vectors_with_values_that_are_no_numbers_are_refused) {
  const SmallModel model(true);
  for (const char* name :
       {"norm.weight", "layers.1.linear_attn.A_log", "layers.1.linear_attn.dt_bias",
        "layers.1.linear_attn.norm.weight", "layers.1.linear_attn.conv1d.weight",
        "layers.3.self_attn.q_norm.weight", "layers.2.post_attention_layernorm.weight"}) {
    for (const uint16_t bits : {0x7FC0, 0x7F80, 0xFF80}) {
      FileTensors files = model.hf("BF16", true);
      std::memcpy(files.at(std::string("model.language_model.") + name).bytes.data() + 2, &bits, 2);
      expect_refusal(load_files(files, model.config()), Refusal::TensorValue,
                     std::string(name) + ": element 1 is");
    }
  }
}

// Values read from the file by a separate program.
TEST(Weights, fledgling_decodes_to_known_values) {
  const std::string folder = std::string(ROOST_SOURCE_DIR) + "/models/fledgling";
  Result<std::string> text = read_file(folder + "/config.json", 1 << 20);
  ASSERT_TRUE(text);
  const auto w = test::load_folder(folder, *text);
  ASSERT_TRUE(w) << to_string(w.error());
  ASSERT_EQ(w->layers.size(), 8u);
  EXPECT_EQ(w->embedding.n_out, 3072);
  EXPECT_EQ(w->embedding.decode(1234, 77), -0.01251220703125);
  EXPECT_EQ(w->head.decode(3071, 200), -0.0009765625);
  EXPECT_EQ(w->layers[0].delta.qkv.decode(1535, 255), 0.03900146484375);
  EXPECT_EQ(w->layers[1].moe.router.bits, 8);
  EXPECT_EQ(w->layers[1].moe.router.decode(9, 130), -0.0006103515625);
  EXPECT_EQ(w->layers[3].attention.q.n_out, 8192);
  EXPECT_EQ(w->layers[3].attention.q.decode(8191, 64), 0.0625);
  ASSERT_EQ(w->layers[5].moe.experts.size(), 16u);
  EXPECT_EQ(w->layers[5].moe.experts[13].down.decode(200, 100), -0.01422119140625);
  EXPECT_EQ(w->layers[5].moe.experts[15].up.decode(3, 191), 0.0);
  EXPECT_EQ(w->layers[7].moe.shared_gate.decode(0, 11), -0.030384063720703125);
  EXPECT_EQ(w->layers[0].input_norm.get(5), 0.9375);
  EXPECT_EQ(w->final_norm.get(255), 1.5625);
  EXPECT_EQ(w->layers[3].attention.k_norm.get(100), 0.984375);
  EXPECT_EQ(w->layers[2].delta.a_log.get(7), static_cast<double>(1.3847975730895996f));
  EXPECT_EQ(w->layers[2].delta.dt_bias.get(3), 0.99609375);
  EXPECT_EQ(w->layers[6].delta.norm.get(127), 1.0703125);
  EXPECT_EQ(w->layers[4].delta.conv.get(4002), 0.0703125);
  EXPECT_FALSE(w->is_text_only);
  EXPECT_EQ(w->left_out.size(), 45u);
  for (const std::string& name : w->left_out)
    EXPECT_TRUE(name.starts_with("vision_tower.")) << name;
  EXPECT_EQ(w->config.end_tokens, (std::vector<int32_t>{3058}));
}

}  // namespace
}  // namespace roost
