// What is served and within which bounds, for people and programs (docs/SERVER.md, props).
#pragma once

#include "base/json.h"
#include "server/served_model.h"

namespace roost {

struct PropsOptions {
  size_t queue_max = 0, body_bytes_max = 0, connections_max = 0;
  bool has_keys = false;
  bool is_tls = false;
  size_t n_stored_max = 0;
  double request_timeout_s = 0;
  bool logs_content = false;
};

// No paths, no keys.
json::Value props_of(const ServedModel& model, const PropsOptions& options);

}  // namespace roost
