// The engine's options from the command line.
#pragma once

#include <cstdint>

#include "apps/command_line.h"
#include "base/result.h"
#include "engine/engine.h"

namespace roost {

// Refuses flag.value, with the flag and the numbers, for a value below `low` or above `high`.
Result<void> check_range(const char* flag, int64_t value, int64_t low, int64_t high);

// Refuses flag.value, also for codes where the device has no kernels for them.
Result<KvFormat> kv_format_of(const Flags& flags);

// What the operator says of sampling. Refuses flag.value.
Result<GenerationDefaults> sampling_of(const Flags& flags);

// Refuses flag.value.
Result<EngineOptions> engine_options_of(const Flags& flags);

}  // namespace roost
