// Entries of the model list, as clients of both families read them.
#pragma once

#include <string>

#include "base/json.h"
#include "server/served_model.h"

namespace roost {

json::Value model_entry(const ServedModel& model, const std::string& id);
json::Value model_list(const ServedModel& model);

// "2026-01-02T03:04:05Z".
std::string rfc3339(int64_t unix_seconds);

}  // namespace roost
