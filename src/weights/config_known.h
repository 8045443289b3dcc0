// Which fields of a configuration are known: those with a rule, and those that change nothing.
#pragma once

#include "base/result.h"
#include "weights/config_fields.h"

namespace roost {

enum class KnownFields { kText, kRope, kDrafter, kDraftPart };

// Refuses config.field by name for a field that is neither read nor known to be harmless.
Result<void> check_known_fields(const ConfigFields& fields, KnownFields known);

// A nested configuration takes its arithmetic from text_config. A field of the arithmetic that also
// stands outside must not say something else.
Result<void> check_outer_fields(const ConfigFields& outer, const ConfigFields& text);

}  // namespace roost
