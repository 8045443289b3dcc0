// Names of weights under every published prefix.
#include "weights/names.h"

#include <gtest/gtest.h>

namespace roost {
namespace {

struct Case {
  const char* name;
  ModelPart part;
  const char* path;
};

TEST(WeightName, every_prefix_leads_to_the_same_path) {
  const Case cases[] = {
      {"language_model.model.layers.3.mlp.gate.weight", ModelPart::kText,
       "layers.3.mlp.gate.weight"},
      {"model.language_model.layers.3.mlp.gate.weight", ModelPart::kText,
       "layers.3.mlp.gate.weight"},
      {"model.layers.3.mlp.gate.weight", ModelPart::kText, "layers.3.mlp.gate.weight"},
      {"language_model.lm_head.scales", ModelPart::kText, "lm_head.scales"},
      {"lm_head.weight", ModelPart::kText, "lm_head.weight"},
      {"lm_head", ModelPart::kText, "lm_head"},
      {"language_model.model.embed_tokens", ModelPart::kText, "embed_tokens"},
      {"model.norm.weight", ModelPart::kText, "norm.weight"},
      {"vision_tower.blocks.0.norm1.bias", ModelPart::kVision, "vision_tower.blocks.0.norm1.bias"},
      {"model.visual.blocks.0.norm1.bias", ModelPart::kVision, "vision_tower.blocks.0.norm1.bias"},
      {"mtp.fc.weight", ModelPart::kMtp, "mtp.fc.weight"},
      {"language_model.mtp.fc.weight", ModelPart::kMtp, "mtp.fc.weight"},
  };
  for (const Case& c : cases) {
    EXPECT_EQ(parse_weight_name(c.name).part, c.part) << c.name;
    EXPECT_EQ(parse_weight_name(c.name).path, c.path) << c.name;
  }
}

TEST(WeightName, other_names_are_unknown) {
  for (const char* name :
       {"", "layers.0.mlp.gate.weight", "model.other.weight", "audio_tower.x", "lm_head2.weight",
        "model.language_model.model.layers.0.x", "model.normal.weight"}) {
    EXPECT_EQ(parse_weight_name(name).part, ModelPart::kUnknown) << name;
    EXPECT_EQ(parse_weight_name(name).path, name);
  }
}

}  // namespace
}  // namespace roost
