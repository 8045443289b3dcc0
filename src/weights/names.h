// Which weight of the family a name in a checkpoint means, whoever wrote the file.
#pragma once

#include <string>
#include <string_view>

namespace roost {

enum class ModelPart { kText, kVision, kMtp, kUnknown };

// path is the same for every layout (docs/MODEL.md, tensors):
//   kText    "layers.0.mlp.gate.weight", "embed_tokens.weight", "norm.weight", "lm_head.scales"
//   kVision  "vision_tower.…",  kMtp  "mtp.…",  kUnknown  the name itself
struct WeightName {
  ModelPart part = ModelPart::kUnknown;
  std::string path;
};

// Takes the prefixes of MLX files (`language_model.model.`), of transformers
// (`model.language_model.`) and of flat text-only files (`model.`). Works for tensors and for
// module paths alike.
WeightName parse_weight_name(std::string_view name);

// The same for a DFlash or DFlash2 drafter's file (docs/DRAFTER.md, tensors): all of its weights
// are kText, "fc.weight", "layers.0.attention_conv.base_kernel",
// "candidate_selector.predecessor_codebook.weight". Takes a leading `model.`, the encoder's names
// of fc and hidden_norm, and `midlayer.` for the first layer.
WeightName parse_drafter_name(std::string_view name);

}  // namespace roost
