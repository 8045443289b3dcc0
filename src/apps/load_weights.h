// A model's configuration and tensors, as weights.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "base/json.h"
#include "base/result.h"
#include "weights/synthetic_memory.h"
#include "weights/weights.h"

namespace roost {

struct LoadedWeights {
  std::shared_ptr<const ModelWeights> weights;
  std::optional<SyntheticMemory> synthetic;  // what they were made of
};

// One JSON document of a file; refusals name it.
Result<json::Value> read_json(const std::string& path, size_t n_bytes_max);
// The same of a file whose text is read already.
Result<json::Value> json_of_file(const std::string& path, const std::string& text);

// SHAPE of a model that is named synth:SHAPE; nothing for a folder.
std::optional<std::string> synthetic_shape_of(const std::string& model);

// model: a folder, or synth:SHAPE with n_layers layers (0: the shape's own). Synthetic weights that
// no host reads are left for the device to make.
Result<LoadedWeights> load_model_weights(const std::string& model, int64_t n_layers,
                                         bool is_read_by_host);

// Reads the mapped files into memory when it holds them. False: they are larger than memory and are
// read as they are used. Refuses file.read; the weights are then lost.
Result<bool> make_resident(const ModelWeights& weights);

}  // namespace roost
