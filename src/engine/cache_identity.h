// Names everything that the bytes of a cached prefix depend on.
#pragma once

#include <string>

#include "model/drafter.h"
#include "model/qwen35.h"

namespace roost {

// Of the configuration, samples of every tensor's bytes, the drafter whose rows lie in the pages
// (null: none), what the pages hold, the kernels ("cpu avx3") and the build of the program, as any
// change of its code may change a bit. Two that differ share no entry.
std::string cache_identity(const ModelWeights& weights, const DrafterWeights* drafter, KvFormat kv,
                           const std::string& backend, const std::string& build);

}  // namespace roost
