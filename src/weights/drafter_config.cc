// Reading a drafter's config.json.
#include "weights/drafter_config.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <string>

#include "base/limits.h"
#include "weights/config.h"
#include "weights/config_fields.h"
#include "weights/config_known.h"
#include "weights/names.h"

namespace roost {

namespace {

using json::Value;
using limits::kDimensionMax;

IntegerRule required(int64_t min, int64_t max) {
  return {.absent = std::nullopt, .min = min, .max = max};
}

Result<int> version_of(const ConfigFields& f) {
  const Value* value = f.find("architectures");
  const bool is_one = value != nullptr && value->is_array() && value->items().size() == 1 &&
                      value->items()[0].is_string();
  const std::string name = is_one ? value->items()[0].as_string() : "";
  if (name == "DFlashDraftModel") return 1;
  if (name == "DFlash2DraftModel") return 2;
  return Error{Refusal::DrafterKind,
               f.path_of("architectures") + ": " + (value == nullptr ? "absent" : quoted(*value))};
}

Result<void> parse_sizes(const ConfigFields& f, DrafterConfig& c) {
  ROOST_TRY(c.hidden, f.integer("hidden_size", required(1, kDimensionMax)));
  ROOST_TRY(c.intermediate, f.integer("intermediate_size", required(1, kDimensionMax)));
  ROOST_TRY(const int64_t n_layers,
            f.integer("num_hidden_layers", required(1, limits::kLayersMax)));
  c.layers.resize(static_cast<size_t>(n_layers));
  ROOST_TRY(c.n_heads, f.integer("num_attention_heads", required(1, kDimensionMax)));
  ROOST_TRY(c.n_kv_heads, f.integer("num_key_value_heads", required(1, kDimensionMax)));
  if (c.n_heads % c.n_kv_heads != 0) {
    return f.refuse("num_attention_heads",
                    "not a multiple of num_key_value_heads " + std::to_string(c.n_kv_heads));
  }
  if (c.n_heads / c.n_kv_heads > kGroupHeadsMax) {
    return f.refuse("num_attention_heads",
                    "more than " + std::to_string(kGroupHeadsMax) + " times num_key_value_heads");
  }
  const int64_t derived = c.hidden / c.n_heads;
  ROOST_TRY(c.head_dim,
            f.integer("head_dim", {.absent = c.version == 1 ? std::optional(derived) : std::nullopt,
                                   .min = 2,
                                   .max = kDimensionMax}));
  if (c.head_dim > kDraftHeadDimMax)
    return f.refuse("head_dim", "more than " + std::to_string(kDraftHeadDimMax));
  if (c.head_dim < 2 || c.head_dim % 2 != 0) return f.refuse("head_dim", "even and not 0");
  if (c.n_heads * c.head_dim > kDimensionMax) {
    return f.refuse("num_attention_heads",
                    "gives a width of " + std::to_string(c.n_heads * c.head_dim));
  }
  ROOST_TRY(c.vocabulary, f.integer("vocab_size", required(1, limits::kVocabularyMax)));
  ROOST_TRY(const double eps, f.number("rms_norm_eps", std::nullopt));
  c.norm_eps = static_cast<float>(eps);
  if (!(c.norm_eps > 0 && c.norm_eps < 1)) return f.refuse("rms_norm_eps", "between 0 and 1");
  ROOST_TRY(c.n_target_layers, f.integer("num_target_layers", required(1, limits::kLayersMax)));
  ROOST_TRY(c.target_hidden,
            f.integer("target_hidden_size", {.absent = c.hidden, .min = 1, .max = kDimensionMax}));
  return {};
}

// A missing theta is an error: newer exports nest it, and a default would halve acceptance unseen.
Result<void> parse_rope(const ConfigFields& f, DrafterConfig& c) {
  for (const std::string_view key : {"rope_is_neox_style", "is_neox_style"})
    ROOST_TRY_DO(f.demand(key, Value::boolean(true)));
  std::optional<double> theta;
  for (const std::string_view key : {"rope_parameters", "rope_scaling"}) {
    const Value* block = f.find(key);
    if (block == nullptr) continue;
    if (!block->is_object()) return f.refuse(key, "an object is needed");
    const ConfigFields rope(*block, f.path_of(key) + ".");
    for (const auto& [name, value] : block->members()) {
      if (!value.is_null() && name != "rope_type" && name != "type" && name != "rope_theta")
        return rope.refuse(name, "not a field of plain rotary positions");
    }
    for (const std::string_view type : {"rope_type", "type"})
      ROOST_TRY_DO(rope.demand(type, Value::string("default")));
    if (!rope.has("rope_theta")) continue;
    ROOST_TRY(const double nested, rope.number("rope_theta", std::nullopt));
    if (theta && *theta != nested) return rope.refuse("rope_theta", "two values");
    theta = nested;
  }
  ROOST_TRY(c.rope_theta, f.number("rope_theta", theta));
  if (theta && c.rope_theta != *theta)
    return f.refuse("rope_theta", "the rope block says otherwise");
  if (!(c.rope_theta > 1)) return f.refuse("rope_theta", "more than 1 is needed");
  return {};
}

Result<void> parse_block(const ConfigFields& f, const ConfigFields& draft, DrafterConfig& c) {
  const IntegerRule in_range = required(2, DrafterConfig::kBlockMax);
  IntegerRule rule = in_range;
  if (c.version == 1) {
    rule.absent = 16;
    if (f.has("block_size")) {
      ROOST_TRY(const int64_t outer, f.integer("block_size", in_range));
      rule.absent = outer;
    }
  } else if (f.has("block_size")) {
    return f.refuse("block_size", "belongs into dflash_config");
  }
  ROOST_TRY(c.block, draft.integer("block_size", rule));
  ROOST_TRY(c.block_rows_max,
            draft.integer("runtime_block_size", {.absent = c.block, .min = 2, .max = c.block}));
  ROOST_TRY(const int64_t mask, draft.integer("mask_token_id", required(0, c.vocabulary - 1)));
  c.mask_token = static_cast<int32_t>(mask);
  return {};
}

Result<void> parse_taps(const ConfigFields& draft, DrafterConfig& c) {
  const Value* list = draft.find("target_layer_ids");
  if (list == nullptr && c.version == 1) {
    c.taps = default_taps(c.n_target_layers, c.n_layers());
  } else if (list == nullptr || !list->is_array()) {
    return draft.refuse("target_layer_ids", "a list is needed");
  } else {
    for (const Value& item : list->items()) {
      const std::optional<int64_t> layer = item.is_number() ? item.as_int64() : std::nullopt;
      if (!layer) return draft.refuse("target_layer_ids", "integers are needed");
      c.taps.push_back(*layer);
    }
  }
  const int64_t n = c.n_taps();
  if (n < 1 || n > DrafterConfig::kTapsMax)
    return draft.refuse("target_layer_ids", "1 to 8 layers");
  for (size_t i = 0; i < c.taps.size(); ++i) {
    if (c.taps[i] < 0 || c.taps[i] >= c.n_target_layers || (i > 0 && c.taps[i] <= c.taps[i - 1])) {
      return draft.refuse("target_layer_ids", "ascending layers below num_target_layers " +
                                                  std::to_string(c.n_target_layers));
    }
  }
  return {};
}

Result<std::vector<bool>> sliding_layers(const ConfigFields& f, const ConfigFields& draft,
                                         const DrafterConfig& c) {
  std::vector<bool> slides(c.layers.size(), false);
  const Value* types = f.find("layer_types");
  if (types == nullptr && c.version == 2) return f.refuse("layer_types", "a list is needed");
  if (types != nullptr) {
    if (!types->is_array() || types->items().size() != slides.size())
      return f.refuse("layer_types", "a list of " + std::to_string(slides.size()) + " is needed");
    for (size_t i = 0; i < slides.size(); ++i) {
      const Value& type = types->items()[i];
      slides[i] = type.is_string() && type.as_string() == "sliding_attention";
      if (!slides[i] && !(type.is_string() && type.as_string() == "full_attention"))
        return f.refuse("layer_types", "entry " + std::to_string(i) + " is " + quoted(type));
    }
  }
  ROOST_TRY(const bool use_swa, draft.boolean("use_swa", false));
  if (use_swa && std::find(slides.begin(), slides.end(), true) == slides.end())
    std::fill(slides.begin(), slides.end(), true);
  return slides;
}

// layer_types decides alone: use_sliding_window and max_window_layers of these files describe
// something else.
Result<void> parse_layers(const ConfigFields& f, const ConfigFields& draft, DrafterConfig& c) {
  ROOST_TRY(const std::vector<bool> slides, sliding_layers(f, draft, c));
  int64_t window = 0;
  if (std::find(slides.begin(), slides.end(), true) != slides.end()) {
    const IntegerRule rule = required(1, limits::kContextMax);
    const bool has_own = draft.has("swa_window_size");
    ROOST_TRY(window,
              has_own ? draft.integer("swa_window_size", rule) : f.integer("sliding_window", rule));
    if (draft.has("draft_window_size"))
      ROOST_TRY_DO(draft.demand("draft_window_size", Value::integer(window)));
  }
  if (c.version == 2 && !f.has("is_causal"))
    return f.refuse("is_causal", "only false is supported");
  if (c.version == 2) ROOST_TRY_DO(f.demand("is_causal", Value::boolean(false)));
  for (size_t i = 0; i < slides.size(); ++i) {
    // Version 1 layers that slide were trained causal inside the block.
    ROOST_TRY(const bool of_draft, draft.boolean("causal", slides[i] && c.version == 1));
    ROOST_TRY(c.layers[i].is_causal, f.boolean("is_causal", of_draft));
    c.layers[i].window = slides[i] ? window : 0;
  }
  return {};
}

Result<void> parse_second_version(const ConfigFields& draft, DrafterConfig& c) {
  ROOST_TRY(c.conv_taps, draft.integer("conv_kernel_size", required(1, c.block)));
  ROOST_TRY(c.conv_group, draft.integer("conv_group_size", required(1, c.hidden)));
  if (c.hidden % c.conv_group != 0) {
    return draft.refuse("conv_group_size",
                        "does not divide hidden_size " + std::to_string(c.hidden));
  }
  ROOST_TRY(c.selector_rank, draft.integer("selector_rank", required(1, kDimensionMax)));
  ROOST_TRY(c.selector_top_k,
            draft.integer("selector_top_k",
                          required(1, std::min(c.vocabulary, DrafterConfig::kCandidatesMax))));
  return {};
}

Result<void> parse_logits(const ConfigFields& f, const ConfigFields& draft, DrafterConfig& c) {
  ROOST_TRY(c.output_multiplier, draft.number("output_multiplier", 1.0));
  // The candidates are the largest logits, which a factor of another sign would turn round.
  if (!(c.output_multiplier > 0)) return draft.refuse("output_multiplier", "more than 0 is needed");
  ROOST_TRY(const double outer, f.number("final_logit_softcapping", 0.0));
  if (!(outer >= 0)) return f.refuse("final_logit_softcapping", "not below 0");
  ROOST_TRY(c.softcap, draft.number("final_logit_softcapping", outer));
  if (!(c.softcap >= 0)) return draft.refuse("final_logit_softcapping", "not below 0");
  return {};
}

// Fields of which one value is built; relatives of DFlash2 differ in them.
Result<void> check_switches(const ConfigFields& f, const ConfigFields& draft) {
  ROOST_TRY_DO(f.demand("hidden_act", Value::string("silu")));
  ROOST_TRY_DO(f.demand("attention_bias", Value::boolean(false)));
  ROOST_TRY_DO(f.demand("sample_from_anchor", Value::boolean(false)));
  ROOST_TRY_DO(f.demand("logit_scale", Value::integer(1)));
  if (f.has("draft_vocab_size")) return f.refuse("draft_vocab_size", "a reduced head");
  ROOST_TRY_DO(draft.demand("attention_mode", Value::string("gqa")));
  ROOST_TRY_DO(draft.demand("shift_label", Value::boolean(false)));
  ROOST_TRY_DO(draft.demand("pure_draft_prefix_len", Value::integer(0)));
  ROOST_TRY_DO(draft.demand("input_embedding_scale", Value::integer(1)));
  if (const Value* type = draft.find("projector_type"))
    return Error{Refusal::DrafterKind, draft.path_of("projector_type") + ": " + quoted(*type)};
  return {};
}

// Module paths of the file's own quantization entries, by the drafter's normalized names.
Result<QuantConfig> parse_quantization(const Value& config) {
  ROOST_TRY(QuantConfig found, parse_quant_config(config, config));
  QuantConfig named{.global = found.global, .modules = {}};
  for (const auto& [path, spec] : found.modules)
    named.modules.emplace(parse_drafter_name(path).path, spec);
  return named;
}

}  // namespace

int64_t DrafterConfig::window_max() const {
  int64_t widest = 0;
  for (const Layer& layer : layers) {
    if (layer.window == 0) return 0;
    widest = std::max(widest, layer.window);
  }
  return widest;
}

std::vector<int64_t> default_taps(int64_t n_target_layers, int64_t n_layers) {
  if (n_layers == 1) return {n_target_layers / 2};
  std::vector<int64_t> taps;
  for (int64_t i = 0; i < n_layers; ++i) {
    const double place =
        1 + static_cast<double>(i * (n_target_layers - 4)) / static_cast<double>(n_layers - 1);
    taps.push_back(static_cast<int64_t>(std::nearbyint(place)));  // ties to even
  }
  return taps;
}

Result<DrafterConfig> parse_drafter_config(const json::Value& config) {
  if (!config.is_object()) return Error{Refusal::ConfigField, "drafter: not an object"};
  const ConfigFields f(config, "drafter.");
  DrafterConfig c;
  ROOST_TRY(c.version, version_of(f));
  const Value* part = f.find("dflash_config");
  if (part == nullptr || !part->is_object())
    return f.refuse("dflash_config", "an object is needed");
  const ConfigFields draft(*part, "drafter.dflash_config.");
  ROOST_TRY_DO(check_switches(f, draft));
  ROOST_TRY_DO(check_known_fields(f, KnownFields::kDrafter));
  ROOST_TRY_DO(check_known_fields(draft, KnownFields::kDraftPart));
  ROOST_TRY(c.quantization, parse_quantization(config));
  ROOST_TRY_DO(parse_sizes(f, c));
  ROOST_TRY_DO(parse_rope(f, c));
  ROOST_TRY_DO(parse_block(f, draft, c));
  ROOST_TRY_DO(parse_taps(draft, c));
  ROOST_TRY_DO(parse_layers(f, draft, c));
  ROOST_TRY_DO(parse_logits(f, draft, c));
  if (c.version == 2) {
    ROOST_TRY_DO(parse_second_version(draft, c));
  } else {
    c.selector_top_k = std::min<int64_t>(16, c.vocabulary);
  }
  return c;
}

Result<void> check_drafter_fits(const DrafterConfig& drafter, const ModelConfig& target) {
  struct Pair {
    const char* what;
    int64_t drafter, target;
  };
  const Pair pairs[] = {{"hidden_size", drafter.hidden, target.hidden},
                        {"target_hidden_size", drafter.target_hidden, target.hidden},
                        {"vocab_size", drafter.vocabulary, target.vocabulary},
                        {"num_target_layers", drafter.n_target_layers, target.n_layers}};
  for (const auto& [what, have, want] : pairs) {
    if (have != want) {
      return Error{Refusal::DrafterMismatch, std::string(what) + ": have " + std::to_string(have) +
                                                 ", want " + std::to_string(want)};
    }
  }
  return {};
}

}  // namespace roost
