// `quantization` and `quantization_config`: MLX's affine form is read, all others refused by name.
#include "weights/quant_config.h"

#include "weights/config_fields.h"
#include "weights/names.h"

namespace roost {

namespace {

// What a module's own entry takes for a field that it leaves out: the class default of the format,
// not the file's global value.
constexpr QuantSpec kClassDefault{.is_quantized = true, .bits = 4, .group = 64};

Error refuse(const std::string& what) {
  return {Refusal::QuantFormat, what};
}

// {"group_size", "bits", "mode"}; the global entry also holds the entries of modules, by their
// paths.
Result<QuantSpec> parse_spec(const json::Value& object, const std::string& path, bool is_module) {
  QuantSpec spec = kClassDefault;
  for (const auto& [key, value] : object.members()) {
    const std::string place = path + "." + shortened(key) + ": " + quoted(value);
    if (key == "mode") {
      if (value.is_null() || (value.is_string() && value.as_string() == "affine")) continue;
      return refuse(place + " (only \"affine\" is supported)");
    }
    if (key == "bits" || key == "group_size") {
      const std::optional<int64_t> number = value.is_number() ? value.as_int64() : std::nullopt;
      const bool is_bits = key == "bits";
      if (!number || !(is_bits ? is_quant_width(*number) : is_quant_group(*number))) {
        return refuse(place + (is_bits ? " (2, 3, 4, 5, 6 or 8 is supported)"
                                       : " (32, 64 or 128 is supported)"));
      }
      (is_bits ? spec.bits : spec.group) = static_cast<int>(*number);
      continue;
    }
    if (is_module || !(value.is_object() || value.is_bool())) {
      return refuse(place + " (not known)");
    }
  }
  return spec;
}

bool is_same(const QuantSpec& a, const QuantSpec& b) {
  return a.is_quantized == b.is_quantized &&
         (!a.is_quantized || (a.bits == b.bits && a.group == b.group));
}

bool is_same(const QuantConfig& a, const QuantConfig& b) {
  if (a.global.has_value() != b.global.has_value() || a.modules.size() != b.modules.size())
    return false;
  if (a.global && !is_same(*a.global, *b.global)) return false;
  for (const auto& [path, spec] : a.modules) {
    const auto other = b.modules.find(path);
    if (other == b.modules.end() || !is_same(spec, other->second)) return false;
  }
  return true;
}

Result<QuantConfig> parse_entry(const json::Value& entry, const std::string& path) {
  if (!entry.is_object()) return refuse(path + ": " + quoted(entry) + " (an object is needed)");
  // Files of other quantizers say so here: gptq, awq, fp8, compressed-tensors, mxfp4, bitnet, …
  if (const json::Value* method = entry.find("quant_method")) {
    return refuse(path + ".quant_method: " + quoted(*method));
  }
  QuantConfig config;
  ROOST_TRY(config.global, parse_spec(entry, path, false));
  for (const auto& [key, value] : entry.members()) {
    if (!value.is_object() && !value.is_bool()) continue;
    QuantSpec spec = *config.global;
    if (value.is_bool()) {
      spec.is_quantized = value.as_bool();
    } else {
      ROOST_TRY(spec, parse_spec(value, path + "." + shortened(key), true));
    }
    const auto [at, is_first] = config.modules.emplace(parse_weight_name(key).path, spec);
    if (!is_first && !is_same(at->second, spec))
      return refuse(path + "." + shortened(key) + ": two values for one module");
  }
  return config;
}

}  // namespace

bool is_quant_width(int64_t bits) {
  return (bits >= 2 && bits <= 6) || bits == 8;
}
bool is_quant_group(int64_t group) {
  return group == 32 || group == 64 || group == 128;
}

Result<QuantConfig> parse_quant_config(const json::Value& root, const json::Value& text) {
  struct Place {
    const json::Value& object;
    std::string path;
  };
  const bool is_nested = &root != &text;
  const Place places[] = {{root, "quantization"},
                          {root, "quantization_config"},
                          {text, "quantization"},
                          {text, "quantization_config"}};
  std::optional<QuantConfig> found;
  std::string found_at;
  for (size_t i = 0; i < (is_nested ? 4u : 2u); ++i) {
    const json::Value* entry = places[i].object.find(places[i].path);
    if (entry == nullptr || entry->is_null()) continue;
    const std::string path = (i < 2 ? "" : "text_config.") + places[i].path;
    ROOST_TRY(QuantConfig config, parse_entry(*entry, path));
    if (found && !is_same(*found, config)) return refuse(found_at + " and " + path + " differ");
    found = std::move(config);
    found_at = path;
  }
  return found ? *std::move(found) : QuantConfig{};
}

}  // namespace roost
