// A model folder's config.json and tensors, as weights.
#pragma once

#include <memory>
#include <string>

#include "base/result.h"
#include "weights/weights.h"

namespace roost {

Result<std::shared_ptr<const ModelWeights>> load_model_weights(const std::string& folder);

}  // namespace roost
