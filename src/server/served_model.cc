// Facts about a loaded model that are derived once.
#include "server/served_model.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/hash.h"
#include "server/version.h"

namespace roost {

std::string fingerprint_of(const ServedModel& model) {
  return fmt::format("roost-{}-{}", kVersion, model.digest.substr(0, 8));
}

namespace {

ReasoningBudget budget_form_of(const Tokenizer& tokenizer) {
  ReasoningBudget out;
  out.open_token = tokenizer.find_added("<think>").value_or(-1);
  out.close_token = tokenizer.find_added("</think>").value_or(-1);
  out.closing = tokenizer.encode("\n</think>\n\n");
  out.closing_after_newline = tokenizer.encode("</think>\n\n");
  std::vector<bool> ends_in_newline, is_blank;
  for (Token id = 0; id < tokenizer.n_tokens(); ++id) {
    const std::string_view bytes = tokenizer.bytes_of(id);
    ends_in_newline.push_back(bytes.ends_with('\n'));
    is_blank.push_back(bytes.find_first_not_of(" \t\r\n") == std::string_view::npos);
  }
  out.is_blank = std::make_shared<const std::vector<bool>>(std::move(is_blank));
  out.ends_in_newline = std::make_shared<const std::vector<bool>>(std::move(ends_in_newline));
  return out;
}

}  // namespace

void derive_rules(ServedModel& model, const std::string& template_source) {
  model.template_source = template_source;
  model.template_sha256 = sha256_hex(std::as_bytes(std::span(template_source)));
  model.budget_form = budget_form_of(model.tokenizer);
  model.rules.n_tokens = model.tokenizer.n_tokens();
  model.rules.template_variables = model.chat_template.variables();
  model.rules.model_ids = model.ids;
  model.grammars = std::make_shared<GrammarStore>(model.tokenizer, model.grammar_bytes_max);
  // A level that the template compares with stands in it as a quoted word.
  for (const std::string_view level : kEffortLevels) {
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

LogitAdjust logit_adjust_of(const GenerationFields& fields, const SamplingDefaults& defaults) {
  LogitAdjust out;
  out.bias = fields.logit_bias;
  out.presence = fields.presence_penalty.value_or(defaults.presence_penalty);
  out.frequency = fields.frequency_penalty.value_or(defaults.frequency_penalty);
  out.repetition = fields.repetition_penalty.value_or(defaults.repetition_penalty);
  out.min_tokens = fields.min_tokens;
  return out;
}

}  // namespace roost
