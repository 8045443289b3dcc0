// A model folder's config.json and tensors, as weights.
#pragma once

#include <memory>
#include <string>

#include "base/result.h"
#include "weights/weights.h"

namespace roost {

Result<std::shared_ptr<const ModelWeights>> load_model_weights(const std::string& folder);

// Reads the mapped files into memory when it holds them. False: they are larger than memory and are
// read as they are used. Refuses file.read; the weights are then lost.
Result<bool> make_resident(const ModelWeights& weights);

}  // namespace roost
