// config.json of every release, and every field that is refused.
#include "weights/config.h"

#include <gtest/gtest.h>

#include "weights/synthetic.h"
#include "weights/test_checkpoint.h"

namespace roost {
namespace {

using test::expect_refusal;

json::Value parsed(const std::string& text) {
  Result<json::Value> value = json::parse(text);
  EXPECT_TRUE(value) << text;
  return value ? *value : json::Value();
}

json::Value config_of(const std::string& shape) {
  return *synthetic_config({.shape = shape});
}

// The 35B's configuration with one field of the text part replaced.
json::Value with_text_field(const std::string& key, const std::string& value) {
  json::Value config = config_of("35b-a3b");
  json::Value text = *config.find("text_config");
  text.set(key, parsed(value));
  config.set("text_config", text);
  return config;
}

json::Value with_field(const std::string& key, const std::string& value) {
  json::Value config = config_of("35b-a3b");
  config.set(key, parsed(value));
  return config;
}

json::Value without_text_field(const std::string& key) {
  return with_text_field(key, "null");
}

TEST(Config, published_sizes_of_the_122b) {
  const auto c = parse_config(config_of("ornith-122b"));
  ASSERT_TRUE(c) << to_string(c.error());
  EXPECT_EQ(c->hidden, 3072);
  EXPECT_EQ(c->n_layers, 48);
  EXPECT_EQ(c->n_full_layers(), 12);
  EXPECT_EQ(c->n_delta_layers(), 36);
  EXPECT_FALSE(c->is_full_attention[0]);
  EXPECT_TRUE(c->is_full_attention[3]);
  EXPECT_TRUE(c->is_full_attention[47]);
  EXPECT_EQ(c->key_width(), 2048);
  EXPECT_EQ(c->value_width(), 8192);
  EXPECT_EQ(c->conv_channels(), 12288);
  EXPECT_EQ(c->rotary_dims, 64);
  EXPECT_EQ(c->rope_theta, 1e7);
  EXPECT_EQ(c->mrope_section, (std::vector<int>{11, 11, 10}));
  EXPECT_EQ(c->n_experts, 256);
  EXPECT_EQ(c->experts_per_token, 8);
  EXPECT_TRUE(c->normalize_experts);
  EXPECT_EQ(c->norm_eps, 1e-6f);
  EXPECT_EQ(c->end_tokens, (std::vector<int32_t>{248044, 248046}));
  EXPECT_EQ(c->special_tokens.at("image_token_id"), 248056);
  EXPECT_EQ(c->quantization->bits, 4);
  EXPECT_EQ(c->module_quantization.at("layers.7.mlp.gate").bits, 8);
  EXPECT_EQ(c->module_quantization.size(), 96u);
  EXPECT_FALSE(c->has_vision_config);
}

TEST(Config, dense_models_have_no_experts) {
  const auto c = parse_config(config_of("27b"));
  ASSERT_TRUE(c) << to_string(c.error());
  EXPECT_FALSE(c->is_moe());
  EXPECT_EQ(c->intermediate, 17408);
  EXPECT_EQ(c->conv_channels(), 10240);
  EXPECT_TRUE(c->module_quantization.empty());
}

TEST(Config, the_flat_form_is_the_text_part_alone) {
  json::Value text = *config_of("35b-a3b").find("text_config");
  for (const char* type : {"qwen3_5_moe_text", "qwen3_5_moe"}) {
    text.set("model_type", json::Value::string(type));
    const auto c = parse_config(text);
    ASSERT_TRUE(c) << to_string(c.error());
    EXPECT_EQ(c->hidden, 2048);
    EXPECT_FALSE(c->quantization);
  }
}

TEST(Config, absent_fields_take_the_family_values) {
  for (const char* key :
       {"head_dim", "linear_num_key_heads", "linear_key_head_dim", "linear_value_head_dim",
        "num_experts_per_tok", "rms_norm_eps", "full_attention_interval", "norm_topk_prob",
        "hidden_act", "attn_output_gate", "mamba_ssm_dtype", "linear_conv_kernel_dim"}) {
    const auto c = parse_config(without_text_field(key));
    ASSERT_TRUE(c) << key << to_string(c.error());
    EXPECT_EQ(c->head_dim, 256);
    EXPECT_EQ(c->n_key_heads, 16);
    EXPECT_EQ(c->key_dim, 128);
    EXPECT_EQ(c->value_dim, 128);
    EXPECT_EQ(c->experts_per_token, 8);
    EXPECT_EQ(c->norm_eps, 1e-6f);
    EXPECT_EQ(c->n_full_layers(), 10);
    EXPECT_TRUE(c->normalize_experts);
  }
}

TEST(Config, sizes_without_a_safe_default_are_required) {
  for (const char* key :
       {"hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads",
        "linear_num_value_heads", "vocab_size", "max_position_embeddings", "num_experts",
        "moe_intermediate_size", "shared_expert_intermediate_size"}) {
    expect_refusal(parse_config(without_text_field(key)), Refusal::ConfigField,
                   "text_config." + std::string(key) + ": absent");
  }
  expect_refusal(parse_config(without_text_field("rope_parameters")), Refusal::ConfigField,
                 "rope_theta: absent");
}

TEST(Config, older_files_keep_the_rope_fields_one_level_up) {
  json::Value config = without_text_field("rope_parameters");
  json::Value text = *config.find("text_config");
  text.set("rope_theta", json::Value::integer(5'000'000));
  text.set("partial_rotary_factor", json::Value::real(0.5));
  text.set("rope_scaling", parsed(R"({"type": "default", "mrope_section": [22, 21, 21]})"));
  config.set("text_config", text);
  const auto c = parse_config(config);
  ASSERT_TRUE(c) << to_string(c.error());
  EXPECT_EQ(c->rope_theta, 5e6);
  EXPECT_EQ(c->rotary_dims, 128);
  EXPECT_EQ(c->mrope_section, (std::vector<int>{22, 21, 21}));
}

TEST(Config, an_explicit_list_of_layers_is_honoured) {
  json::Value config = with_text_field(
      "layer_types", R"(["linear_attention", "full_attention", "linear_attention"])");
  json::Value text = *config.find("text_config");
  text.set("num_hidden_layers", json::Value::integer(3));
  config.set("text_config", text);
  expect_refusal(parse_config(config), Refusal::ConfigField,
                 "entry 1 contradicts full_attention_interval");
  text.set("full_attention_interval", json::Value());
  config.set("text_config", text);
  const auto c = parse_config(config);
  ASSERT_TRUE(c) << to_string(c.error());
  EXPECT_EQ(c->is_full_attention, (std::vector<bool>{false, true, false}));
}

TEST(Config, equal_values_in_other_spellings_are_taken) {
  const std::pair<const char*, const char*> fields[] = {{"output_gate_type", "\"swish\""},
                                                        {"output_gate_type", "\"silu\""},
                                                        {"hidden_size", "2048.0"},
                                                        {"decoder_sparse_step", "1"},
                                                        {"mlp_only_layers", "[]"},
                                                        {"attention_dropout", "0.0"},
                                                        {"initializer_range", "0.02"},
                                                        {"use_cache", "false"},
                                                        {"transformers_version", "\"5.0\""},
                                                        {"_name_or_path", "\"x\""},
                                                        {"router_aux_loss_coef", "0.001"},
                                                        {"intermediate_size", "9216"},
                                                        {"eos_token_id", "[248044, 248046]"},
                                                        {"eos_token_id", "null"},
                                                        {"dtype", "\"float16\""},
                                                        {"unheard_of_but_null", "null"},
                                                        {"mtp_num_hidden_layers", "1"},
                                                        {"sliding_window", "null"}};
  for (const auto& [key, value] : fields) {
    const auto c = parse_config(with_text_field(key, value));
    EXPECT_TRUE(c) << key << " " << to_string(c.error());
  }
}

struct Refused {
  const char* key;
  const char* value;
};

TEST(Config, values_that_are_not_built_are_refused_by_name) {
  const Refused refused[] = {{"attn_output_gate", "false"},
                             {"attention_bias", "true"},
                             {"hidden_act", "\"gelu\""},
                             {"output_gate_type", "\"sigmoid\""},
                             {"mamba_ssm_dtype", "\"bfloat16\""},
                             {"linear_conv_kernel_dim", "3"},
                             {"mtp_use_dedicated_embeddings", "true"},
                             {"decoder_sparse_step", "2"},
                             {"mlp_only_layers", "[0]"},
                             {"use_sliding_window", "true"},
                             {"sliding_window", "4096"},
                             {"layer_types", "[]"},
                             {"layer_types", "3"},
                             {"hidden_size", "0"},
                             {"hidden_size", "-1"},
                             {"hidden_size", "1.5"},
                             {"hidden_size", "\"2048\""},
                             {"hidden_size", "1e30"},
                             {"hidden_size", "1048577"},
                             {"num_hidden_layers", "1025"},
                             {"vocab_size", "99999999"},
                             {"num_attention_heads", "15"},
                             {"linear_num_value_heads", "33"},
                             {"num_experts_per_tok", "257"},
                             {"num_experts", "65537"},
                             {"rms_norm_eps", "0"},
                             {"rms_norm_eps", "\"x\""},
                             {"norm_topk_prob", "1"},
                             {"linear_num_key_heads", "0"},
                             {"eos_token_id", "248320"},
                             {"eos_token_id", "[-1]"},
                             {"eos_token_id", "\"x\""},
                             {"unheard_of", "1"},
                             {"attention_sinks", "true"},
                             {"rope_theta", "10000"},
                             {"shared_expert_intermediate_size", "-1"},
                             {"rope_scaling", R"({"type": "default"})"}};
  for (const Refused& r : refused) {
    SCOPED_TRACE(std::string(r.key) + " " + r.value);
    const auto c = parse_config(with_text_field(r.key, r.value));
    expect_refusal(c, Refusal::ConfigField, std::string("text_config.") + r.key);
  }
}

TEST(Config, sizes_that_the_ops_do_not_have_are_refused) {
  for (const char* dim : {"264", "528", "8", "1048576"})
    expect_refusal(parse_config(with_text_field("head_dim", dim)), Refusal::ConfigField,
                   "head_dim");
  expect_refusal(parse_config(with_text_field("linear_key_head_dim", "272")), Refusal::ConfigField,
                 "linear_key_head_dim");
  expect_refusal(parse_config(with_text_field("num_attention_heads", "260")), Refusal::ConfigField,
                 "num_attention_heads");
}

TEST(Config, fields_that_contradict_each_other_are_refused) {
  expect_refusal(parse_config(with_text_field("linear_value_head_dim", "1048576")),
                 Refusal::ConfigField, "a width of");
  json::Value wide = config_of("35b-a3b");
  json::Value of_text = *wide.find("text_config");
  of_text.set("num_attention_heads", json::Value::integer(65'536));
  of_text.set("num_key_value_heads", json::Value::integer(1024));
  wide.set("text_config", of_text);
  expect_refusal(parse_config(wide), Refusal::ConfigField, "a width of 33554432");
  expect_refusal(parse_config(with_text_field("full_attention_interval", "1")),
                 Refusal::ConfigField, "no linear_attention layer");
  expect_refusal(parse_config(with_text_field("num_key_value_heads", "3")), Refusal::ConfigField,
                 "num_attention_heads: 16 (not a multiple of num_key_value_heads 3)");
  json::Value dense = config_of("27b");
  json::Value text = *dense.find("text_config");
  text.set("num_experts", json::Value::integer(8));
  dense.set("text_config", text);
  expect_refusal(parse_config(dense), Refusal::ConfigField, "num_experts: 8");
}

TEST(Config, rope_blocks_that_are_not_built_are_refused_by_name) {
  const std::pair<const char*, const char*> blocks[] = {
      {R"({"rope_type": "yarn", "factor": 4, "rope_theta": 1e7})", "rope_type: \"yarn\""},
      {R"({"type": "linear", "rope_theta": 1e7})", "type: \"linear\""},
      {R"({"rope_theta": 1e7, "factor": 4})", "factor"},
      {R"({"rope_theta": "x"})", "rope_theta"},
      {R"({"rope_theta": 1})", "rope_theta"},
      {R"({"rope_theta": 1e7, "mrope_interleaved": false})", "mrope_interleaved"},
      {R"({"rope_theta": 1e7, "mrope_section": [16, 8, 8, 0]})", "mrope_section"},
      {R"({"rope_theta": 1e7, "mrope_section": [11, 11, 11]})", "mrope_section"},
      {R"({"rope_theta": 1e7, "mrope_section": [4, 14, 14]})", "mrope_section"},
      {R"({"rope_theta": 1e7, "mrope_section": [-1, 20, 13]})", "mrope_section"},
      {R"({"rope_theta": 1e7, "partial_rotary_factor": 0.2})", "partial_rotary_factor"},
      {R"({"rope_theta": 1e7, "partial_rotary_factor": 2})", "partial_rotary_factor"},
      {R"({"rope_theta": 1e7, "partial_rotary_factor": 0})", "partial_rotary_factor"},
      {"[]", "rope_parameters"}};
  for (const auto& [block, detail] : blocks) {
    SCOPED_TRACE(block);
    expect_refusal(parse_config(with_text_field("rope_parameters", block)), Refusal::ConfigField,
                   detail);
  }
}

TEST(Config, other_models_are_refused_by_name) {
  expect_refusal(parse_config(with_field("model_type", "\"qwen3_next\"")), Refusal::ConfigModel,
                 "\"qwen3_next\"");
  expect_refusal(parse_config(with_field("model_type", "null")), Refusal::ConfigModel,
                 "model_type: absent");
  expect_refusal(parse_config(with_field("model_type", "\"qwen3_5\"")), Refusal::ConfigModel,
                 "qwen3_5_moe_text");
  expect_refusal(parse_config(with_text_field("model_type", "\"llama\"")), Refusal::ConfigModel,
                 "\"llama\"");
  expect_refusal(parse_config(parsed("[]")), Refusal::ConfigField, "not an object");
  expect_refusal(parse_config(with_field("text_config", "3")), Refusal::ConfigField, "text_config");
}

TEST(Config, fields_outside_must_not_contradict_the_text_part) {
  expect_refusal(parse_config(with_field("rope_scaling", R"({"type": "yarn"})")),
                 Refusal::ConfigField, "rope_scaling");
  expect_refusal(parse_config(with_field("hidden_size", "99")), Refusal::ConfigField,
                 "text_config says 2048");
  EXPECT_TRUE(parse_config(with_field("hidden_size", "2048")));
  EXPECT_TRUE(parse_config(with_field("some_label", "\"x\"")));
}

TEST(Config, vision_fields) {
  const auto c =
      parse_config(with_field("vision_config", R"({"depth": 27, "deepstack_visual_indexes": []})"));
  ASSERT_TRUE(c) << to_string(c.error());
  EXPECT_TRUE(c->has_vision_config);
  expect_refusal(parse_config(with_field("vision_config", R"({"deepstack_visual_indexes": [8]})")),
                 Refusal::ConfigField, "deepstack_visual_indexes");
  expect_refusal(parse_config(with_field("vision_config", "3")), Refusal::ConfigField,
                 "vision_config");
  expect_refusal(parse_config(with_field("image_token_id", "-1")), Refusal::ConfigField,
                 "image_token_id");
}

TEST(Config, entries_of_modules_take_class_defaults_for_what_they_leave_out) {
  json::Value config = with_field("quantization", R"({"group_size": 32, "bits": 6, "mode": "affine",
      "language_model.model.layers.0.mlp.gate": {"bits": 8},
      "model.layers.1.mlp.gate": {"group_size": 128},
      "model.language_model.layers.2.mlp.gate": false, "lm_head": true})");
  config.set("quantization_config", json::Value());
  const auto c = parse_config(config);
  ASSERT_TRUE(c) << to_string(c.error());
  EXPECT_EQ(c->quantization->bits, 6);
  EXPECT_EQ(c->quantization->group, 32);
  const auto& modules = c->module_quantization;
  EXPECT_EQ(modules.at("layers.0.mlp.gate").bits, 8);
  EXPECT_EQ(modules.at("layers.0.mlp.gate").group, 64);
  EXPECT_EQ(modules.at("layers.1.mlp.gate").bits, 4);
  EXPECT_EQ(modules.at("layers.1.mlp.gate").group, 128);
  EXPECT_FALSE(modules.at("layers.2.mlp.gate").is_quantized);
  EXPECT_EQ(modules.at("lm_head").bits, 6);
  EXPECT_EQ(modules.at("lm_head").group, 32);
}

TEST(Config, other_ways_of_quantizing_are_refused_by_name) {
  const std::pair<const char*, const char*> entries[] = {
      {R"({"mode": "nvfp4", "bits": 4, "group_size": 16})", "\"nvfp4\""},
      {R"({"mode": "mxfp4", "bits": 4, "group_size": 32})", "\"mxfp4\""},
      {R"({"mode": "mxfp8"})", "\"mxfp8\""},
      {R"({"quant_method": "gptq", "bits": 4})", "\"gptq\""},
      {R"({"quant_method": "fp8"})", "\"fp8\""},
      {R"({"quant_method": "compressed-tensors"})", "compressed-tensors"},
      {R"({"bits": 7})", "bits: 7"},
      {R"({"bits": 1})", "bits: 1"},
      {R"({"bits": "4"})", "bits"},
      {R"({"group_size": 16})", "group_size: 16"},
      {R"({"linear_class": "x"})", "linear_class"},
      {R"({"lm_head": {"mode": "mxfp4"}})", "lm_head.mode"},
      {R"({"lm_head": {"bits": 9}})", "lm_head.bits"},
      {R"({"lm_head": {"extra": true}})", "lm_head.extra"},
      {R"({"lm_head": true, "language_model.lm_head": false})", "two values"},
      {"3", "quantization"}};
  for (const auto& [entry, detail] : entries) {
    SCOPED_TRACE(entry);
    json::Value config = with_field("quantization", entry);
    config.set("quantization_config", json::Value());
    expect_refusal(parse_config(config), Refusal::QuantFormat, detail);
  }
  expect_refusal(parse_config(with_field("quantization", R"({"bits": 8})")), Refusal::QuantFormat,
                 "differ");
  expect_refusal(parse_config(with_text_field("quantization_config", R"({"quant_method": "awq"})")),
                 Refusal::QuantFormat, "\"awq\"");
}

TEST(GenerationConfig, adds_end_tokens_and_reads_defaults) {
  ModelConfig c = *parse_config(config_of("35b-a3b"));
  c.end_tokens.clear();
  const auto d = parse_generation_config(
      parsed(R"({"eos_token_id": [248046, 248044], "do_sample": true, "temperature": 0.6, )"
             R"("top_k": 20, "top_p": 0.95})"),
      c);
  ASSERT_TRUE(d) << to_string(d.error());
  EXPECT_EQ(c.end_tokens, (std::vector<int32_t>{248046, 248044}));
  EXPECT_EQ(d->temperature, 0.6);
  EXPECT_EQ(d->top_k, 20);
  EXPECT_EQ(d->top_p, 0.95);
  EXPECT_FALSE(d->min_p);
  const auto greedy = parse_generation_config(parsed(R"({"do_sample": false, "top_k": -1})"), c);
  ASSERT_TRUE(greedy);
  EXPECT_EQ(greedy->temperature, 0);
  EXPECT_FALSE(greedy->top_k);
  EXPECT_TRUE(parse_generation_config(json::Value(), c));
  EXPECT_TRUE(d->ignored.empty());
  const auto more = parse_generation_config(
      parsed(R"({"top_p": 1, "typical_p": 0.9, "pad_token_id": 1, "suppress_tokens": [3]})"), c);
  ASSERT_TRUE(more);
  EXPECT_EQ(more->ignored, (std::vector<std::string>{"typical_p", "suppress_tokens"}));
}

TEST(GenerationConfig, values_out_of_range_are_refused) {
  ModelConfig c = *parse_config(config_of("35b-a3b"));
  for (const char* text :
       {R"({"temperature": -1})", R"({"top_p": 2})", R"({"top_k": 1.5})", R"({"eos_token_id": -3})",
        R"({"repetition_penalty": 0})", R"({"do_sample": 1})", R"({"min_p": "x"})", "[]"}) {
    expect_refusal(parse_generation_config(parsed(text), c), Refusal::ConfigField,
                   "generation_config");
  }
}

}  // namespace
}  // namespace roost
