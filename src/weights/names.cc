// The prefixes under which the family's weights are published.
#include "weights/names.h"

#include <initializer_list>

namespace roost {

namespace {

bool take_prefix(std::string_view& name, std::string_view prefix) {
  if (!name.starts_with(prefix)) return false;
  name.remove_prefix(prefix.size());
  return true;
}

// A module's own name, or something inside it.
bool is_below(std::string_view path, std::string_view module) {
  return path.starts_with(module) && (path.size() == module.size() || path[module.size()] == '.');
}

bool is_trunk(std::string_view path) {
  for (const std::string_view module : {"layers", "embed_tokens", "norm"}) {
    if (is_below(path, module)) return true;
  }
  return false;
}

}  // namespace

WeightName parse_weight_name(std::string_view name) {
  std::string_view rest = name;
  for (const std::string_view prefix :
       {"vision_tower.", "model.visual.", "model.vision_tower.", "visual."}) {
    if (take_prefix(rest, prefix)) return {ModelPart::kVision, "vision_tower." + std::string(rest)};
  }
  for (const std::string_view prefix : {"mtp.", "language_model.mtp.", "model.mtp."}) {
    if (take_prefix(rest, prefix)) return {ModelPart::kMtp, "mtp." + std::string(rest)};
  }
  std::string_view head = name;
  take_prefix(head, "language_model.");
  if (is_below(head, "lm_head")) return {ModelPart::kText, std::string(head)};
  for (const std::string_view prefix :
       {"language_model.model.", "model.language_model.", "model."}) {
    if (!take_prefix(rest, prefix)) continue;
    if (is_trunk(rest)) return {ModelPart::kText, std::string(rest)};
    break;
  }
  return {ModelPart::kUnknown, std::string(name)};
}

WeightName parse_drafter_name(std::string_view name) {
  std::string_view rest = name;
  take_prefix(rest, "model.");
  std::string path(rest);
  if (take_prefix(rest, "encoder.fc")) path = "fc" + std::string(rest);
  if (take_prefix(rest, "encoder.output_norm_enc")) path = "hidden_norm" + std::string(rest);
  if (take_prefix(rest, "midlayer.")) path = "layers.0." + std::string(rest);
  if (path.ends_with("_codebook") && path.starts_with("candidate_selector.")) path += ".weight";
  for (const std::string_view module :
       {"fc", "hidden_norm", "norm", "layers", "candidate_selector", "embed_tokens", "lm_head"}) {
    if (is_below(path, module)) return {ModelPart::kText, path};
  }
  return {ModelPart::kUnknown, std::string(name)};
}

}  // namespace roost
