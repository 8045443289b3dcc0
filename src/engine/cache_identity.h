// Names everything that the bytes of a cached prefix depend on.
#pragma once

#include <string>

#include "model/drafter.h"
#include "model/qwen35.h"

namespace roost {

// Of the geometry, samples of every tensor's bytes, the drafter whose rows lie in the pages (null:
// none), what the pages hold, the kernels ("cpu avx3") and the version of the arithmetic. Two that
// differ share no entry.
std::string cache_identity(const ModelWeights& weights, const DrafterWeights* drafter, KvFormat kv,
                           const std::string& backend);

}  // namespace roost
