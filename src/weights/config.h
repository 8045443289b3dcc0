// config.json of a checkpoint: every field that changes the arithmetic is read or refused by name.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/result.h"

namespace roost {

// Width of a quantized module, or "not quantized".
struct QuantSpec {
  bool is_quantized = true;
  int bits = 4;
  int group = 64;
};

struct ModelConfig {
  std::string digest;  // of the whole file
  // Text model; symbols as in docs/MODEL.md.
  int64_t hidden = 0;       // h
  int64_t n_layers = 0;     // L
  int64_t vocabulary = 0;   // V: rows of the embedding matrix
  int64_t context_max = 0;  // max_position_embeddings
  float norm_eps = 1e-6f;
  std::vector<bool> is_full_attention;                // per layer
  int64_t n_heads = 0, n_kv_heads = 0, head_dim = 0;  // nh, nkv, D
  int64_t rotary_dims = 0;                            // R
  double rope_theta = 0;
  std::vector<int> mrope_section;  // frequencies of the T, H, W axes; sums to R/2
  int64_t n_key_heads = 0, n_value_heads = 0, key_dim = 0, value_dim = 0;  // Hk, Hv, Dk, Dv
  int64_t intermediate = 0;         // dense MLP width; 0 with experts
  int64_t n_experts = 0;            // E; 0: dense
  int64_t experts_per_token = 0;    // K
  int64_t expert_width = 0;         // mi
  int64_t shared_expert_width = 0;  // si; 0: none
  bool normalize_experts = true;    // norm_topk_prob
  bool tie_embeddings = false;      // a flag of the file says so; once loaded: there is no lm_head
  // Quantization of MLX files: global values and per-module ones, by normalized module path.
  std::optional<QuantSpec> quantization;
  std::map<std::string, QuantSpec> module_quantization;
  bool has_vision_config = false;
  std::vector<int32_t> end_tokens;  // eos ids of config.json and generation_config.json
  // By field: image_token_id, video_token_id, vision_start_token_id, vision_end_token_id.
  std::map<std::string, int32_t> special_tokens;

  bool is_moe() const { return n_experts > 0; }
  int64_t key_width() const { return n_key_heads * key_dim; }                // Kd
  int64_t value_width() const { return n_value_heads * value_dim; }          // Vd
  int64_t conv_channels() const { return 2 * key_width() + value_width(); }  // C
  int64_t n_full_layers() const;
  int64_t n_delta_layers() const;
};

// Sampling defaults of generation_config.json; absent fields are "off".
struct GenerationDefaults {
  std::optional<double> temperature, top_p, min_p, presence_penalty, frequency_penalty,
      repetition_penalty;
  std::optional<int64_t> top_k;
  std::vector<std::string> ignored;  // fields that this server has no use for
};

// The largest sizes that the ops have.
inline constexpr int64_t kHeadDimMax = 512, kGroupHeadsMax = 64, kKeyDimMax = 256;

// Reads and checks config.json (nested or flat, docs/MODEL.md, Configuration). Refuses
// config.field, config.model_type, checkpoint.quantization with the path of the field and its
// value.
Result<ModelConfig> parse_config(const json::Value& config);
// Adds the end tokens of generation_config.json (null: the file is absent) and returns its
// defaults.
Result<GenerationDefaults> parse_generation_config(const json::Value& generation,
                                                   ModelConfig& config);

}  // namespace roost
