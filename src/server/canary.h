// The canary: a fixed prompt whose greedy reply is known from the start. A model that gives other
// tokens later, or none, is not fit to serve.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "base/result.h"
#include "engine/engine.h"
#include "text/tokenizer.h"

namespace roost {

struct CanaryReply {
  std::vector<int32_t> tokens;
  int64_t took_ns = 0;
};

// Any thread; done is called once, on the engine's thread or, when the engine refuses, at once. The
// run neither reads nor leaves cached prefixes.
void run_canary(Engine& engine, const Tokenizer& tokenizer,
                std::function<void(Result<CanaryReply>)> done);

}  // namespace roost
