// Any JSON as config.json and generation_config.json: read or refused, and what is read is
// consistent.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "weights/config.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto value = roost::json::parse(text);
  if (!value) return 0;
  auto config = roost::parse_config(*value);
  if (config) {
    ROOST_CHECK(static_cast<int64_t>(config->is_full_attention.size()) == config->n_layers);
    ROOST_CHECK(config->n_delta_layers() > 0);
    ROOST_CHECK(config->n_heads % config->n_kv_heads == 0 &&
                config->n_value_heads % config->n_key_heads == 0);
    ROOST_CHECK(config->rotary_dims % 2 == 0 && config->rotary_dims <= config->head_dim);
    ROOST_CHECK(config->mrope_section.size() == 3);
    ROOST_CHECK(config->experts_per_token <= config->n_experts);
  }
  roost::ModelConfig any;
  any.vocabulary = 1000;
  if (roost::parse_generation_config(*value, any)) {
    for (const int32_t token : any.end_tokens) ROOST_CHECK(token >= 0 && token < 1000);
  }
  return 0;
}
