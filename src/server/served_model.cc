// Facts about a loaded model that are derived once.
#include "server/served_model.h"

#include <fmt/format.h>

#include <algorithm>

#include "server/version.h"

namespace roost {

std::string fingerprint_of(const ServedModel& model) {
  return fmt::format("roost-{}-{}", kVersion, model.digest.substr(0, 8));
}

void derive_rules(ServedModel& model, const std::string& template_source) {
  model.rules.n_tokens = model.tokenizer.n_tokens();
  model.rules.template_variables = model.chat_template.variables();
  model.rules.model_ids = model.ids;
  model.grammars = std::make_shared<GrammarStore>(model.tokenizer);
  // A level that the template compares with stands in it as a quoted word.
  for (const char* level : {"minimal", "low", "medium", "high", "xhigh", "max"}) {
    const bool is_named = template_source.find(fmt::format("'{}'", level)) != std::string::npos ||
                          template_source.find(fmt::format("\"{}\"", level)) != std::string::npos;
    if (is_named) model.rules.effort_levels.emplace_back(level);
  }
  for (Token id = 0; id < model.tokenizer.n_tokens(); ++id) {
    const std::string text(model.tokenizer.bytes_of(id));
    if (text.size() > 1 && model.tokenizer.find_added(text) == id)
      model.added_tokens.push_back(text);
  }
}

SampleParams sample_params_of(const GenerationFields& fields, const SamplingDefaults& defaults,
                              uint64_t seed) {
  SampleParams out;
  out.temperature = fields.temperature.value_or(defaults.temperature);
  out.top_p = fields.top_p.value_or(defaults.top_p);
  out.min_p = fields.min_p.value_or(defaults.min_p);
  const int64_t top_k = fields.top_k.value_or(defaults.top_k);
  out.top_k = static_cast<int32_t>(std::clamp<int64_t>(top_k, 0, INT32_MAX));
  out.seed = seed;
  return out;
}

}  // namespace roost
