#include "apps/load_weights.h"

#include "base/file.h"
#include "base/json.h"
#include "base/memory.h"

namespace roost {

namespace {

Result<LoadedWeights> make_weights(const std::string& shape, int64_t n_layers,
                                   bool is_read_by_host) {
  SyntheticOptions options;
  options.shape = shape;
  options.n_layers = n_layers;
  LoadedWeights loaded;
  ROOST_TRY(loaded.synthetic, SyntheticMemory::create(options, is_read_by_host));
  ROOST_TRY(ModelWeights weights,
            load_weights(loaded.synthetic->checkpoint(), loaded.synthetic->config()));
  loaded.weights = std::make_shared<const ModelWeights>(std::move(weights));
  return loaded;
}

}  // namespace

std::optional<std::string> synthetic_shape_of(const std::string& model) {
  constexpr std::string_view kPrefix = "synth:";
  if (!model.starts_with(kPrefix)) return std::nullopt;
  return model.substr(kPrefix.size());
}

Result<json::Value> json_of_file(const std::string& path, const std::string& text) {
  Result<json::Value> value = json::parse(text);
  if (value) return value;
  return Error{value.error().refusal, path + ": " + value.error().detail};
}

Result<json::Value> read_json(const std::string& path, size_t n_bytes_max) {
  ROOST_TRY(const std::string text, read_file(path, n_bytes_max));
  return json_of_file(path, text);
}

Result<LoadedWeights> load_model_weights(const std::string& model, int64_t n_layers,
                                         bool is_read_by_host) {
  if (const std::optional<std::string> shape = synthetic_shape_of(model))
    return make_weights(*shape, n_layers, is_read_by_host);
  ROOST_TRY(const json::Value json, read_json(model + "/config.json", limits::kConfigBytesMax));
  ROOST_TRY(ModelConfig config, parse_config(json));
  ROOST_TRY(Checkpoint checkpoint, Checkpoint::open(model));
  ROOST_TRY(
      ModelWeights weights,
      load_weights(std::make_shared<const Checkpoint>(std::move(checkpoint)), std::move(config)));
  return LoadedWeights{std::make_shared<const ModelWeights>(std::move(weights)), {}};
}

Result<bool> make_resident(const ModelWeights& weights) {
  if (weights.bytes_mapped > available_memory_bytes()) return false;
  ROOST_TRY_DO(weights.checkpoint->make_resident());
  return true;
}

}  // namespace roost
