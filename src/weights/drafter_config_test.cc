// config.json of a drafter: both versions, and every field that is refused.
#include "weights/drafter_config.h"

#include <gtest/gtest.h>

#include "base/file.h"
#include "weights/test_checkpoint.h"

namespace roost {
namespace {

using test::expect_refusal;

json::Value parsed(const std::string& text) {
  const auto value = json::parse(text);
  EXPECT_TRUE(value) << text;
  return value ? *value : json::Value();
}

json::Value second_version() {
  return parsed(
      read_file(ROOST_SOURCE_DIR "/models/fledgling/drafter/config.json", 1 << 20).value());
}

json::Value first_version() {
  return parsed(R"({"architectures": ["DFlashDraftModel"], "model_type": "qwen3",
    "hidden_size": 2048, "intermediate_size": 6144, "num_hidden_layers": 8,
    "num_attention_heads": 32, "num_key_value_heads": 4, "head_dim": 128, "vocab_size": 248320,
    "rms_norm_eps": 1e-06, "rope_theta": 10000000, "rope_scaling": null, "num_target_layers": 40,
    "block_size": 16, "dflash_config": {"mask_token_id": 248070,
    "target_layer_ids": [1, 10, 19, 28, 37]}})");
}

json::Value with(json::Value config, const std::string& key, const std::string& value) {
  config.set(key, parsed(value));
  return config;
}

json::Value with_part(json::Value config, const std::string& key, const std::string& value) {
  json::Value part = *config.find("dflash_config");
  part.set(key, parsed(value));
  config.set("dflash_config", part);
  return config;
}

TEST(DrafterConfig, reads_the_second_version) {
  const auto c = parse_drafter_config(second_version());
  ASSERT_TRUE(c) << to_string(c.error());
  EXPECT_EQ(c->version, 2);
  EXPECT_EQ(c->hidden, 256);
  EXPECT_EQ(c->n_layers(), 3);
  EXPECT_EQ(c->taps, (std::vector<int64_t>{1, 3, 4, 6}));
  EXPECT_EQ(c->block, 16);
  EXPECT_EQ(c->block_rows_max, 16);
  EXPECT_EQ(c->mask_token, 3070);
  EXPECT_EQ(c->conv_taps, 2);
  EXPECT_EQ(c->conv_coefficients(), 64);
  EXPECT_EQ(c->selector_rank, 32);
  EXPECT_EQ(c->tap_width(), 1024);
  EXPECT_EQ(c->window_max(), 256);
  for (const auto& layer : c->layers) EXPECT_FALSE(layer.is_causal);
}

TEST(DrafterConfig, reads_the_first_version) {
  const auto c = parse_drafter_config(first_version());
  ASSERT_TRUE(c) << to_string(c.error());
  EXPECT_EQ(c->version, 1);
  EXPECT_EQ(c->block, 16);
  EXPECT_EQ(c->n_taps(), 5);
  EXPECT_EQ(c->selector_rank, 0);
  EXPECT_EQ(c->window_max(), 0);  // no layer_types: all see everything
}

TEST(DrafterConfig, layers_of_the_first_version_that_slide_are_causal_in_the_block) {
  json::Value config = with(first_version(), "num_hidden_layers", "2");
  config = with(config, "layer_types", R"(["sliding_attention", "full_attention"])");
  config = with(config, "sliding_window", "2048");
  const auto c = parse_drafter_config(config);
  ASSERT_TRUE(c) << to_string(c.error());
  EXPECT_TRUE(c->layers[0].is_causal);
  EXPECT_EQ(c->layers[0].window, 2048);
  EXPECT_FALSE(c->layers[1].is_causal);
  EXPECT_EQ(c->layers[1].window, 0);
  const auto said = parse_drafter_config(with_part(config, "causal", "false"));
  ASSERT_TRUE(said);
  EXPECT_FALSE(said->layers[0].is_causal);
  const auto forced = parse_drafter_config(
      with_part(with_part(first_version(), "use_swa", "true"), "swa_window_size", "100"));
  ASSERT_TRUE(forced) << to_string(forced.error());
  EXPECT_EQ(forced->window_max(), 100);
}

TEST(DrafterConfig, the_layer_list_decides_and_not_the_switches_beside_it) {
  const auto c = parse_drafter_config(
      with(with(second_version(), "use_sliding_window", "false"), "max_window_layers", "28"));
  ASSERT_TRUE(c) << to_string(c.error());
  EXPECT_EQ(c->window_max(), 256);
}

TEST(DrafterConfig, default_taps_are_those_of_the_formula) {
  using Taps = std::vector<int64_t>;
  EXPECT_EQ(default_taps(64, 5), (Taps{1, 16, 31, 46, 61}));
  EXPECT_EQ(default_taps(40, 5), (Taps{1, 10, 19, 28, 37}));
  EXPECT_EQ(default_taps(40, 8), (Taps{1, 6, 11, 16, 22, 27, 32, 37}));
  EXPECT_EQ(default_taps(36, 5), (Taps{1, 9, 17, 25, 33}));
  EXPECT_EQ(default_taps(32, 5), (Taps{1, 8, 15, 22, 29}));
  EXPECT_EQ(default_taps(24, 1), (Taps{12}));
}

TEST(DrafterConfig, block_is_looked_for_where_each_version_has_it) {
  EXPECT_EQ(parse_drafter_config(with(first_version(), "block_size", "null"))->block, 16);
  EXPECT_EQ(parse_drafter_config(with(first_version(), "block_size", "8"))->block, 8);
  EXPECT_EQ(parse_drafter_config(with_part(first_version(), "block_size", "10"))->block, 10);
  EXPECT_EQ(
      parse_drafter_config(with_part(second_version(), "runtime_block_size", "8"))->block_rows_max,
      8);
}

TEST(DrafterConfig, theta_may_be_nested_and_is_never_a_default) {
  json::Value config = with(second_version(), "rope_theta", "null");
  expect_refusal(parse_drafter_config(config), Refusal::ConfigField, "drafter.rope_theta");
  config = with(config, "rope_parameters", R"({"rope_type": "default", "rope_theta": 5e5})");
  EXPECT_EQ(parse_drafter_config(config)->rope_theta, 5e5);
  expect_refusal(
      parse_drafter_config(with(second_version(), "rope_parameters", R"({"rope_theta": 5})")),
      Refusal::ConfigField, "the rope block says otherwise");
}

struct Wrong {
  const char* key;
  const char* value;
};

TEST(DrafterConfig, every_field_of_the_file_that_is_wrong_is_named) {
  const Wrong all[] = {{"hidden_size", "null"},
                       {"hidden_size", "0"},
                       {"intermediate_size", "null"},
                       {"num_hidden_layers", "null"},
                       {"num_hidden_layers", "100000"},
                       {"num_attention_heads", "null"},
                       {"num_attention_heads", "3"},
                       {"num_attention_heads", "260"},
                       {"num_key_value_heads", "null"},
                       {"head_dim", "null"},
                       {"head_dim", "63"},
                       {"head_dim", "258"},
                       {"vocab_size", "null"},
                       {"rms_norm_eps", "null"},
                       {"rms_norm_eps", "0"},
                       {"rope_theta", "1"},
                       {"rope_scaling", R"({"rope_type": "yarn", "factor": 4})"},
                       {"rope_scaling", R"({"rope_type": "linear"})"},
                       {"rope_parameters", "3"},
                       {"is_neox_style", "false"},
                       {"rope_is_neox_style", "false"},
                       {"hidden_act", "\"gelu\""},
                       {"attention_bias", "true"},
                       {"layer_types", "null"},
                       {"layer_types", R"(["sliding_attention"])"},
                       {"layer_types", R"(["sliding_attention", "sliding_attention", "linear"])"},
                       {"sliding_window", "null"},
                       {"sliding_window", "0"},
                       {"is_causal", "null"},
                       {"is_causal", "true"},
                       {"num_target_layers", "null"},
                       {"num_target_layers", "6"},  // of which layer 6 is tapped
                       {"block_size", "16"},
                       {"dflash_config", "null"},
                       {"dflash_config", "7"},
                       {"draft_vocab_size", "1000"},
                       {"target_hidden_size", "0"},
                       {"sample_from_anchor", "true"},
                       {"logit_scale", "2"},
                       {"final_logit_softcapping", "-1"},
                       {"attention_sink_bias", "true"}};
  for (const Wrong& wrong : all) {
    const std::string key = wrong.key;
    const std::string said = key == "num_target_layers" && std::string(wrong.value) == "6"
                                 ? "drafter.dflash_config.target_layer_ids"
                                 : "drafter." + key;
    expect_refusal(parse_drafter_config(with(second_version(), key, wrong.value)),
                   Refusal::ConfigField, said);
  }
}

TEST(DrafterConfig, every_field_of_its_own_part_that_is_wrong_is_named) {
  const Wrong all[] = {{"block_size", "null"},
                       {"block_size", "1"},
                       {"block_size", "17"},
                       {"runtime_block_size", "17"},
                       {"mask_token_id", "null"},
                       {"mask_token_id", "3072"},
                       {"target_layer_ids", "null"},
                       {"target_layer_ids", "[]"},
                       {"target_layer_ids", "[1, 1]"},
                       {"target_layer_ids", "[3, 1]"},
                       {"target_layer_ids", "[1, 8]"},
                       {"target_layer_ids", "[-1, 3]"},
                       {"target_layer_ids", "[\"1\"]"},
                       {"target_layer_ids", "[0, 1, 2, 3, 4, 5, 6, 7, 8]"},
                       {"conv_kernel_size", "null"},
                       {"conv_kernel_size", "17"},
                       {"conv_group_size", "null"},
                       {"conv_group_size", "24"},
                       {"selector_rank", "null"},
                       {"selector_top_k", "null"},
                       {"selector_top_k", "65"},
                       {"output_multiplier", "0"},
                       {"output_multiplier", "-1"},
                       {"final_logit_softcapping", "-2"},
                       {"input_embedding_scale", "2"},
                       {"attention_mode", "\"mla\""},
                       {"shift_label", "true"},
                       {"pure_draft_prefix_len", "1"},
                       {"draft_window_size", "128"},
                       {"use_swa", "1"},
                       {"markov_rank", "256"}};
  for (const Wrong& wrong : all) {
    expect_refusal(parse_drafter_config(with_part(second_version(), wrong.key, wrong.value)),
                   Refusal::ConfigField, std::string("drafter.dflash_config.") + wrong.key);
  }
}

TEST(DrafterConfig, relatives_are_refused_as_what_they_are) {
  for (const char* architectures : {"null", "[]", "[\"Qwen3ForCausalLM\"]", "\"DFlashDraftModel\"",
                                    "[\"DFlashDraftModel\", \"DFlash2DraftModel\"]"})
    expect_refusal(parse_drafter_config(with(second_version(), "architectures", architectures)),
                   Refusal::DrafterKind, "drafter.architectures");
  expect_refusal(parse_drafter_config(with_part(second_version(), "projector_type", "\"dspark\"")),
                 Refusal::DrafterKind, "projector_type: \"dspark\"");
  expect_refusal(parse_drafter_config(parsed("3")), Refusal::ConfigField, "not an object");
  expect_refusal(
      parse_drafter_config(with(second_version(), "quantization", R"({"mode": "mxfp4"})")),
      Refusal::QuantFormat, "mxfp4");
}

TEST(DrafterConfig, fits_the_target_by_geometry) {
  const DrafterConfig drafter = *parse_drafter_config(second_version());
  ModelConfig target;
  target.hidden = 256;
  target.vocabulary = 3072;
  target.n_layers = 8;
  EXPECT_TRUE(check_drafter_fits(drafter, target));
  ModelConfig other = target;
  other.hidden = 512;
  expect_refusal(check_drafter_fits(drafter, other), Refusal::DrafterMismatch,
                 "hidden_size: have 256, want 512");
  other = target;
  other.vocabulary = 3073;
  expect_refusal(check_drafter_fits(drafter, other), Refusal::DrafterMismatch, "vocab_size");
  other = target;
  other.n_layers = 9;
  expect_refusal(check_drafter_fits(drafter, other), Refusal::DrafterMismatch, "num_target_layers");
  const auto wide = parse_drafter_config(with(second_version(), "target_hidden_size", "512"));
  ASSERT_TRUE(wide);
  expect_refusal(check_drafter_fits(*wide, target), Refusal::DrafterMismatch, "target_hidden_size");
}

}  // namespace
}  // namespace roost
