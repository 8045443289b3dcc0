// The lists of known configuration fields (docs/MODEL.md, configuration).
#include "weights/config_known.h"

#include <algorithm>
#include <span>

namespace roost {

namespace {

// Fields with a rule in config.cc: each enters the arithmetic or is demanded to have one value.
constexpr std::string_view kArithmetic[] = {"attention_bias",
                                            "attn_output_gate",
                                            "decoder_sparse_step",
                                            "full_attention_interval",
                                            "head_dim",
                                            "hidden_act",
                                            "hidden_size",
                                            "intermediate_size",
                                            "layer_types",
                                            "linear_conv_kernel_dim",
                                            "linear_key_head_dim",
                                            "linear_num_key_heads",
                                            "linear_num_value_heads",
                                            "linear_value_head_dim",
                                            "mamba_ssm_dtype",
                                            "max_position_embeddings",
                                            "mlp_bias",
                                            "mlp_only_layers",
                                            "moe_intermediate_size",
                                            "mtp_use_dedicated_embeddings",
                                            "norm_topk_prob",
                                            "num_attention_heads",
                                            "num_experts",
                                            "num_experts_per_tok",
                                            "num_hidden_layers",
                                            "num_key_value_heads",
                                            "output_gate_type",
                                            "partial_rotary_factor",
                                            "rms_norm_eps",
                                            "rope_parameters",
                                            "rope_scaling",
                                            "rope_theta",
                                            "shared_expert_intermediate_size",
                                            "sliding_window",
                                            "use_sliding_window",
                                            "vocab_size"};

// Labels, versions, token ids, training and API switches: no forward pass depends on them.
constexpr std::string_view kHarmless[] = {"add_cross_attention",
                                          "architectures",
                                          "attention_dropout",
                                          "auto_map",
                                          "bad_words_ids",
                                          "begin_suppress_tokens",
                                          "bos_token_id",
                                          "chunk_size_feed_forward",
                                          "decoder_start_token_id",
                                          "diversity_penalty",
                                          "do_sample",
                                          "dtype",
                                          "early_stopping",
                                          "encoder_no_repeat_ngram_size",
                                          "eos_token_id",
                                          "exponential_decay_length_penalty",
                                          "finetuning_task",
                                          "forced_bos_token_id",
                                          "forced_eos_token_id",
                                          "gradient_checkpointing",
                                          "id2label",
                                          "image_token_id",
                                          "initializer_range",
                                          "is_decoder",
                                          "is_encoder_decoder",
                                          "label2id",
                                          "language_model_only",
                                          "length_penalty",
                                          "max_length",
                                          "max_window_layers",
                                          "min_length",
                                          "model_type",
                                          "mtp_num_hidden_layers",
                                          "no_repeat_ngram_size",
                                          "num_beam_groups",
                                          "num_beams",
                                          "num_nextn_predict_layers",
                                          "num_return_sequences",
                                          "output_attentions",
                                          "output_hidden_states",
                                          "output_router_logits",
                                          "output_scores",
                                          "pad_token_id",
                                          "prefix",
                                          "pretraining_tp",
                                          "problem_type",
                                          "pruned_heads",
                                          "quantization",
                                          "quantization_config",
                                          "remove_invalid_values",
                                          "repetition_penalty",
                                          "return_dict",
                                          "return_dict_in_generate",
                                          "router_aux_loss_coef",
                                          "sep_token_id",
                                          "suppress_tokens",
                                          "task_specific_params",
                                          "temperature",
                                          "text_config",
                                          "tie_encoder_decoder",
                                          "tie_word_embeddings",
                                          "tf_legacy_loss",
                                          "tokenizer_class",
                                          "top_k",
                                          "top_p",
                                          "torch_dtype",
                                          "torchscript",
                                          "transformers_version",
                                          "typical_p",
                                          "unsloth_fixed",
                                          "unsloth_version",
                                          "use_bfloat16",
                                          "use_cache",
                                          "video_token_id",
                                          "vision_config",
                                          "vision_end_token_id",
                                          "vision_start_token_id"};

constexpr std::string_view kRope[] = {"mrope_interleaved", "mrope_section", "partial_rotary_factor",
                                      "rope_theta",        "rope_type",     "type"};

// Fields with a rule in drafter_config.cc: of the whole file, and of its dflash_config.
constexpr std::string_view kDrafter[] = {"attention_bias",
                                         "block_size",
                                         "dflash_config",
                                         "draft_vocab_size",
                                         "final_logit_softcapping",
                                         "head_dim",
                                         "hidden_act",
                                         "hidden_size",
                                         "intermediate_size",
                                         "is_causal",
                                         "is_neox_style",
                                         "layer_types",
                                         "logit_scale",
                                         "max_position_embeddings",
                                         "num_attention_heads",
                                         "num_hidden_layers",
                                         "num_key_value_heads",
                                         "num_target_layers",
                                         "rms_norm_eps",
                                         "rope_is_neox_style",
                                         "rope_parameters",
                                         "rope_scaling",
                                         "rope_theta",
                                         "sample_from_anchor",
                                         "sliding_window",
                                         "target_hidden_size",
                                         "use_sliding_window",
                                         "vocab_size"};

constexpr std::string_view kDraftPart[] = {"attention_mode",
                                           "block_size",
                                           "causal",
                                           "conv_group_size",
                                           "conv_kernel_size",
                                           "draft_window_size",
                                           "final_logit_softcapping",
                                           "input_embedding_scale",
                                           "mask_token_id",
                                           "output_multiplier",
                                           "projector_type",
                                           "pure_draft_prefix_len",
                                           "runtime_block_size",
                                           "selector_rank",
                                           "selector_top_k",
                                           "shift_label",
                                           "swa_window_size",
                                           "target_layer_ids",
                                           "use_swa"};

bool contains(std::span<const std::string_view> list, std::string_view key) {
  return std::find(list.begin(), list.end(), key) != list.end();
}

bool is_known(std::string_view key, KnownFields known) {
  if (known == KnownFields::kRope) return contains(kRope, key);
  if (known == KnownFields::kDraftPart) return contains(kDraftPart, key);
  const bool has_rule =
      known == KnownFields::kText ? contains(kArithmetic, key) : contains(kDrafter, key);
  // A leading underscore marks a library's private notes.
  return has_rule || key.starts_with('_') || contains(kHarmless, key);
}

}  // namespace

Result<void> check_known_fields(const ConfigFields& fields, KnownFields known) {
  for (const auto& [key, value] : fields.object().members()) {
    if (value.is_null()) continue;
    if (!is_known(key, known))
      return fields.refuse(key, "not a field of this family that is known");
  }
  return {};
}

Result<void> check_outer_fields(const ConfigFields& outer, const ConfigFields& text) {
  for (const std::string_view key : kArithmetic) {
    const json::Value* outside = outer.find(key);
    if (outside == nullptr) continue;
    const json::Value* inside = text.find(key);
    if (inside == nullptr || !(*inside == *outside)) {
      return outer.refuse(key,
                          "text_config says " + (inside == nullptr ? "nothing" : quoted(*inside)));
    }
  }
  return {};
}

}  // namespace roost
