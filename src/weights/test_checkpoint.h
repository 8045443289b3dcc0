// For tests: writes safetensors files byte by byte, and one small model in every layout of the
// family.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "tensor/dtype.h"
#include "weights/config.h"
#include "weights/weights.h"

namespace roost::test {

// A folder that ends with the object.
class TempFolder {
 public:
  TempFolder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "roost_test_XXXXXX").string();
    path_ = mkdtemp(pattern.data());
  }
  ~TempFolder() { std::filesystem::remove_all(path_); }
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;

  const std::string& path() const { return path_; }
  void write(const std::string& name, const std::string& bytes) const {
    std::ofstream(path_ + "/" + name, std::ios::binary) << bytes;
  }

 private:
  std::string path_;
};

struct FileTensor {
  std::string dtype;  // as the header spells it
  std::vector<int64_t> shape;
  std::string bytes;
};
using FileTensors = std::map<std::string, FileTensor>;

inline std::string with_length(const std::string& header) {
  std::string length(8, '\0');
  for (size_t i = 0; i < 8; ++i) length[i] = static_cast<char>(header.size() >> (8 * i) & 0xFF);
  return length + header;
}

// The header is not padded; `blanks` are put behind it.
inline std::string safetensors_bytes(const FileTensors& tensors, size_t blanks = 0) {
  std::string header = "{\"__metadata__\":{\"format\":\"mlx\"}", data;
  for (const auto& [name, tensor] : tensors) {
    header += ",\"" + name + "\":{\"dtype\":\"" + tensor.dtype + "\",\"shape\":[";
    for (size_t i = 0; i < tensor.shape.size(); ++i) {
      header += (i == 0 ? "" : ",") + std::to_string(tensor.shape[i]);
    }
    header += "],\"data_offsets\":[" + std::to_string(data.size()) + ",";
    data += tensor.bytes;
    header += std::to_string(data.size()) + "]}";
  }
  return with_length(header + "}" + std::string(blanks, ' ')) + data;
}

inline std::string index_json(const std::map<std::string, std::string>& file_of,
                              const std::string& total_size) {
  std::string text = "{\"metadata\": {\"total_size\": " + total_size + "}, \"weight_map\": {";
  for (const auto& [tensor, file] : file_of) {
    text += (text.back() == '{' ? "\"" : ", \"") + tensor + "\": \"" + file + "\"";
  }
  return text + "}}";
}

// Numbers of a tensor, and the bytes of them in a file type.
struct Numbers {
  std::vector<int64_t> shape;
  std::vector<float> values;
};

inline std::string encoded(const std::vector<float>& values, const std::string& dtype) {
  std::string bytes;
  for (const float value : values) {
    char raw[4];
    if (dtype == "F32") {
      std::memcpy(raw, &value, 4);
      bytes.append(raw, 4);
    } else {
      const uint16_t bits = dtype == "BF16" ? bf16_from_f64(value) : f16_from_f64(value);
      std::memcpy(raw, &bits, 2);
      bytes.append(raw, 2);
    }
  }
  return bytes;
}

// A small model as transformers names it (without prefix), every number a multiple of 1/32 in
// [-1/4, 7/32], which every type and every width from 4 bits on keeps exactly. Vectors are the raw
// ones.
class SmallModel {
 public:
  static constexpr int kH = 64, kLayers = 4, kHeads = 2, kHeadDim = 32, kHv = 2, kDk = 32, kDv = 32;
  static constexpr int kC = 128, kVd = 64, kE = 4, kMi = 64, kSi = 32, kInter = 96, kV = 96;

  explicit SmallModel(bool is_moe) : is_moe_(is_moe) {
    matrix("embed_tokens.weight", {kV, kH});
    matrix("lm_head.weight", {kV, kH});
    matrix("norm.weight", {kH});
    for (int l = 0; l < kLayers; ++l) layer("layers." + std::to_string(l) + ".", l == kLayers - 1);
  }

  bool is_moe() const { return is_moe_; }
  const std::map<std::string, Numbers>& tensors() const { return tensors_; }

  // Without quantization.
  std::string config() const {
    const std::string type = is_moe_ ? "qwen3_5_moe" : "qwen3_5";
    std::string text =
        "{\"model_type\": \"" + type + "\", \"text_config\": {\"model_type\": \"" + type +
        "_text\", \"hidden_size\": 64, \"num_hidden_layers\": 4, \"num_attention_heads\": 2, "
        "\"num_key_value_heads\": 1, \"head_dim\": 32, \"linear_num_key_heads\": 1, "
        "\"linear_num_value_heads\": 2, \"linear_key_head_dim\": 32, \"linear_value_head_dim\": "
        "32, "
        "\"vocab_size\": 96, \"max_position_embeddings\": 4096, \"eos_token_id\": 7, ";
    text += is_moe_
                ? "\"num_experts\": 4, \"num_experts_per_tok\": 2, \"moe_intermediate_size\": 64, "
                  "\"shared_expert_intermediate_size\": 32, "
                : "\"intermediate_size\": 96, ";
    return text +
           "\"rope_parameters\": {\"rope_type\": \"default\", \"rope_theta\": 10000000, "
           "\"partial_rotary_factor\": 0.25, \"mrope_section\": [2, 1, 1]}}}";
  }

  // Raw transformers layout; experts fused or one by one.
  FileTensors hf(const std::string& dtype, bool is_fused,
                 const std::string& prefix = "model.language_model.") const {
    FileTensors files;
    for (const auto& [name, numbers] : tensors_) {
      const std::string full = (name.starts_with("lm_head") ? "" : prefix) + name;
      if (!is_fused && name.ends_with("experts.gate_up_proj")) {
        for (int e = 0; e < kE; ++e) {
          const std::string path = full.substr(0, full.size() - 12) + std::to_string(e) + ".";
          put(files, path + "gate_proj.weight", slice(numbers, 2 * e, 2 * kE, {kMi, kH}), dtype);
          put(files, path + "up_proj.weight", slice(numbers, 2 * e + 1, 2 * kE, {kMi, kH}), dtype);
        }
      } else if (!is_fused && name.ends_with("experts.down_proj")) {
        for (int e = 0; e < kE; ++e) {
          put(files, full.substr(0, full.size() - 9) + std::to_string(e) + ".down_proj.weight",
              slice(numbers, e, kE, {kH, kMi}), dtype);
        }
      } else {
        put(files, full, numbers, dtype);
      }
    }
    return files;
  }

  // Converted layout: norms hold the sum with 1, convolutions have their axes exchanged, experts
  // are stacked by matrix. Quantized modules get `bits` wide codes in groups of 32 and what
  // `widths` says.
  struct Width {
    int bits = 4, group = 32;  // bits 0: not quantized
  };
  FileTensors mlx(const std::map<std::string, Width>& widths, Width global) const {
    FileTensors files;
    for (const auto& [name, numbers] : tensors_) {
      std::string full = "language_model." + (name.starts_with("lm_head") ? name : "model." + name);
      const bool is_sum = name == "norm.weight" || name.ends_with("layernorm.weight") ||
                          name.ends_with("q_norm.weight") || name.ends_with("k_norm.weight");
      if (is_sum) {
        Numbers sums = numbers;
        for (float& value : sums.values) value += 1;
        put(files, full, sums, "BF16");
      } else if (name.ends_with("conv1d.weight")) {
        put(files, full, {{kC, 4, 1}, numbers.values}, "BF16");
      } else if (name.ends_with("A_log")) {
        put(files, full, numbers, "F32");
      } else if (name.ends_with("experts.gate_up_proj")) {
        const std::string path = full.substr(0, full.size() - 20) + "switch_mlp.";
        Numbers gate{{kE, kMi, kH}, {}}, up{{kE, kMi, kH}, {}};
        for (int e = 0; e < kE; ++e) {
          for (Numbers* half : {&gate, &up}) {
            const Numbers part = slice(numbers, 2 * e + (half == &up), 2 * kE, {kMi, kH});
            half->values.insert(half->values.end(), part.values.begin(), part.values.end());
          }
        }
        module(files, path + "gate_proj", gate, widths, global);
        module(files, path + "up_proj", up, widths, global);
      } else if (name.ends_with("experts.down_proj")) {
        module(files, full.substr(0, full.size() - 17) + "switch_mlp.down_proj", numbers, widths,
               global);
      } else if (numbers.shape.size() == 2) {
        module(files, full.substr(0, full.size() - 7), numbers, widths, global);
      } else {
        put(files, full, numbers, "BF16");
      }
    }
    return files;
  }

 private:
  void matrix(const std::string& name, std::vector<int64_t> shape) {
    Numbers numbers{std::move(shape), {}};
    size_t n = 1;
    for (const int64_t dim : numbers.shape) n *= static_cast<size_t>(dim);
    for (size_t i = 0; i < n; ++i) {
      state_ = state_ * 6364136223846793005u + 1442695040888963407u;
      numbers.values.push_back(static_cast<float>(static_cast<int>(state_ >> 60) - 8) / 32);
    }
    tensors_[name] = std::move(numbers);
  }
  void layer(const std::string& path, bool is_full) {
    matrix(path + "input_layernorm.weight", {kH});
    matrix(path + "post_attention_layernorm.weight", {kH});
    if (is_full) {
      const std::string a = path + "self_attn.";
      matrix(a + "q_proj.weight", {2 * kHeads * kHeadDim, kH});
      matrix(a + "k_proj.weight", {kHeadDim, kH});
      matrix(a + "v_proj.weight", {kHeadDim, kH});
      matrix(a + "o_proj.weight", {kH, kHeads * kHeadDim});
      matrix(a + "q_norm.weight", {kHeadDim});
      matrix(a + "k_norm.weight", {kHeadDim});
    } else {
      const std::string d = path + "linear_attn.";
      matrix(d + "in_proj_qkv.weight", {kC, kH});
      matrix(d + "in_proj_z.weight", {kVd, kH});
      matrix(d + "in_proj_b.weight", {kHv, kH});
      matrix(d + "in_proj_a.weight", {kHv, kH});
      matrix(d + "conv1d.weight", {kC, 1, 4});
      matrix(d + "A_log", {kHv});
      matrix(d + "dt_bias", {kHv});
      matrix(d + "norm.weight", {kDv});
      matrix(d + "out_proj.weight", {kH, kVd});
    }
    const std::string m = path + "mlp.";
    if (!is_moe_) return dense(m, kInter);
    matrix(m + "gate.weight", {kE, kH});
    matrix(m + "experts.gate_up_proj", {kE, 2 * kMi, kH});
    matrix(m + "experts.down_proj", {kE, kH, kMi});
    matrix(m + "shared_expert_gate.weight", {1, kH});
    dense(m + "shared_expert.", kSi);
  }
  void dense(const std::string& path, int width) {
    matrix(path + "gate_proj.weight", {width, kH});
    matrix(path + "up_proj.weight", {width, kH});
    matrix(path + "down_proj.weight", {kH, width});
  }

  static void put(FileTensors& files, const std::string& name, const Numbers& numbers,
                  const std::string& dtype) {
    files[name] = {dtype, numbers.shape, encoded(numbers.values, dtype)};
  }
  // Part i of n equal parts.
  static Numbers slice(const Numbers& from, int i, int n, std::vector<int64_t> shape) {
    const auto size = static_cast<std::ptrdiff_t>(from.values.size()) / n;
    return {std::move(shape),
            {from.values.begin() + i * size, from.values.begin() + (i + 1) * size}};
  }
  // w = code/32 - 1/4, so every group has scale 1/32 and bias -1/4.
  static void module(FileTensors& files, const std::string& path, const Numbers& numbers,
                     const std::map<std::string, Width>& widths, Width global) {
    const auto own = widths.find(path);
    const Width width = own == widths.end() ? global : own->second;
    if (width.bits == 0) return put(files, path + ".weight", numbers, "BF16");
    const auto bits = static_cast<size_t>(width.bits);
    std::string codes(numbers.values.size() * bits / 8, '\0');
    for (size_t i = 0; i < numbers.values.size(); ++i) {
      const auto code = static_cast<unsigned>(numbers.values[i] * 32 + 8);
      for (size_t b = 0; b < bits; ++b) {
        const size_t at = i * bits + b;
        if ((code >> b) & 1) codes[at / 8] = static_cast<char>(codes[at / 8] | 1 << (at % 8));
      }
    }
    std::vector<int64_t> words = numbers.shape, groups = numbers.shape;
    words.back() = words.back() * width.bits / 32;
    groups.back() /= width.group;
    const size_t n_groups = numbers.values.size() / static_cast<size_t>(width.group);
    files[path + ".weight"] = {"U32", words, codes};
    files[path + ".scales"] = {"BF16", groups,
                               encoded(std::vector<float>(n_groups, 1.0f / 32), "BF16")};
    files[path + ".biases"] = {"BF16", groups,
                               encoded(std::vector<float>(n_groups, -0.25f), "BF16")};
  }

  bool is_moe_;
  uint64_t state_ = 1;
  std::map<std::string, Numbers> tensors_;
};

// config.json with a quantization entry put in.
inline std::string with_quantization(const std::string& config, const std::string& entry) {
  return "{\"quantization\": " + entry + ", " + config.substr(1);
}

// Config and checkpoint of a folder to weights, as the server loads them.
inline Result<ModelWeights> load_folder(const std::string& folder, const std::string& config_text) {
  ROOST_TRY(const json::Value config_json, json::parse(config_text));
  ROOST_TRY(ModelConfig config, parse_config(config_json));
  ROOST_TRY(Checkpoint checkpoint, Checkpoint::open(folder));
  return load_weights(std::make_shared<const Checkpoint>(std::move(checkpoint)), std::move(config));
}

inline Result<ModelWeights> load_files(const FileTensors& files, const std::string& config_text) {
  const TempFolder folder;  // a mapping outlives the name of its file
  folder.write("model.safetensors", safetensors_bytes(files, 1));
  return load_folder(folder.path(), config_text);
}

template <class T>
void expect_refusal(const Result<T>& result, Refusal refusal, const std::string& part_of_detail) {
  ASSERT_FALSE(result) << "not refused: " << part_of_detail;
  EXPECT_EQ(code_of(result.error().refusal), code_of(refusal)) << result.error().detail;
  EXPECT_NE(result.error().detail.find(part_of_detail), std::string::npos)
      << result.error().detail << " does not say " << part_of_detail;
}

}  // namespace roost::test
