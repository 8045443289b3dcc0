#include "apps/load_weights.h"

#include "base/file.h"
#include "base/json.h"
#include "base/memory.h"

namespace roost {

Result<std::shared_ptr<const ModelWeights>> load_model_weights(const std::string& folder) {
  ROOST_TRY(const std::string text, read_file(folder + "/config.json", limits::kConfigBytesMax));
  ROOST_TRY(const json::Value json, json::parse(text));
  ROOST_TRY(ModelConfig config, parse_config(json));
  ROOST_TRY(Checkpoint checkpoint, Checkpoint::open(folder));
  ROOST_TRY(
      ModelWeights weights,
      load_weights(std::make_shared<const Checkpoint>(std::move(checkpoint)), std::move(config)));
  return std::make_shared<const ModelWeights>(std::move(weights));
}

Result<bool> make_resident(const ModelWeights& weights) {
  if (weights.bytes_mapped > available_memory_bytes()) return false;
  ROOST_TRY_DO(weights.checkpoint->make_resident());
  return true;
}

}  // namespace roost
