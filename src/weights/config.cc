// Reading config.json and generation_config.json: geometry, checked against itself.
#include "weights/config.h"

#include <algorithm>
#include <cmath>
#include <span>

#include "base/hash.h"
#include "base/limits.h"
#include "weights/config_fields.h"
#include "weights/config_known.h"
#include "weights/quant_config.h"

namespace roost {

namespace {

using limits::kDimensionMax;

constexpr int64_t kExpertsMax = 1 << 16;  // keeps the elements of a stack of experts within 63 bits
constexpr int64_t kFamilyVocabulary = 248'320;
constexpr int32_t kFamilyEndTokens[] = {248'046, 248'044};  // <|im_end|>, <|endoftext|>

IntegerRule required(int64_t max = kDimensionMax) {
  return {.absent = std::nullopt, .min = 1, .max = max};
}
IntegerRule absent_is(int64_t value) {
  return {.absent = value, .min = 1, .max = kDimensionMax};
}

bool is_family(const std::string& model_type) {
  return model_type == "qwen3_5" || model_type == "qwen3_5_moe" || model_type == "qwen3_5_text" ||
         model_type == "qwen3_5_moe_text";
}

bool is_moe_type(const std::string& model_type) {
  return model_type.starts_with("qwen3_5_moe");
}

// The model type of an object, or nothing when the field is absent.
Result<std::string> model_type_of(const ConfigFields& fields, bool is_required) {
  const json::Value* value = fields.find("model_type");
  if (value == nullptr && !is_required) return std::string();
  if (value == nullptr || !value->is_string() || !is_family(value->as_string())) {
    return Error{Refusal::ConfigModel, fields.path_of("model_type") + ": " +
                                           (value == nullptr ? "absent" : quoted(*value))};
  }
  return value->as_string();
}

Result<void> parse_sizes(const ConfigFields& f, ModelConfig& c) {
  ROOST_TRY(c.hidden, f.integer("hidden_size", required()));
  ROOST_TRY(c.n_layers, f.integer("num_hidden_layers", required(limits::kLayersMax)));
  ROOST_TRY(c.vocabulary, f.integer("vocab_size", required(limits::kVocabularyMax)));
  ROOST_TRY(c.context_max, f.integer("max_position_embeddings", required(limits::kContextMax)));
  ROOST_TRY(c.n_heads, f.integer("num_attention_heads", required()));
  ROOST_TRY(c.n_kv_heads, f.integer("num_key_value_heads", required()));
  ROOST_TRY(c.head_dim, f.integer("head_dim", absent_is(256)));
  ROOST_TRY(c.n_key_heads, f.integer("linear_num_key_heads", absent_is(16)));
  ROOST_TRY(c.n_value_heads, f.integer("linear_num_value_heads", required()));
  ROOST_TRY(c.key_dim, f.integer("linear_key_head_dim", absent_is(128)));
  ROOST_TRY(c.value_dim, f.integer("linear_value_head_dim", absent_is(128)));
  ROOST_TRY(const double eps, f.number("rms_norm_eps", 1e-6));
  c.norm_eps = static_cast<float>(eps);
  if (!(c.norm_eps > 0 && c.norm_eps < 1)) return f.refuse("rms_norm_eps", "between 0 and 1");
  return {};
}

Result<void> check_sizes(const ConfigFields& f, const ModelConfig& c) {
  if (c.head_dim % 16 != 0 || c.head_dim > kHeadDimMax)
    return f.refuse("head_dim", "not a multiple of 16, at most " + std::to_string(kHeadDimMax));
  if (c.key_dim > kKeyDimMax)
    return f.refuse("linear_key_head_dim", "more than " + std::to_string(kKeyDimMax));
  if (c.n_heads % c.n_kv_heads != 0) {
    return f.refuse("num_attention_heads",
                    "not a multiple of num_key_value_heads " + std::to_string(c.n_kv_heads));
  }
  if (c.n_heads / c.n_kv_heads > kGroupHeadsMax) {
    return f.refuse("num_attention_heads",
                    "more than " + std::to_string(kGroupHeadsMax) + " times num_key_value_heads");
  }
  if (c.n_value_heads % c.n_key_heads != 0) {
    return f.refuse("linear_num_value_heads",
                    "not a multiple of linear_num_key_heads " + std::to_string(c.n_key_heads));
  }
  // Products of two bounded sizes that become rows of matrices are bounded again, so that the bytes
  // of every matrix fit 63 bits.
  struct Width {
    std::string_view key;
    int64_t width;
  };
  const Width widths[] = {{"num_attention_heads", 2 * c.n_heads * c.head_dim},
                          {"linear_num_key_heads", c.key_width()},
                          {"linear_num_value_heads", c.conv_channels()}};
  for (const auto& [key, width] : widths) {
    if (width > kDimensionMax) {
      return f.refuse(key, "gives a width of " + std::to_string(width) + ", at most " +
                               std::to_string(kDimensionMax));
    }
  }
  return {};
}

Result<void> parse_mlp(const ConfigFields& f, bool is_moe, ModelConfig& c) {
  if (!is_moe) {
    ROOST_TRY_DO(f.demand("num_experts", json::Value::integer(0)));
    ROOST_TRY(c.intermediate, f.integer("intermediate_size", required()));
    return {};
  }
  ROOST_TRY(c.n_experts, f.integer("num_experts", required(kExpertsMax)));
  ROOST_TRY(c.experts_per_token, f.integer("num_experts_per_tok", absent_is(8)));
  if (c.experts_per_token > c.n_experts) {
    return f.refuse("num_experts_per_tok", "more than num_experts " + std::to_string(c.n_experts));
  }
  ROOST_TRY(c.expert_width, f.integer("moe_intermediate_size", required()));
  ROOST_TRY(c.shared_expert_width,
            f.integer("shared_expert_intermediate_size",
                      {.absent = std::nullopt, .min = 0, .max = kDimensionMax}));
  ROOST_TRY(c.normalize_experts, f.boolean("norm_topk_prob", true));
  ROOST_TRY_DO(f.demand("decoder_sparse_step", json::Value::integer(1)));
  return f.demand("mlp_only_layers", json::Value::array());
}

Result<void> parse_layer_types(const ConfigFields& f, ModelConfig& c) {
  ROOST_TRY(const int64_t interval, f.integer("full_attention_interval", absent_is(4)));
  for (int64_t l = 0; l < c.n_layers; ++l) c.is_full_attention.push_back((l + 1) % interval == 0);
  if (const json::Value* types = f.find("layer_types")) {
    if (!types->is_array() || static_cast<int64_t>(types->items().size()) != c.n_layers) {
      return f.refuse("layer_types", "a list of " + std::to_string(c.n_layers) + " is needed");
    }
    for (size_t l = 0; l < types->items().size(); ++l) {
      const json::Value& type = types->items()[l];
      const bool is_full = type.is_string() && type.as_string() == "full_attention";
      if (!is_full && !(type.is_string() && type.as_string() == "linear_attention")) {
        return f.refuse("layer_types", "entry " + std::to_string(l) + " is " + quoted(type));
      }
      if (f.has("full_attention_interval") && is_full != c.is_full_attention[l]) {
        return f.refuse("layer_types",
                        "entry " + std::to_string(l) + " contradicts full_attention_interval");
      }
      c.is_full_attention[l] = is_full;
    }
  }
  // The convolutions' shape tells raw files from converted ones, so there must be one.
  if (c.n_delta_layers() == 0) return f.refuse("layer_types", "no linear_attention layer");
  return {};
}

// Frequency i belongs to H when i mod 3 = 1, to W when i mod 3 = 2, as long as the section lasts.
Result<void> parse_mrope_section(const ConfigFields& rope, ModelConfig& c) {
  c.mrope_section = {11, 11, 10};
  if (const json::Value* section = rope.find("mrope_section")) {
    if (!section->is_array() || section->items().size() != 3) {
      return rope.refuse("mrope_section", "three integers are needed");
    }
    for (size_t i = 0; i < 3; ++i) {
      const json::Value& item = section->items()[i];
      const std::optional<int64_t> n = item.is_number() ? item.as_int64() : std::nullopt;
      if (!n || *n < 0 || *n > kDimensionMax)
        return rope.refuse("mrope_section", "three integers are needed");
      c.mrope_section[i] = static_cast<int>(*n);
    }
  }
  const int64_t n_frequencies = c.rotary_dims / 2;
  const int64_t sum = int64_t{c.mrope_section[0]} + c.mrope_section[1] + c.mrope_section[2];
  if (sum != n_frequencies || c.mrope_section[1] > (n_frequencies + 1) / 3 ||
      c.mrope_section[2] > n_frequencies / 3) {
    return rope.refuse("mrope_section", "does not divide " + std::to_string(n_frequencies) +
                                            " interleaved frequencies");
  }
  return {};
}

// A field of the rope block that older files keep one level up.
Result<double> rope_number(const ConfigFields& rope, const ConfigFields& f, std::string_view key,
                           std::optional<double> absent) {
  if (!rope.has(key)) return f.number(key, absent);
  ROOST_TRY(const double value, rope.number(key, absent));
  ROOST_TRY(const double outer, f.number(key, value));
  if (outer != value) return f.refuse(key, "the rope block says otherwise");
  return value;
}

Result<void> parse_rope(const ConfigFields& f, ModelConfig& c) {
  const json::Value none = json::Value::object();
  const char* key = f.has("rope_parameters") ? "rope_parameters" : "rope_scaling";
  const json::Value* block = f.find(key);
  if (block != nullptr && !block->is_object()) return f.refuse(key, "an object is needed");
  const json::Value* other = f.find("rope_scaling");
  if (other != nullptr && !(*other == *block))
    return f.refuse("rope_scaling", "rope_parameters say otherwise");
  const ConfigFields rope(block != nullptr ? *block : none, f.path_of(key) + ".");

  for (const std::string_view type : {"rope_type", "type"}) {
    ROOST_TRY_DO(rope.demand(type, json::Value::string("default")));
  }
  ROOST_TRY_DO(check_known_fields(rope, KnownFields::kRope));
  ROOST_TRY_DO(rope.demand("mrope_interleaved", json::Value::boolean(true)));
  ROOST_TRY(c.rope_theta, rope_number(rope, f, "rope_theta", std::nullopt));
  if (!(c.rope_theta > 1)) return rope.refuse("rope_theta", "more than 1 is needed");
  ROOST_TRY(const double partial, rope_number(rope, f, "partial_rotary_factor", 0.25));
  const double rotary = static_cast<double>(c.head_dim) * partial;
  if (!(rotary >= 2 && rotary <= static_cast<double>(c.head_dim)) || std::fmod(rotary, 2.0) != 0) {
    return rope.refuse("partial_rotary_factor", "gives no even number of dimensions of a head of " +
                                                    std::to_string(c.head_dim));
  }
  c.rotary_dims = static_cast<int64_t>(rotary);
  return parse_mrope_section(rope, c);
}

// Switches of which one position is built.
Result<void> check_switches(const ConfigFields& f) {
  using json::Value;
  ROOST_TRY_DO(f.demand("attn_output_gate", Value::boolean(true)));
  ROOST_TRY_DO(f.demand("attention_bias", Value::boolean(false)));
  ROOST_TRY_DO(f.demand("mlp_bias", Value::boolean(false)));
  ROOST_TRY_DO(f.demand("use_sliding_window", Value::boolean(false)));
  if (f.has("sliding_window") && !f.has("use_sliding_window")) {
    return f.refuse("sliding_window", "sliding attention is not supported");
  }
  ROOST_TRY_DO(f.demand("hidden_act", Value::string("silu")));
  ROOST_TRY_DO(f.demand("mamba_ssm_dtype", Value::string("float32")));
  ROOST_TRY_DO(f.demand("linear_conv_kernel_dim", Value::integer(4)));
  ROOST_TRY_DO(f.demand("mtp_use_dedicated_embeddings", Value::boolean(false)));
  ROOST_TRY_DO(f.demand("is_encoder_decoder", Value::boolean(false)));
  ROOST_TRY(const std::string gate, f.string("output_gate_type", "silu"));
  if (gate != "silu" && gate != "swish")
    return f.refuse("output_gate_type", "silu or swish is supported");
  return {};
}

Result<void> add_end_tokens(const ConfigFields& f, ModelConfig& c) {
  const json::Value* value = f.find("eos_token_id");
  if (value == nullptr) return {};
  const std::vector<json::Value> one{*value};
  for (const json::Value& item : value->is_array() ? value->items() : one) {
    const std::optional<int64_t> id = item.is_number() ? item.as_int64() : std::nullopt;
    if (!id || *id < 0 || *id >= c.vocabulary) {
      return f.refuse("eos_token_id", "ids below " + std::to_string(c.vocabulary) + " are needed");
    }
    const auto token = static_cast<int32_t>(*id);
    if (std::find(c.end_tokens.begin(), c.end_tokens.end(), token) == c.end_tokens.end()) {
      c.end_tokens.push_back(token);
    }
  }
  return {};
}

Result<void> parse_tokens(const ConfigFields& root, const ConfigFields& text, ModelConfig& c) {
  ROOST_TRY_DO(add_end_tokens(text, c));
  ROOST_TRY_DO(add_end_tokens(root, c));
  if (c.vocabulary ==
      kFamilyVocabulary) {  // files disagree about the two ends of a turn; both always end it
    for (const int32_t token : kFamilyEndTokens) {
      if (std::find(c.end_tokens.begin(), c.end_tokens.end(), token) == c.end_tokens.end()) {
        c.end_tokens.push_back(token);
      }
    }
  }
  for (const char* key :
       {"image_token_id", "video_token_id", "vision_start_token_id", "vision_end_token_id"}) {
    if (!root.has(key)) continue;
    ROOST_TRY(const int64_t id,
              root.integer(key, {.absent = std::nullopt, .min = 0, .max = c.vocabulary - 1}));
    c.special_tokens[key] = static_cast<int32_t>(id);
  }
  return {};
}

Result<void> parse_vision(const ConfigFields& root, ModelConfig& c) {
  const json::Value* vision = root.find("vision_config");
  if (vision == nullptr) return {};
  if (!vision->is_object()) return root.refuse("vision_config", "an object is needed");
  c.has_vision_config = true;
  return ConfigFields(*vision, "vision_config.")
      .demand("deepstack_visual_indexes", json::Value::array());
}

}  // namespace

int64_t ModelConfig::n_full_layers() const {
  return std::count(is_full_attention.begin(), is_full_attention.end(), true);
}

int64_t ModelConfig::n_delta_layers() const {
  return static_cast<int64_t>(is_full_attention.size()) - n_full_layers();
}

Result<ModelConfig> parse_config(const json::Value& config) {
  if (!config.is_object()) return Error{Refusal::ConfigField, "config.json is not an object"};
  const ConfigFields root(config, "");
  ROOST_TRY(const std::string model_type, model_type_of(root, true));
  const json::Value* nested = root.find("text_config");
  if (nested != nullptr && !nested->is_object())
    return root.refuse("text_config", "an object is needed");
  const json::Value& text = nested != nullptr ? *nested : config;
  const ConfigFields fields(text, nested != nullptr ? "text_config." : "");
  ROOST_TRY(const std::string text_type, model_type_of(fields, false));
  const bool is_moe = is_moe_type(model_type);
  if (!text_type.empty() && is_moe_type(text_type) != is_moe) {
    return Error{Refusal::ConfigModel, model_type + " with text_config.model_type " + text_type};
  }

  ModelConfig c;
  const std::string spelled = json::write(config);
  c.digest = sha256_hex(std::as_bytes(std::span(spelled)));
  ROOST_TRY(QuantConfig quant, parse_quant_config(config, text));
  c.quantization = quant.global;
  c.module_quantization = std::move(quant.modules);
  ROOST_TRY_DO(check_known_fields(fields, KnownFields::kText));
  if (nested != nullptr) ROOST_TRY_DO(check_outer_fields(root, fields));
  ROOST_TRY_DO(check_switches(fields));
  ROOST_TRY_DO(parse_sizes(fields, c));
  ROOST_TRY_DO(check_sizes(fields, c));
  ROOST_TRY_DO(parse_mlp(fields, is_moe, c));
  ROOST_TRY_DO(parse_layer_types(fields, c));
  ROOST_TRY_DO(parse_rope(fields, c));
  // Exporters disagree on which of the two flags counts (docs/MODEL.md, Text fields): either lets
  // the head be absent, and a head that is there is used.
  ROOST_TRY(const bool inner_tie, fields.boolean("tie_word_embeddings", false));
  ROOST_TRY(const bool outer_tie, root.boolean("tie_word_embeddings", false));
  c.tie_embeddings = inner_tie || outer_tie;
  ROOST_TRY_DO(parse_tokens(root, fields, c));
  ROOST_TRY_DO(parse_vision(root, c));
  return c;
}

Result<GenerationDefaults> parse_generation_config(const json::Value& generation,
                                                   ModelConfig& config) {
  GenerationDefaults defaults;
  if (generation.is_null()) return defaults;
  if (!generation.is_object())
    return Error{Refusal::ConfigField, "generation_config.json is not an object"};
  const ConfigFields f(generation, "generation_config.");
  ROOST_TRY_DO(add_end_tokens(f, config));
  struct Range {
    const char* key;
    std::optional<double> GenerationDefaults::* member;
    double min, max;
  };
  const Range ranges[] = {
      {"temperature", &GenerationDefaults::temperature, 0, 100},
      {"top_p", &GenerationDefaults::top_p, 0, 1},
      {"min_p", &GenerationDefaults::min_p, 0, 1},
      {"presence_penalty", &GenerationDefaults::presence_penalty, -2, 2},
      {"frequency_penalty", &GenerationDefaults::frequency_penalty, -2, 2},
      {"repetition_penalty", &GenerationDefaults::repetition_penalty, 0.01, 100}};
  for (const auto& [key, member, min, max] : ranges) {
    if (!f.has(key)) continue;
    ROOST_TRY(const double value, f.number(key, std::nullopt));
    if (!(value >= min && value <= max)) return f.refuse(key, "out of range");
    defaults.*member = value;
  }
  if (f.has("top_k")) {
    ROOST_TRY(
        defaults.top_k,
        f.integer("top_k", {.absent = std::nullopt, .min = -1, .max = limits::kVocabularyMax}));
    if (*defaults.top_k <= 0) defaults.top_k.reset();  // 0 and -1 both mean "off"
  }
  const auto is_read = [&](const std::string& key) {
    const auto ranged = [&](const Range& range) { return key == range.key; };
    return std::any_of(std::begin(ranges), std::end(ranges), ranged) || key == "top_k" ||
           key == "do_sample" || key == "eos_token_id" || key == "bos_token_id" ||
           key == "pad_token_id" || key == "transformers_version" || key == "_from_model_config";
  };
  for (const auto& [key, value] : generation.members()) {
    if (!is_read(key)) defaults.ignored.push_back(key);
  }
  ROOST_TRY(const bool does_sample, f.boolean("do_sample", true));
  if (!does_sample) defaults.temperature = 0;
  return defaults;
}

}  // namespace roost
