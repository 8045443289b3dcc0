// The quantization part of config.json: the global width and the modules that differ.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "base/json.h"
#include "base/result.h"
#include "weights/config.h"

namespace roost {

struct QuantConfig {
  std::optional<QuantSpec> global;           // none: nothing is quantized
  std::map<std::string, QuantSpec> modules;  // by normalized module path
};

bool is_quant_width(int64_t bits);   // 2, 3, 4, 5, 6, 8
bool is_quant_group(int64_t group);  // 32, 64, 128

// root: config.json; text: its text part (may be the same object). Refuses checkpoint.quantization
// for every way of quantizing but MLX's affine one (docs/MODEL.md, quantization in config.json).
Result<QuantConfig> parse_quant_config(const json::Value& root, const json::Value& text);

}  // namespace roost
