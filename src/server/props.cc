#include "server/props.h"

#include "base/limits.h"
#include "server/version.h"

namespace roost {

namespace {

json::Value count(size_t n) {
  return json::Value::integer(static_cast<int64_t>(n));
}

json::Value limits_value(const PropsOptions& options) {
  json::Value out = json::Value::object();
  out.set("connections", count(options.connections_max));
  out.set("body_bytes", count(options.body_bytes_max));
  out.set("header_bytes", count(limits::kHeaderBytesMax));
  out.set("target_bytes", count(limits::kTargetBytesMax));
  out.set("json_depth", count(limits::kJsonDepthMax));
  out.set("messages", count(limits::kMessagesMax));
  out.set("parts", count(limits::kPartsMax));
  out.set("tools", count(limits::kToolsMax));
  out.set("label_bytes", count(limits::kLabelBytesMax));
  out.set("stop_strings", count(limits::kStopStringsMax));
  out.set("stop_string_bytes", count(limits::kStopStringBytesMax));
  out.set("stop_token_ids", count(limits::kStopTokensMax));
  out.set("logit_bias", count(limits::kLogitBiasMax));
  out.set("top_logprobs", json::Value::integer(limits::kTopLogprobsMax));
  out.set("prompt_logprobs", json::Value::integer(limits::kPromptLogprobsMax));
  out.set("n", json::Value::integer(limits::kChoicesMax));
  out.set("prompts", count(limits::kPromptsMax));
  out.set("calls", json::Value::integer(limits::kCallsMax));
  out.set("stored_replies", count(options.n_stored_max));
  out.set("stored_reply_bytes", count(limits::kStoredReplyBytesMax));
  out.set("queue", count(options.queue_max));
  out.set("choices_of_a_form", count(limits::kChoiceStringsMax));
  out.set("choice_bytes", count(limits::kChoiceBytesMax));
  out.set("grammar_bytes", count(limits::kGrammarBytesMax));
  out.set("unsent_bytes", count(limits::kStreamBufferBytesMax));
  out.set("request_timeout_s", json::Value::real(options.request_timeout_s));
  return out;
}

json::Value drafter_value(const ServedModel& model) {
  if (!model.drafter) return {};
  json::Value out = json::Value::object();
  out.set("id", json::Value::string(model.drafter->id));
  out.set("digest", json::Value::string(model.drafter->digest));
  out.set("block", json::Value::integer(model.drafter->block_rows));
  out.set("taps", json::Value::integer(model.drafter->n_taps));
  return out;
}

json::Value memory_value(const MemoryPlan& plan) {
  json::Value out = json::Value::object();
  out.set("weights", count(plan.weights_mapped + plan.weights_owned));
  out.set("kv", count(plan.pages));
  out.set("snapshots", count(plan.slots + plan.snapshots));
  out.set("scratch", count(plan.scratch + plan.workspace + plan.staging));
  out.set("host", count(plan.host));
  out.set("disk", count(static_cast<size_t>(plan.disk)));
  return out;
}

}  // namespace

json::Value props_of(const ServedModel& model, const PropsOptions& options) {
  json::Value served = json::Value::object();
  served.set("id", json::Value::string(model.ids.front()));
  served.set("digest", json::Value::string(model.digest));
  served.set("family", json::Value::string("qwen3_5"));
  served.set("template_sha256", json::Value::string(model.template_sha256));
  served.set("tokenizer_sha256", json::Value::string(model.tokenizer_sha256));
  json::Value eos = json::Value::array();
  for (const int32_t id : model.end_tokens) eos.push(json::Value::integer(id));
  served.set("eos_ids", std::move(eos));

  json::Value defaults = json::Value::object();
  defaults.set("temperature", json::Value::real(model.defaults.temperature));
  defaults.set("top_p", json::Value::real(model.defaults.top_p));
  defaults.set("top_k", json::Value::integer(model.defaults.top_k));
  defaults.set("min_p", json::Value::real(model.defaults.min_p));
  defaults.set("presence_penalty", json::Value::real(model.defaults.presence_penalty));
  defaults.set("frequency_penalty", json::Value::real(model.defaults.frequency_penalty));
  defaults.set("repetition_penalty", json::Value::real(model.defaults.repetition_penalty));

  json::Value features = json::Value::object();
  features.set("tls", json::Value::boolean(options.is_tls));
  features.set("disk_cache", json::Value::boolean(!model.cache_folder.empty()));
  features.set("log_content", json::Value::boolean(options.logs_content));
  for (const char* name : {"vision", "video", "image_urls"})
    features.set(name, json::Value::boolean(false));
  features.set("grammar", json::Value::boolean(true));
  features.set("keys", json::Value::boolean(options.has_keys));

  const int64_t context = model.engine->context_max();
  json::Value generation = json::Value::object();
  generation.set("n_ctx", json::Value::integer(context));
  json::Value out = json::Value::object();
  out.set("version", json::Value::string(std::string(kVersion)));
  out.set("model", std::move(served));
  out.set("drafter", drafter_value(model));
  out.set("context_length", json::Value::integer(context));
  out.set("streams", json::Value::integer(model.engine->memory_plan().n_slots));
  out.set("defaults", std::move(defaults));
  out.set("thinking_default", json::Value::string(!model.thinking   ? "template"
                                                  : *model.thinking ? "on"
                                                                    : "off"));
  out.set("limits", limits_value(options));
  out.set("features", std::move(features));
  out.set("memory", memory_value(model.engine->memory_plan()));
  out.set("snapshot_every", json::Value::integer(model.snapshot_every));
  out.set("chunk_ms", json::Value::integer(model.chunk_ms));
  out.set("kv_format", json::Value::string(model.kv_format));
  out.set("backend", json::Value::string(model.engine->backend()));
  json::Value kernels = json::Value::object();
  for (const auto& [kind, kernel] : model.kernels) kernels.set(kind, json::Value::string(kernel));
  out.set("kernels", std::move(kernels));
  out.set("default_generation_settings", std::move(generation));
  out.set("chat_template", json::Value::string(model.template_source));
  return out;
}

}  // namespace roost
