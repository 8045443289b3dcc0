// A model folder's config.json and tensors, as weights.
#pragma once

#include <memory>
#include <string>

#include "base/result.h"
#include "weights/weights.h"

namespace roost {

Result<std::shared_ptr<const ModelWeights>> load_model_weights(const std::string& folder);

// Reads the mapped files in when memory holds them: a first touch while serving costs more than
// the product that needs it. False: they are larger than memory and are read as they are used.
bool make_resident(const ModelWeights& weights);

}  // namespace roost
