// Any JSON as a drafter's config.json: read or refused, and what is read is consistent.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "weights/drafter_config.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto value = roost::json::parse({reinterpret_cast<const char*>(data), size});
  if (!value) return 0;
  const auto config = roost::parse_drafter_config(*value);
  if (!config) return 0;
  ROOST_CHECK(config->n_heads % config->n_kv_heads == 0 && config->head_dim % 2 == 0);
  ROOST_CHECK(config->block >= 2 && config->block <= roost::DrafterConfig::kBlockMax);
  ROOST_CHECK(config->block_rows_max >= 2 && config->block_rows_max <= config->block);
  ROOST_CHECK(config->mask_token >= 0 && config->mask_token < config->vocabulary);
  ROOST_CHECK(config->n_taps() >= 1 && config->n_taps() <= roost::DrafterConfig::kTapsMax);
  for (const int64_t tap : config->taps) ROOST_CHECK(tap >= 0 && tap < config->n_target_layers);
  ROOST_CHECK(config->selector_top_k >= 1 && config->selector_top_k <= config->vocabulary);
  if (config->version == 2) {
    ROOST_CHECK(config->hidden % config->conv_group == 0 && config->conv_taps <= config->block);
    for (const auto& layer : config->layers) ROOST_CHECK(!layer.is_causal);
  }
  return 0;
}
